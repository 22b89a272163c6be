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
# training.versions does not say which llamafactory runs: written for llamafactory >= 0.9.1 (train_from_scratch, enable_liger_kernel)
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

checkpoints=/shared/ck
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
# The framework takes the highest number, complete or not: half-written checkpoints are put aside.
put_half_written_aside() {
  local folder
  for folder in "$checkpoints"/checkpoint-*; do
    if [ -d "$folder" ] && { [ ! -e "$folder"/trainer_state.json ] || [ -e "$folder"/checkpoint-is-incomplete.txt ]; }; then
      say "${folder##*/} is half-written: moved to .jobgen/incomplete"
      mkdir -p -- "$checkpoints/.jobgen/incomplete"
      mv -- "$folder" "$checkpoints/.jobgen/incomplete/${folder##*/}.$JOBGEN_JOB_ID.$JOBGEN_ATTEMPT"
    fi
  done
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
put_half_written_aside
started_from=$(newest)
export JOBGEN_RESUME_FROM=''
if [ -n "$started_from" ]; then export JOBGEN_RESUME_FROM=/shared/ck/"$started_from"; fi
say "attempt $JOBGEN_ATTEMPT on ${hosts//$'\n'/ }${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"

cat >"$job_dir"/llamafactory.yaml <<'END_OF_FILE'
do_train: true
dataset: alpaca_en_demo
template: qwen
train_from_scratch: true
stage: sft
finetuning_type: full
cutoff_len: 64
packing: false
disable_gradient_checkpointing: true
enable_liger_kernel: false
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
bf16: false
fp16: false
optim: adamw_torch
torch_compile: false
max_steps: 40
output_dir: /shared/ck
save_strategy: steps
save_steps: 5
save_total_limit: 5
save_only_model: false
END_OF_FILE
cat >"$job_dir/program.sh" <<'END_OF_PROGRAM'
#!/bin/bash
# What every node runs; made by jobgen. Argument: the step.
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
  export FORCE_TORCHRUN=1
  export NNODES=2
  export NODE_RANK="$NODE_RANK"
  export NPROC_PER_NODE=2
  export MASTER_ADDR="$MASTER_ADDR"
  export MASTER_PORT="$MASTER_PORT"
  export JOBGEN_CHECKPOINT_DIR=/shared/ck
}

enter() {
  NODE_RANK=$SLURM_NODEID
  environment
}

train() {
  # The launcher must survive this signal; a program that handles it still gets it.
  trap '' USR1
  enter
  local command=(
    llamafactory-cli
    train
    "$JOBGEN_CONFIG_DIR"/llamafactory.yaml
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

status=0
run --nodes=2 --ntasks=2 --ntasks-per-node=1 bash "$JOBGEN_CONFIG_DIR/program.sh" train || status=$?
if [ -e "$job_dir/done" ]; then
  say "done"
elif (( status != 0 )) || [ -n "$signalled$ended" ] || preempted; then
  leave "$status"
fi
no_more_signals
signalled='' ended=''
clean
say "finished"
