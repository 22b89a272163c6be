#!/bin/bash
#SBATCH --job-name=small
#SBATCH --partition=gpu
#SBATCH --account=research
#SBATCH --qos=normal
#SBATCH --constraint='ib&h100'
#SBATCH --reservation=res
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=0-01:00:00
#SBATCH --output='/shared/logs of mine/%x-%A_%a.out'
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@300
#SBATCH --requeue
#SBATCH --dependency=afterok:1234,afterany:77
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --comment='it'"'"'s mine'
#SBATCH --nodelist='node[1-2]'
#SBATCH --mail-type=END
#SBATCH --contiguous
#SBATCH --array=0-3%2
set -euo pipefail

say() { printf '%s jobgen: %s\n' "$(date '+%F %T')" "$*" >&2; }

# Nothing of the shell that submitted this may decide how ranks find each other.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT \
  OMP_NUM_THREADS "${!PET_@}" "${!ACCELERATE_@}" "${!TORCHELASTIC_@}" "${!JOBGEN_@}"
export SLURM_EXPORT_ENV=ALL

export JOBGEN_JOB_ID=$SLURM_JOB_ID JOBGEN_ATTEMPT=${SLURM_RESTART_COUNT:-0}
if (( JOBGEN_ATTEMPT > 2 )); then
  say "this is restart $JOBGEN_ATTEMPT and launch.restarts is 2: giving up"
  exit 1
fi

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*}i
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}

checkpoints=/shared/ck
job_dir=$checkpoints/.jobgen/$SLURM_JOB_ID
export JOBGEN_CONFIG_DIR=/shared/ck/.jobgen/$SLURM_JOB_ID
mkdir -p -- "$job_dir"
export JOBGEN_DONE_FILE=$JOBGEN_CONFIG_DIR/done
rm -f -- "$job_dir/done"

# Whether this attempt brought training forward: something was written beside the checkpoints.
progressed() {
  [ -n "$(find "$checkpoints" -mindepth 1 -maxdepth 2 -path "$checkpoints/.jobgen" -prune -o -newer "$job_dir/started" -print -quit)" ]
}
: >"$job_dir/started"
export JOBGEN_RESUME_FROM=''
JOBGEN_RESUME_FROM=/shared/old/checkpoint-5
say "attempt $JOBGEN_ATTEMPT on ${hosts//$'\n'/ }${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"

cat >"$job_dir/program.sh" <<'END_OF_PROGRAM'
#!/bin/bash
# What every node runs; made by jobgen. Argument: the step.
set -eo pipefail

environment() {
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=1
  export NCCL_DEBUG=WARN
  export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
  export TORCH_FR_BUFFER_SIZE=2000
  export TORCH_NCCL_DUMP_ON_TIMEOUT=1
  export TORCH_FR_DUMP_ON_TIMEOUT=1
  export TRITON_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/triton
  export TORCHINDUCTOR_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/inductor
  export JOBGEN_CHECKPOINT_DIR=/shared/ck
  export TEXT='naïve 日本語'
}

enter() {
  NODE_RANK=$SLURM_NODEID
  environment
}

train() {
  # The launcher must survive this signal; a program that handles it still gets it.
  trap '' USR2
  enter
  local command=(
    torchrun
    --nnodes=2
    --nproc-per-node=8
    --node-rank="$NODE_RANK"
    --master-addr="$MASTER_ADDR"
    --master-port="$MASTER_PORT"
    --max-restarts=0
    train.py
    --text
    $'a b\n$x \'y\' "z"'
  )
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
# Ahead of the end: the program may save and leave, for 255 s; then it is ended.
on_signal() {
  signalled=1
  say "time is up for this attempt: telling the program"
  if [ -z "$step" ] || [ -n "$watcher" ]; then return 0; fi
  (
    trap - USR2 TERM
    for (( left = 255; left > 0; left -= 10 )); do
      tell USR2 "$step" || exit 0 # again and again: one that comes before its handler is lost
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
  trap '' USR2
  if [ -n "$watcher" ]; then kill "$watcher" 2>/dev/null || true; fi
}
trap on_signal USR2
trap on_term TERM
preempted() { [[ $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null) =~ PreemptTime=[0-9] ]]; }
requeue() { # Slurm itself restarts a job after preemption and node failure only, and not if it ended in time
  if (( JOBGEN_ATTEMPT >= 2 )); then
    say "2 restarts are used up"
    return 0
  fi
  say "requeue: $1"
  trap - USR2 TERM
  scontrol requeue "$SLURM_JOB_ID" || return 0
  sleep 600
}

clean() { timeout 30 srun --nodes=2 --ntasks=2 --ntasks-per-node=1 rm -rf -- "/tmp/jobgen-$JOBGEN_JOB_ID" || true; }
leave() {
  no_more_signals
  if [ -z "$ended" ] || preempted; then
    if [ -n "$signalled" ] || preempted; then
      requeue "the attempt was ended before the training was"
    elif progressed; then
      requeue "it failed ($1) after a new checkpoint"
    else
      say "it failed ($1) without a new checkpoint, so another attempt would fail too"
    fi
  fi
  clean
  if (( $1 == 0 )); then exit 75; fi # ended in time, but not done
  exit "$1"
}

status=0
run --nodes=2 --ntasks=2 --ntasks-per-node=1 --mpi=pmix bash "$JOBGEN_CONFIG_DIR/program.sh" train || status=$?
if [ -e "$job_dir/done" ]; then
  say "done"
elif (( status != 0 )) || [ -n "$signalled$ended" ] || preempted; then
  leave "$status"
fi
no_more_signals
signalled='' ended=''
clean
say "finished"
