#!/bin/bash
# Starts the job on all its hosts by ssh:   bash FILE
# or on one, by hand, on each of them:      bash FILE --node-rank N
# TrainingArguments hold no model.init, training.objective, training.sequence_length: the program must follow the spec
set -euo pipefail

say() { printf '%s jobgen: %s\n' "$(date '+%F %T')" "$*" >&2; }

hosts=( 10.1.1.1 10.1.1.2 )
export HF_TOKEN="${HF_TOKEN:?is a secret of this job (launch.secrets) and not in the environment of this shell}"

# What one host is told: its rank and the attempt, its secrets (by the pipe only), then the script.
for_host() { # rank attempt lifeline
  printf 'NODE_RANK=%q JOBGEN_JOB_ID=%q JOBGEN_ATTEMPT=%q lifeline=%q\n' "$1" "$run_id" "$2" "$3"
  printf 'export HF_TOKEN=%q\n' "$HF_TOKEN"
  cat <<'END_OF_HOST'
# One attempt on one host; made by jobgen. NODE_RANK, JOBGEN_JOB_ID and JOBGEN_ATTEMPT are set above.
set -euo pipefail

say() { printf '%s jobgen: %s\n' "$(date '+%F %T')" "$*" >&2; }

# Nothing of the shell that started this may decide how ranks find each other.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT \
  OMP_NUM_THREADS "${!PET_@}" "${!ACCELERATE_@}" "${!TORCHELASTIC_@}" "${!SLURM_@}"
export NODE_RANK JOBGEN_JOB_ID JOBGEN_ATTEMPT
export MASTER_ADDR=10.1.1.1
export MASTER_PORT=26179

checkpoints=/shared/ck
job_dir=$checkpoints/.jobgen/$JOBGEN_JOB_ID/$NODE_RANK
export JOBGEN_CONFIG_DIR=$job_dir JOBGEN_DONE_FILE=$job_dir/done
mkdir -p -- "$job_dir"
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
say "attempt $JOBGEN_ATTEMPT, node $NODE_RANK${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"

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
  export JOBGEN_CHECKPOINT_DIR=/shared/ck
}

enter() {
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
  exec "${command[@]}"
}

prepare() {
  enter
  hf download x
}

case $1 in
  train) train ;;
  prepare) prepare ;;
  *) echo "unknown step $1" >&2; exit 2 ;;
esac
END_OF_PROGRAM

tell() { # a signal to a process and to all that it started
  local child
  for child in $(cat "/proc/$2"/task/*/children 2>/dev/null || pgrep -P "$2"); do
    tell "$1" "$child" || true
  done
  kill "-$1" "$2" 2>/dev/null
}
# Steps run in the background: bash would deliver no signal while one runs in the foreground.
step='' signalled='' ended='' watcher=''
run() {
  local status
  if [ -n "$signalled$ended" ]; then return 143; fi
  "$@" </dev/null &
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
trap on_term TERM INT HUP
if [ -n "${lifeline:-}" ]; then # when whoever started this is gone, so is this
  (
    trap - USR1 TERM INT HUP
    while read -r _; do :; done
    kill -TERM $$
  ) <&"$lifeline" >/dev/null 2>&1 &
fi
(
  trap - USR1 TERM INT HUP
  sleep 3420
  kill -USR1 $$ 2>/dev/null
) </dev/null >/dev/null 2>&1 &
limiter=$!

# Exit status: 0 done; 75 another attempt goes on from here; else it failed for good.
leave() {
  local status=$1
  no_more_signals
  kill "$limiter" 2>/dev/null || true
  if (( status != 0 )) || [ -n "$signalled$ended" ]; then
    if [ -e "$job_dir/done" ]; then
      status=0
    elif [ "$NODE_RANK" = 0 ] && { [ -n "$signalled" ] || progressed; }; then
      status=75
    elif (( status == 0 )); then
      status=75
    fi
  fi
  # the watchers of this shell would keep its output open
  trap '' TERM
  tell_children
  exit "$status"
}
tell_children() {
  local child
  for child in $(jobs -p); do kill -TERM "$child" 2>/dev/null || true; done
}

if [ "$NODE_RANK" = 0 ]; then
  run bash "$job_dir/program.sh" prepare || leave "$?"
else # the launcher of the first host opens its port when that is done
  until (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null || [ -n "$ended" ]; do sleep 2; done
fi
status=0
run bash "$job_dir/program.sh" train || status=$?
leave "$status"
END_OF_HOST
}

run_id=$(date +%Y%m%d-%H%M%S)-$$
rank=''
while [ $# -gt 0 ]; do
  case $1 in
    --node-rank) rank=${2:?--node-rank needs a number}; shift 2 ;;
    --node-rank=*) rank=${1#*=}; shift ;;
    *) echo "unknown option $1; known: --node-rank N" >&2; exit 2 ;;
  esac
done
if [ -n "$rank" ]; then
  if ! [[ $rank =~ ^[0-9]+$ ]] || (( rank >= ${#hosts[@]} )); then
    echo "--node-rank $rank: there are nodes 0 to $(( ${#hosts[@]} - 1 ))" >&2
    exit 2
  fi
  exec bash <(for_host "$rank" 0 '')
fi

# The script arrives on standard input, up to a NUL; what stays open after it is the lifeline.
reach() { # host
  exec ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=8 -- "$1" \
    'exec bash -c '\''IFS= read -r -d "" script && exec 3<&0 </dev/null && eval "$script"'\'''
}

pipes=$(mktemp -d)
pids=() lines=() stopped=''
hang_up() { # the hosts end when their lifeline does
  local line
  for line in ${lines[@]+"${lines[@]}"}; do exec {line}>&-; done
  lines=()
}
stop() {
  stopped=1
  say "ended from outside"
  hang_up
}
trap stop TERM INT HUP
trap 'rm -rf -- "$pipes"' EXIT

# All hosts together; the status is the first host's, or that of one that failed when the first did not.
attempt() {
  local index line status=0 code
  pids=()
  for index in "${!hosts[@]}"; do
    rm -f -- "$pipes/$index"
    mkfifo -- "$pipes/$index"
    reach "${hosts[index]}" <"$pipes/$index" &
    pids+=($!)
  done
  for index in "${!hosts[@]}"; do
    exec {line}>"$pipes/$index"
    lines+=("$line")
    (for_host "$index" "$1" 3; printf '\0') >&"$line" || true # in a shell of its own: the host may be gone
  done
  local left=("${!hosts[@]}") still
  while (( ${#left[@]} )); do
    still=()
    for index in "${left[@]}"; do
      if kill -0 "${pids[index]}" 2>/dev/null; then still+=("$index"); continue; fi
      if wait "${pids[index]}"; then code=0; else code=$?; fi
      if (( code != 0 )); then
        say "${hosts[index]} ended with $code"
        hang_up
      fi
      if (( index == 0 && code != 0 )) || (( status == 0 )); then status=$code; fi
    done
    left=(${still[@]+"${still[@]}"})
    if (( ${#left[@]} )); then sleep 0.5 || true; fi
  done
  hang_up
  return "$status"
}

number=0
while :; do
  status=0
  attempt "$number" || status=$?
  if (( status == 0 )); then
    say "finished"
    exit 0
  fi
  if [ -n "$stopped" ]; then exit 143; fi
  if (( status != 75 )); then exit "$status"; fi
  if (( number >= 1 )); then
    say "not done, and 1 restarts (launch.restarts) are used up"
    exit 75
  fi
  number=$((number + 1))
done
