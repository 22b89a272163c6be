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
#SBATCH --signal=B:TERM@180
#SBATCH --requeue
# TrainingArguments hold no model.init, training.objective, training.sequence_length: the program must follow the spec
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
export MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}

checkpoints=/lustre/shared/ck
job_dir=$checkpoints/.jobgen/$SLURM_JOB_ID
export JOBGEN_CONFIG_DIR=/shared/ck/.jobgen/$SLURM_JOB_ID
mkdir -p -- "$job_dir"
export JOBGEN_DONE_FILE=$JOBGEN_CONFIG_DIR/done
rm -f -- "$job_dir/done"

# The newest complete checkpoint: a half-written one has no marker file yet and is passed over.
newest() {
  local folder step best='' most=-1
  for folder in "$checkpoints"/checkpoint-*; do
    [ -e "$folder"/trainer_state.json ] || continue
    [ ! -e "$folder"/checkpoint-is-incomplete.txt ] || continue
    step=${folder##*[!0-9]}
    if [ -n "$step" ] && (( 10#$step > most )); then
      most=$((10#$step)) best=${folder#"$checkpoints"/}
    fi
  done
  printf '%s' "$best"
}
# Whether this attempt brought training forward: there is a newer checkpoint.
progressed() {
  [ "$(newest)" != "$started_from" ]
}
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
started_from=$(newest)
export JOBGEN_RESUME_FROM=''
if [ -n "$started_from" ]; then export JOBGEN_RESUME_FROM=/shared/ck/"$started_from"; fi
say "attempt $JOBGEN_ATTEMPT on ${hosts//$'\n'/ }${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"

cat >"$job_dir/program.sh" <<'END_OF_PROGRAM'
#!/bin/bash
# What every node runs (inside the container); made by jobgen. Argument: the step.
set -eo pipefail

environment() {
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=2
  export NCCL_DEBUG=WARN
  export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
  export TORCH_FR_BUFFER_SIZE=2000
  export TORCH_NCCL_DUMP_ON_TIMEOUT=1
  export TORCH_FR_DUMP_ON_TIMEOUT=1
  export TRITON_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/triton
  export TORCHINDUCTOR_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/inductor
  export JOBGEN_CHECKPOINT_DIR=/shared/ck
}

enter() {
  if [ -z "${HF_HOME:-}" ]; then export HF_HOME=/shared/.cache/huggingface; fi
  NODE_RANK=$SLURM_NODEID
  environment
}

train() {
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
    --do_train True
    --per_device_train_batch_size 1
    --gradient_accumulation_steps 1
    --bf16 False
    --fp16 False
    --optim adamw_torch
    --gradient_checkpointing False
    --use_liger_kernel False
    --torch_compile False
    --max_steps 40
    --output_dir /shared/ck
    --save_strategy steps
    --save_steps 5
    --save_total_limit 5
    --save_only_model False
  )
  if [ -n "$JOBGEN_RESUME_FROM" ]; then
    command+=( --resume_from_checkpoint "$JOBGEN_RESUME_FROM" )
  fi
  # Slurm hands on the soft limit of the shell that submitted; the node's own is the hard one.
  ulimit -S -l "$(ulimit -H -l)" 2>/dev/null || true
  if [ "$(ulimit -l)" != unlimited ] && [ "${SLURM_LOCALID:-0}" = 0 ]; then
    printf 'jobgen: warning: %s may lock %s KiB of memory (ulimit -l), not unlimited: ' "${SLURMD_NODENAME:-$HOSTNAME}" "$(ulimit -l)" >&2
    echo 'infiniband registers its buffers there, and NCCL then fails in ibv_reg_mr (Cannot allocate memory) or falls back to TCP. write slurm.extra: {propagate: NONE}, or ask the site for PropagateResourceLimitsExcept=MEMLOCK (and for LimitMEMLOCK=infinity of slurmd)' >&2
  fi
  exec "${command[@]}"
}

# On the node itself: the same step inside the container, with the variables it needs.
contain() {
  local name
  for name in MASTER_ADDR MASTER_PORT JOBGEN_JOB_ID JOBGEN_ATTEMPT JOBGEN_CONFIG_DIR JOBGEN_RESUME_FROM JOBGEN_DONE_FILE SLURM_JOB_ID SLURM_NODEID SLURM_PROCID SLURM_LOCALID SLURM_RESTART_COUNT SLURMD_NODENAME CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ; do
    if [ -n "${!name+set}" ]; then export "APPTAINERENV_$name=${!name}"; fi
  done
  exec apptainer exec --nv --no-home --bind /lustre/shared:/shared --bind /lustre/data:/data:ro --bind /tmp/jobgen-"$JOBGEN_JOB_ID"/scratch2:/local /images/train.sif bash "$JOBGEN_CONFIG_DIR/program.sh" "$1"
}

case $1 in
  train) train ;;
  contain) contain "$2" ;;
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
    trap - TERM TERM
    # Once, as launchers take a second one for impatience; and not through srun, which would kill the step at once.
    scancel --signal=TERM "$SLURM_JOB_ID" || exit 0
    sleep 135
    tell KILL "$step" || exit 0
  ) </dev/null >/dev/null 2>&1 &
  watcher=$!
}
no_more_signals() {
  trap '' TERM
  if [ -n "$watcher" ]; then kill "$watcher" 2>/dev/null || true; fi
}
trap on_signal TERM
preempted() { [[ $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null) =~ PreemptTime=[0-9] ]]; }
requeue() { # Slurm itself restarts a job after preemption and node failure only, and not if it ended in time
  if (( JOBGEN_ATTEMPT >= 2 )); then
    say "2 restarts are used up"
    return 0
  fi
  say "requeue: $1"
  trap - TERM TERM
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

run --nodes=2 --ntasks=2 --ntasks-per-node=1 mkdir -p -- /tmp/jobgen-"$JOBGEN_JOB_ID"/scratch2 || leave "$?"
status=0
run --nodes=2 --ntasks=2 --ntasks-per-node=1 bash "$job_dir/program.sh" contain train || status=$?
if [ -e "$job_dir/done" ]; then
  say "done"
elif (( status != 0 )) || [ -n "$signalled$ended" ] || preempted; then
  leave "$status"
fi
no_more_signals
signalled='' ended=''
clean
say "finished"
