#!/bin/bash
#SBATCH --job-name=small
#SBATCH --account=research
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --mem=4096M
#SBATCH --time=0-01:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180
#SBATCH --no-requeue
set -euo pipefail

say() { printf '%s jobgen: %s\n' "$(date '+%F %T')" "$*" >&2; }

# Nothing of the shell that submitted this may decide how ranks find each other.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT \
  OMP_NUM_THREADS "${!PET_@}" "${!ACCELERATE_@}" "${!TORCHELASTIC_@}" "${!JOBGEN_@}"
export SLURM_EXPORT_ENV=ALL

export JOBGEN_JOB_ID=$SLURM_JOB_ID JOBGEN_ATTEMPT=${SLURM_RESTART_COUNT:-0}
if (( JOBGEN_ATTEMPT > 0 )); then
  say "this is restart $JOBGEN_ATTEMPT and launch.restarts is 0: giving up"
  exit 1
fi

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}

checkpoints=/lustre/shared/ck
job_dir=$checkpoints/.jobgen/$SLURM_JOB_ID
export JOBGEN_CONFIG_DIR=/shared/ck/.jobgen/$SLURM_JOB_ID
mkdir -p -- "$job_dir"
export JOBGEN_DONE_FILE=$JOBGEN_CONFIG_DIR/done
rm -f -- "$job_dir/done"

# A folder belongs to one model and batch; the checkpoints of another cannot be continued.
same_run() {
  local mark=$checkpoints/.jobgen/run
  if [ ! -e "$mark" ]; then
    printf '%s\n' 0f8655b2a38fe1db >"$mark.$HOSTNAME.$$"
    mv -- "$mark.$HOSTNAME.$$" "$mark" # at once: other nodes read it now
  fi
  if [ "$(< "$mark")" != 0f8655b2a38fe1db ]; then
    say "$checkpoints holds the run of another model or batch: use another checkpoint.directory, or remove $mark"
    return 1
  fi
}
same_run
export JOBGEN_RESUME_FROM=''
say "attempt $JOBGEN_ATTEMPT on ${hosts//$'\n'/ }${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"

cat >"$job_dir/program.sh" <<'END_OF_PROGRAM'
#!/bin/bash
# What every node runs (inside the container); made by jobgen. Argument: the step.
set -eo pipefail

environment() {
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=2
  export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
  export TORCH_FR_BUFFER_SIZE=2000
  export TORCH_NCCL_DUMP_ON_TIMEOUT=1
  export TORCH_FR_DUMP_ON_TIMEOUT=1
  export TRITON_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/triton
  export TORCHINDUCTOR_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/inductor
  export NCCL_NET=gIB
  export NCCL_SOCKET_IFNAME='enp0s19,enp192s20'
  export GLOO_SOCKET_IFNAME=enp0s19
  export JOBGEN_CHECKPOINT_DIR=/shared/ck
  # the provider's own settings; /usr/local/gib/scripts/set_nccl_env.sh is not jobgen's to repeat
  # shellcheck disable=SC1090,SC1091
  . /usr/local/gib/scripts/set_nccl_env.sh
  export NCCL_DEBUG=INFO
}

enter() {
  if [ -z "${HF_HOME:-}" ]; then export HF_HOME=/shared/.cache/huggingface; fi
  NODE_RANK=$SLURM_NODEID
  export LD_LIBRARY_PATH=/usr/local/gib/lib64"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  environment
}

train() {
  # The launcher must survive this signal; a program that handles it still gets it.
  trap '' USR1
  enter
  local command=(
    torchrun
    --nnodes=2
    --nproc-per-node=2
    --node-rank="$NODE_RANK"
    --master-addr="$MASTER_ADDR"
    --master-port="$MASTER_PORT"
    --max-restarts=0
    train.py
  )
  # Slurm hands on the soft limit of the shell that submitted; the node's own is the hard one.
  ulimit -S -l "$(ulimit -H -l)" 2>/dev/null || true
  if [ "$(ulimit -l)" != unlimited ] && [ "${SLURM_LOCALID:-0}" = 0 ]; then
    printf 'jobgen: warning: %s may lock %s KiB of memory (ulimit -l), not unlimited: ' "${SLURMD_NODENAME:-$HOSTNAME}" "$(ulimit -l)" >&2
    echo 'gcp-gib registers its buffers there, and NCCL then fails in ibv_reg_mr (Cannot allocate memory) or falls back to TCP. write slurm.extra: {propagate: NONE}, or ask the site for PropagateResourceLimitsExcept=MEMLOCK (and for LimitMEMLOCK=infinity of slurmd)' >&2
  fi
  exec "${command[@]}"
}

case $1 in
  train) train ;;
  *) echo "unknown step $1" >&2; exit 2 ;;
esac
END_OF_PROGRAM

tell() { kill "-$1" "$2" 2>/dev/null; } # srun hands it on to every process of the step
# Steps run in the background: bash would deliver no signal while one runs in the foreground.
step='' signalled='' ended='' watcher=''
run() {
  local status
  if [ -n "$signalled$ended" ]; then return 143; fi
  srun --kill-on-bad-exit=1 --wait=60 "$@" </dev/null &
  step=$!
  while :; do
    if wait "$step"; then status=0; else status=$?; fi
    kill -0 "$step" 2>/dev/null || break # a trapped signal makes wait return early
  done
  step=''
  return "$status"
}
# Ahead of the end: the program may save and leave, for 135 s; then it is ended.
on_signal() {
  signalled=1
  say "time is up for this attempt: telling the program"
  if [ -z "$step" ] || [ -n "$watcher" ]; then return 0; fi
  (
    trap - USR1 TERM
    for (( left = 135; left > 0; left -= 10 )); do
      tell USR1 "$step" || exit 0 # again and again: one that comes before its handler is lost
      sleep 10
    done
    tell TERM "$step" || exit 0
    sleep 20
    tell KILL "$step" || exit 0
  ) </dev/null >/dev/null 2>&1 &
  watcher=$!
}
on_term() {
  ended=1
  say "ended from outside"
  if [ -n "$step" ]; then tell TERM "$step" || true; fi
}
no_more_signals() {
  trap '' USR1
  if [ -n "$watcher" ]; then kill "$watcher" 2>/dev/null || true; fi
}
trap on_signal USR1
trap on_term TERM
preempted() { [[ $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null) =~ PreemptTime=[0-9] ]]; }
clean() { timeout 30 srun --nodes=2 --ntasks=2 --ntasks-per-node=1 rm -rf -- "/tmp/jobgen-$JOBGEN_JOB_ID" || true; }
leave() {
  no_more_signals
  clean
  if (( $1 == 0 )); then exit 75; fi # ended in time, but not done
  exit "$1"
}

in_container=(
  '--container-image=nvcr.io#nvidia/pytorch:25.09-py3'
  '--container-mounts=/lustre/shared:/shared,/lustre/data:/data:ro,/tmp/jobgen-'"$JOBGEN_JOB_ID"'/scratch2:/local,/usr/local/gib:/usr/local/gib'
  --no-container-mount-home
  '--container-env=MASTER_ADDR,MASTER_PORT,JOBGEN_JOB_ID,JOBGEN_ATTEMPT,JOBGEN_CONFIG_DIR,JOBGEN_RESUME_FROM,JOBGEN_DONE_FILE'
)
run --nodes=2 --ntasks=2 --ntasks-per-node=1 mkdir -p -- /tmp/jobgen-"$JOBGEN_JOB_ID"/scratch2 || leave "$?"
status=0
run --nodes=2 --ntasks=2 --ntasks-per-node=1 "${in_container[@]}" bash "$JOBGEN_CONFIG_DIR/program.sh" train || status=$?
if [ -e "$job_dir/done" ]; then
  say "done"
elif (( status != 0 )) || [ -n "$signalled$ended" ] || preempted; then
  leave "$status"
fi
no_more_signals
signalled='' ended=''
clean
say "finished"
