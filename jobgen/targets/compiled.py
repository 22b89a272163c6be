"""Generated from templates/ by `python -m jobgen.targets.compile`; do not edit."""

# mypy: ignore-errors

CHECKSUM = 3225016536
"""Of the templates this was made from."""


def hosts_host_sh_j2(v, p, s):
    yield '# One attempt on one host; made by jobgen. NODE_RANK, JOBGEN_JOB_ID and JOBGEN_ATTEMPT are set above.\nset -euo pipefail\n\nsay() { printf \'%s jobgen: %s\\n\' "$(date \'+%F %T\')" "$*" >&2; }\n\n# Nothing of the shell that started this may decide how ranks find each other.\nunset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT \\\n  OMP_NUM_THREADS "${!PET_@}" "${!ACCELERATE_@}" "${!TORCHELASTIC_@}" "${!SLURM_@}"\nexport NODE_RANK JOBGEN_JOB_ID JOBGEN_ATTEMPT\n'
    yield p(s('resources.hosts'))
    yield '\nexport MASTER_ADDR='
    yield p(v['master'])
    yield '\nexport MASTER_PORT='
    yield p(v['port'])
    yield '\n'
    yield p(s())
    yield '\n'
    for l_folder in v['base']:
        yield 'cd -- '
        yield p(l_folder)
        yield '\n'
    yield '\n'
    yield p(s('checkpoint.directory'))
    yield '\ncheckpoints='
    yield p(v['checkpoints'])
    yield '\njob_dir=$checkpoints/.jobgen/$JOBGEN_JOB_ID/$NODE_RANK\nexport JOBGEN_CONFIG_DIR=$job_dir JOBGEN_DONE_FILE=$job_dir/done\nmkdir -p -- "$job_dir"\nrm -f -- "$job_dir/done"\n'
    yield p(s())
    yield '\n\n'
    yield from shell_checkpoints_sh_j2(v, p, s)
    if v['fingerprint']:
        yield 'same_run\n'
    if v['quarantine']:
        yield 'if [ "$NODE_RANK" = 0 ]; then put_half_written_aside; fi\n'
    if v['pattern']:
        yield 'started_from=$(newest)\n'
    else:
        yield ': >"$job_dir/started"\n'
    yield p(s('checkpoint.resume'))
    yield "\nexport JOBGEN_RESUME_FROM=''\n"
    for l_line in v['resume']:
        yield p(l_line)
        yield '\n'
    yield 'say "attempt $JOBGEN_ATTEMPT, node $NODE_RANK${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"\n'
    yield p(s())
    yield '\n\n'
    yield from shell_files_sh_j2(v, p, s)
    yield 'cat >"$job_dir/program.sh" <<'
    yield p(v['program'].open)
    yield '\n'
    yield p(v['program'].content)
    yield '\n'
    yield p(v['program'].close)
    yield '\n\ntell() { # a signal to a process and to all that it started\n  local child\n  for child in $(cat "/proc/$2"/task/*/children 2>/dev/null || pgrep -P "$2"); do\n    tell "$1" "$child" || true\n  done\n  kill "-$1" "$2" 2>/dev/null\n}\n'
    yield from shell_steps_sh_j2(v, p, s)
    yield 'if [ -n "${lifeline:-}" ]; then # when whoever started this is gone, so is this\n  (\n    trap - USR1 TERM INT HUP\n    while read -r _; do :; done\n    kill -TERM $$\n  ) <&"$lifeline" >/dev/null 2>&1 &\nfi\n'
    if v['limit_seconds']:
        yield p(s('launch.time_limit'))
        yield '\n(\n  trap - USR1 TERM INT HUP\n  sleep '
        yield p(v['limit_seconds'])
        yield '\n  kill -USR1 $$ 2>/dev/null\n) </dev/null >/dev/null 2>&1 &\nlimiter=$!\n'
        yield p(s())
        yield '\n'
    yield '\n# Exit status: 0 done; 75 another attempt goes on from here; else it failed for good.\nleave() {\n  local status=$1\n  no_more_signals\n'
    if v['limit_seconds']:
        yield '  kill "$limiter" 2>/dev/null || true\n'
    yield '  if (( status != 0 )) || [ -n "$signalled$ended" ]; then\n    if [ -e "$job_dir/done" ]; then\n      status=0\n    elif [ "$NODE_RANK" = 0 ] && { [ -n "$signalled" ] || progressed; }; then\n      status=75\n    elif (( status == 0 )); then\n      status=75\n    fi\n  fi\n'
    for l_step in v['last']:
        yield '  signalled=\'\' ended=\'\'\n  if (( status == 0 )) && [ "$NODE_RANK" = 0 ]; then '
        yield p(l_step)
        yield ' || status=$?; fi\n'
    yield '  # the watchers of this shell would keep its output open\n  trap \'\' TERM\n  tell_children\n  exit "$status"\n}\ntell_children() {\n  local child\n  for child in $(jobs -p); do kill -TERM "$child" 2>/dev/null || true; done\n}\n\n'
    if v['prepare']:
        yield 'if [ "$NODE_RANK" = 0 ]; then\n  '
        yield p(v['prepare'])
        yield ' || leave "$?"\n'
        if v['rendezvous']:
            yield 'else # the launcher of the first host opens its port when that is done\n  until (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null || [ -n "$ended" ]; do sleep 2; done\n'
        yield 'fi\n'
    for l_step in v['steps']:
        yield p(l_step)
        yield ' || leave "$?"\n'
    yield 'status=0\n'
    yield p(v['train'])
    yield ' || status=$?\nleave "$status"\n'


def hosts_start_sh_j2(v, p, s):
    yield '#!/bin/bash\n'
    if v['remote']:
        yield '# Starts the job on all its hosts by ssh:   bash FILE\n# or on one, by hand, on each of them:      bash FILE --node-rank N\n'
    else:
        yield '# Runs the job on this machine:   bash FILE\n'
    for l_note in v['notes']:
        yield '# '
        yield p(l_note)
        yield '\n'
    yield 'set -euo pipefail\n\nsay() { printf \'%s jobgen: %s\\n\' "$(date \'+%F %T\')" "$*" >&2; }\n\n'
    yield p(s('resources.hosts'))
    yield '\nhosts=('
    for l_host in v['hosts']:
        yield ' '
        yield p(l_host)
    yield ' )\n'
    yield p(s())
    yield '\n'
    for l_secret in v['secrets']:
        yield p(l_secret)
        yield '\n'
    yield '\n# What one host is told: its rank and the attempt, its secrets (by the pipe only), then the script.\nfor_host() { # rank attempt lifeline\n  printf \'NODE_RANK=%q JOBGEN_JOB_ID=%q JOBGEN_ATTEMPT=%q lifeline=%q\\n\' "$1" "$run_id" "$2" "$3"\n'
    for l_name in v['secret_names']:
        yield "  printf 'export "
        yield p(l_name)
        yield '=%q\\n\' "$'
        yield p(l_name)
        yield '"\n'
    yield '  cat <<'
    yield p(v['script'].open)
    yield '\n'
    yield p(v['script'].content)
    yield '\n'
    yield p(v['script'].close)
    yield '\n}\n\nrun_id=$(date +%Y%m%d-%H%M%S)-$$\nrank='
    yield p(v['rank'])
    yield '\nwhile [ $# -gt 0 ]; do\n  case $1 in\n    --node-rank) rank=${2:?--node-rank needs a number}; shift 2 ;;\n    --node-rank=*) rank=${1#*=}; shift ;;\n    *) echo "unknown option $1; known: --node-rank N" >&2; exit 2 ;;\n  esac\ndone\nif [ -n "$rank" ]; then\n  if ! [[ $rank =~ ^[0-9]+$ ]] || (( rank >= ${#hosts[@]} )); then\n    echo "--node-rank $rank: there are nodes 0 to $(( ${#hosts[@]} - 1 ))" >&2\n    exit 2\n  fi\n  exec bash <(for_host "$rank" 0 \'\')\nfi\n\n'
    if v['remote']:
        yield p(s('resources.hosts'))
        yield '\n# The script arrives on standard input, up to a NUL; what stays open after it is the lifeline.\nreach() { # host\n  exec ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=8 -- "$1" \\\n    \'exec bash -c \'\\\'\'IFS= read -r -d "" script && exec 3<&0 </dev/null && eval "$script"\'\\\'\'\'\n}\n'
        yield p(s())
        yield '\n'
    else:
        yield 'reach() { exec bash -c \'IFS= read -r -d "" script && exec 3<&0 </dev/null && eval "$script"\'; }\n'
    yield '\npipes=$(mktemp -d)\npids=() lines=() stopped=\'\'\nhang_up() { # the hosts end when their lifeline does\n  local line\n  for line in ${lines[@]+"${lines[@]}"}; do exec {line}>&-; done\n  lines=()\n}\nstop() {\n  stopped=1\n  say "ended from outside"\n  hang_up\n}\ntrap stop TERM INT HUP\ntrap \'rm -rf -- "$pipes"\' EXIT\n\n# All hosts together; the status is the first host\'s, or that of one that failed when the first did not.\nattempt() {\n  local index line status=0 code\n  pids=()\n  for index in "${!hosts[@]}"; do\n    rm -f -- "$pipes/$index"\n    mkfifo -- "$pipes/$index"\n    reach "${hosts[index]}" <"$pipes/$index" &\n    pids+=($!)\n  done\n  for index in "${!hosts[@]}"; do\n    exec {line}>"$pipes/$index"\n    lines+=("$line")\n    (for_host "$index" "$1" 3; printf \'\\0\') >&"$line" || true # in a shell of its own: the host may be gone\n  done\n  local left=("${!hosts[@]}") still\n  while (( ${#left[@]} )); do\n    still=()\n    for index in "${left[@]}"; do\n      if kill -0 "${pids[index]}" 2>/dev/null; then still+=("$index"); continue; fi\n      if wait "${pids[index]}"; then code=0; else code=$?; fi\n      if (( code != 0 )); then\n        say "${hosts[index]} ended with $code"\n        hang_up\n      fi\n      if (( index == 0 && code != 0 )) || (( status == 0 )); then status=$code; fi\n    done\n    left=(${still[@]+"${still[@]}"})\n    if (( ${#left[@]} )); then sleep 0.5 || true; fi\n  done\n  hang_up\n  return "$status"\n}\n\nnumber=0\nwhile :; do\n  status=0\n  attempt "$number" || status=$?\n  if (( status == 0 )); then\n    say "finished"\n    exit 0\n  fi\n  if [ -n "$stopped" ]; then exit 143; fi\n  if (( status != 75 )); then exit "$status"; fi\n'
    yield p(s('launch.restarts'))
    yield '\n  if (( number >= '
    yield p(v['restarts'])
    yield ' )); then\n    say "not done, and '
    yield p(v['restarts'])
    yield ' restarts (launch.restarts) are used up"\n    exit 75\n  fi\n'
    yield p(s())
    yield '\n  number=$((number + 1))\ndone\n'


def k8s_inside_sh_j2(v, p, s):
    yield 'set -euo pipefail\n\nsay() { printf \'jobgen: %s\\n\' "$*" >&2; }\n\n'
    yield p(s('resources.nodes'))
    yield '\n'
    for l_line in v['identity']:
        yield p(l_line)
        yield '\n'
    yield p(s())
    yield '\n'
    for l_line in v['environment']:
        yield p(l_line)
        yield '\n'
    yield '[ -w "${HOME:-/}" ] || export HOME=/jobgen/home\nmkdir -p /jobgen/home "$TRITON_CACHE_DIR" "$XDG_CACHE_HOME"\nrm -f /dev/shm/nccl-* /dev/shm/torch_* # left by a container that was killed\n'
    for l_folder in v['folders']:
        yield 'mkdir -p -- '
        yield p(l_folder)
        yield '\n'
    if v['checkpoints']:
        yield p(s('checkpoint.directory'))
        yield '\ncheckpoints='
        yield p(v['checkpoints'])
        yield '\ntrace=$checkpoints/.jobgen/attempt-$JOBGEN_ATTEMPT\nmkdir -p -- "$trace"\nexport TORCH_FR_DUMP_TEMP_FILE=$trace/nccl_trace_rank_ TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$trace/nccl_trace_rank_\n'
        yield p(s())
        yield '\n# An operator may delete pods as soon as the job has ended, and their output with them: the last of it stays here.\nrm -rf /jobgen/output /jobgen/ranks\nmkfifo /jobgen/output\ntail -c '
        yield p(v['kept'])
        yield ' </jobgen/output >/jobgen/last &\nkeeper=$!\nexec 5>/jobgen/output # held by each tee from its birth on: a fifo without a writer would end its reader, and the next writer would wait\nexec 3>&1 4>&2 > >(exec tee -a /dev/fd/5) 2> >(exec tee -a /dev/fd/5 >&2) 5>&-\nkeep_output() {\n  status=$?\n  exec >&3 2>&4\n  for (( left = 50; left > 0; left-- )); do # a process that outlives the launcher may still hold the output\n    kill -0 "$keeper" 2>/dev/null || break\n    sleep 0.1\n  done\n  if [ "$status" != 0 ] && [ -w /dev/termination-log ]; then # the processes\' own words rather than their launcher\'s\n    { grep -a \'^\\[default\' /jobgen/last || true; } | tail -c 3000 >/dev/termination-log\n  fi\n  mkdir -p -- "$checkpoints/.jobgen/output" && cp -- /jobgen/last "$checkpoints/.jobgen/output/$JOBGEN_JOB_ID.$JOBGEN_ATTEMPT.$NODE_RANK" || true\n  exit "$status"\n}\ntrap keep_output EXIT\n'
        yield from shell_checkpoints_sh_j2(v, p, s)
    if v['stage']:
        yield '\ncopy() {\n  if [ -d "$1" ]; then\n    mkdir -p -- "$2"\n    cp -a -u -- "$1/." "$2/"\n  else\n    mkdir -p -- "$(dirname -- "$2")"\n    cp -a -u -- "$1" "$2"\n  fi\n}\n'
        for l_pair in v['stage']:
            yield 'copy '
            yield p(l_pair)
            yield '\n'
    yield "set +u # what follows is not only jobgen's own\n"
    for l_line in v['python']:
        yield p(l_line)
        yield '\n'
    yield '\nif [ "$NODE_RANK" = 0 ]; then\n  say "attempt $JOBGEN_ATTEMPT"\n'
    if (v['checkpoints'] and v['fingerprint']):
        yield '  same_run\n'
    if (v['checkpoints'] and v['quarantine']):
        yield '  put_half_written_aside\n'
    if v['prepare']:
        yield p(s('launch.prepare'))
        yield '  (\n'
        for l_line in v['prepare']:
            yield p(l_line)
            yield '\n'
        yield '  )\n'
        yield p(s())
    if (v['prepare'] and (v['nodes'] > 1)):
        yield 'else # the first node\'s launcher opens its port when all this is done\n  until (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do sleep 2; done\n'
    yield 'fi\n'
    yield p(s('checkpoint.resume'))
    yield '\n'
    if ((v['checkpoints'] and v['pattern']) and v['resume']):
        yield 'started_from=$(newest)\n'
    yield "export JOBGEN_RESUME_FROM=''\n"
    for l_line in v['resume']:
        yield p(l_line)
        yield '\n'
    yield '[ -z "$JOBGEN_RESUME_FROM" ] || say "from $JOBGEN_RESUME_FROM"\n'
    yield p(s('launch'))
    yield '\n\ncommand=(\n'
    for l_word in v['words']:
        yield '  '
        yield p(l_word)
        yield '\n'
    yield ')\n'
    if v['more']:
        yield p(s('checkpoint.resume'))
        yield '\nif [ -n "$JOBGEN_RESUME_FROM" ]; then\n  command+=('
        for l_word in v['more']:
            yield ' '
            yield p(l_word)
        yield ' )\nfi\n'
        yield p(s('launch'))
        yield '\n'
    if v['words_after']:
        yield 'command+=(\n'
        for l_word in v['words_after']:
            yield '  '
            yield p(l_word)
            yield '\n'
        yield ')\n'
    yield 'child=\'\' ended=\'\'\ntrap \'ended=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true\' TERM INT\n"${command[@]}" &\nchild=$!\n[ -z "$ended" ] || kill -TERM "$child" 2>/dev/null || true\nwhile :; do\n  if wait "$child"; then status=0; else status=$?; fi\n  kill -0 "$child" 2>/dev/null || break # a trapped signal makes wait return early\ndone\ntrap - TERM INT\n[ "$status" = 0 ] || exit "$status"\n'
    if v['finish']:
        yield '[ "$NODE_RANK" = 0 ] || exit 0\n'
        yield p(s('launch.finish'))
        yield '\n'
        for l_line in v['finish']:
            yield p(l_line)
            yield '\n'


def shell_checkpoints_sh_j2(v, p, s):
    yield p(s('checkpoint.resume'))
    yield '\n'
    if v['pattern']:
        if v['tracker']:
            yield '# The newest complete checkpoint: the one that the tracker names, which is written after it.\nnewest() {\n  local folder name step\n  [ -r "$checkpoints"/'
            yield p(v['tracker'])
            yield ' ] || return 0\n  name=$(< "$checkpoints"/'
            yield p(v['tracker'])
            yield ')\n  for folder in "$checkpoints"/'
            yield p(v['pattern'])
            yield '; do\n    step=${folder##*[!0-9]}\n    if [ "${folder##*/}" = "$name" ] || { [[ $name$step =~ ^[0-9]+$ ]] && [ -n "$step" ] && (( 10#$step == 10#$name )); }; then\n      printf \'%s\' "${folder#"$checkpoints"/}"\n      return 0\n    fi\n  done\n}\n'
        else:
            yield '# The newest complete checkpoint'
            if v['marker']:
                yield ': a half-written one has no marker file yet and is passed over'
            yield '.\nnewest() {\n  local folder step best=\'\' most=-1\n  for folder in "$checkpoints"/'
            yield p(v['pattern'])
            yield '; do\n    [ -e "$folder"'
            if v['marker']:
                yield '/'
                yield p(v['marker'])
            yield ' ] || continue\n'
            if v['interrupted']:
                yield '    [ ! -e "$folder"/'
                yield p(v['interrupted'])
                yield ' ] || continue\n'
            yield '    step=${folder##*[!0-9]}\n    if [ -n "$step" ] && (( 10#$step > most )); then\n      most=$((10#$step)) best=${folder#"$checkpoints"/}\n    fi\n  done\n  printf \'%s\' "$best"\n}\n'
        if v['quarantine']:
            yield '# The framework takes the highest number, complete or not: half-written checkpoints are put aside.\nput_half_written_aside() {\n  local folder\n  for folder in "$checkpoints"/'
            yield p(v['pattern'])
            yield '; do\n    if [ -d "$folder" ] && { [ ! -e "$folder"/'
            yield p(v['marker'])
            yield ' ]'
            if v['interrupted']:
                yield ' || [ -e "$folder"/'
                yield p(v['interrupted'])
                yield ' ]'
            yield '; }; then\n      say "${folder##*/} is half-written: moved to .jobgen/incomplete"\n      mkdir -p -- "$checkpoints/.jobgen/incomplete"\n      mv -- "$folder" "$checkpoints/.jobgen/incomplete/${folder##*/}.$JOBGEN_JOB_ID.$JOBGEN_ATTEMPT"\n    fi\n  done\n}\n'
    if v['requeue']:
        yield '# Whether this attempt brought training forward: '
        if v['pattern']:
            yield 'there is a newer checkpoint'
        else:
            yield 'something was written beside the checkpoints'
        yield '.\nprogressed() {\n'
        if v['pattern']:
            yield '  [ "$(newest)" != "$started_from" ]\n'
        else:
            yield '  [ -n "$(find "$checkpoints" -mindepth 1 -maxdepth 2 -path "$checkpoints/.jobgen" -prune -o -newer "$job_dir/started" -print -quit)" ]\n'
        yield '}\n'
    if v['fingerprint']:
        yield '# A folder belongs to one model and batch; the checkpoints of another cannot be continued.\nsame_run() {\n  local mark=$checkpoints/.jobgen/run\n  if [ ! -e "$mark" ]; then\n    printf \'%s\\n\' '
        yield p(v['fingerprint'])
        yield ' >"$mark.$HOSTNAME.$$"\n    mv -- "$mark.$HOSTNAME.$$" "$mark" # at once: other nodes read it now\n  fi\n  if [ "$(< "$mark")" != '
        yield p(v['fingerprint'])
        yield ' ]; then\n    say "$checkpoints holds the run of another model or batch: use another checkpoint.directory, or remove $mark"\n    return 1\n  fi\n}\n'
    yield p(s())
    yield '\n'


def shell_files_sh_j2(v, p, s):
    for l_file in v['files']:
        if l_file.here:
            yield 'cat >"$job_dir"/'
            yield p(l_file.name)
            yield ' <<'
            yield p(l_file.open)
            yield '\n'
            yield p(l_file.content)
            yield '\n'
            yield p(l_file.close)
            yield '\n'
        else:
            yield "printf '%s' "
            yield p(l_file.content)
            yield ' >"$job_dir"/'
            yield p(l_file.name)
            yield '\n'
        if l_file.executable:
            yield 'chmod +x "$job_dir"/'
            yield p(l_file.name)
            yield '\n'


def shell_program_sh_j2(v, p, s):
    yield '#!/bin/bash\n# What every node runs'
    if v['container']:
        yield ' (inside the container)'
    yield '; made by jobgen. Argument: the step.\nset -eo pipefail\n\nenvironment() {\n'
    if (((not v['defaults']) and (not v['chosen'])) and (not v['provider'])):
        yield '  true\n'
    for l_variable in v['defaults']:
        yield '  export '
        yield p(l_variable)
        yield '\n'
    if v['provider']:
        yield p(s('resources.fabric'))
        yield "  # the provider's own settings; "
        yield p(v['provider'])
        yield " is not jobgen's to repeat\n"
        for l_line in v['provider_wait']:
            yield '  '
            yield p(l_line)
            yield '\n'
        yield '  # shellcheck disable=SC1090,SC1091\n  . '
        yield p(v['provider'])
        yield '\n'
        yield p(s())
    for l_variable in v['chosen']:
        yield '  export '
        yield p(l_variable)
        yield '\n'
    yield '}\n\nenter() {\n'
    for l_line in v['checks']:
        yield '  '
        yield p(l_line)
        yield '\n'
    for l_line in v['setup']:
        yield '  '
        yield p(l_line)
        yield '\n'
    for l_line in v['identity']:
        yield '  '
        yield p(l_line)
        yield '\n'
    for l_line in v['python']:
        yield '  '
        yield p(l_line)
        yield '\n'
    yield '  environment\n'
    for l_folder in v['directory']:
        yield '  cd -- '
        yield p(l_folder)
        yield '\n'
    yield '}\n\ntrain() {\n'
    if v['survived']:
        yield "  # The launcher must survive this signal; a program that handles it still gets it.\n  trap '' "
        yield p(v['survived'])
        yield '\n'
    yield '  enter\n  local command=(\n'
    for l_word in v['words']:
        yield '    '
        yield p(l_word)
        yield '\n'
    yield '  )\n'
    if v['resume']:
        yield p(s('checkpoint.resume'))
        yield '  if [ -n "$JOBGEN_RESUME_FROM" ]; then\n    command+=('
        for l_word in v['resume']:
            yield ' '
            yield p(l_word)
        yield ' )\n  fi\n'
        yield p(s())
    if v['words_after']:
        yield '  command+=(\n'
        for l_word in v['words_after']:
            yield '    '
            yield p(l_word)
            yield '\n'
        yield '  )\n'
    if v['preflight']:
        yield p(s('resources.fabric'))
        yield '  # Slurm hands on the soft limit of the shell that submitted; the node\'s own is the hard one.\n  ulimit -S -l "$(ulimit -H -l)" 2>/dev/null || true\n  if [ "$(ulimit -l)" != unlimited ] && [ "${SLURM_LOCALID:-0}" = 0 ]; then\n    printf \'jobgen: warning: %s may lock %s KiB of memory (ulimit -l), not unlimited: \' "${SLURMD_NODENAME:-$HOSTNAME}" "$(ulimit -l)" >&2\n    echo '
        yield p(v['preflight'])
        yield ' >&2\n  fi\n'
        yield p(s())
    yield '  exec '
    for l_word in v['limit']:
        yield p(l_word)
        yield ' '
    yield '"${command[@]}"\n}\n'
    if v['prepare']:
        yield '\nprepare() {\n  enter\n'
        for l_line in v['prepare']:
            yield '  '
            yield p(l_line)
            yield '\n'
        yield '}\n'
    if v['stage']:
        yield '\ncopy() {\n  if [ -d "$1" ]; then\n    mkdir -p -- "$2"\n    cp -a -u -- "$1/." "$2/"\n  else\n    mkdir -p -- "$(dirname -- "$2")"\n    cp -a -u -- "$1" "$2"\n  fi\n}\n\nstage() {\n'
        for l_pair in v['stage']:
            yield '  copy '
            yield p(l_pair)
            yield '\n'
        yield '}\n'
    if v['finish']:
        yield '\nfinish() {\n  enter\n'
        for l_line in v['finish']:
            yield '  '
            yield p(l_line)
            yield '\n'
        yield '}\n'
    if v['execute']:
        yield '\n# On the node itself: the same step inside the container, with the variables it needs.\ncontain() {\n'
        if v['survived']:
            yield "  trap '' "
            yield p(v['survived'])
            yield '\n'
        for l_line in v['host_setup']:
            yield '  '
            yield p(l_line)
            yield '\n'
        yield '  local name\n  for name in '
        for l_name in v['carried']:
            yield p(l_name)
            yield ' '
        yield '; do\n    if [ -n "${!name+set}" ]; then export "APPTAINERENV_$name=${!name}"; fi\n  done\n  exec '
        for l_word in v['execute']:
            yield p(l_word)
            yield ' '
        yield 'bash "$JOBGEN_CONFIG_DIR/program.sh" "$1"\n}\n'
    if (v['host_setup'] and (not v['execute'])):
        yield '\nsetup() {\n  set -eo pipefail\n'
        for l_line in v['host_setup']:
            yield '  '
            yield p(l_line)
            yield '\n'
        yield '}\n'
    yield '\ncase $1 in\n  train) train ;;\n'
    if v['prepare']:
        yield '  prepare) prepare ;;\n'
    if v['stage']:
        yield '  stage) stage ;;\n'
    if v['finish']:
        yield '  finish) finish ;;\n'
    if v['execute']:
        yield '  contain) contain "$2" ;;\n'
    if (v['host_setup'] and (not v['execute'])):
        yield '  setup) setup ;;\n'
    yield '  *) echo "unknown step $1" >&2; exit 2 ;;\nesac\n'


def shell_steps_sh_j2(v, p, s):
    yield '# Steps run in the background: bash would deliver no signal while one runs in the foreground.\nstep=\'\' signalled=\'\' ended=\'\' watcher=\'\'\nrun() {\n  local status\n  if [ -n "$signalled$ended" ]; then return 143; fi\n  '
    yield p(v['start'])
    yield '"$@" </dev/null &\n  step=$!\n  while :; do\n    if wait "$step"; then status=0; else status=$?; fi\n    kill -0 "$step" 2>/dev/null || break # a trapped signal makes wait return early\n  done\n  step=\'\'\n  return "$status"\n}\n'
    yield p(s('slurm.signal_before'))
    yield '\n# Ahead of the end: the program may save and leave, for '
    yield p(v['patience'])
    yield ' s; then it is ended.\non_signal() {\n  signalled=1\n  say "time is up for this attempt: telling the program"\n  if [ -z "$step" ] || [ -n "$watcher" ]; then return 0; fi\n  (\n    trap - '
    yield p(v['signal'])
    yield ' TERM\n'
    if v['by_term']:
        yield '    # Once, as launchers take a second one for impatience; and not through srun, which would kill the step at once.\n    scancel --signal=TERM "$SLURM_JOB_ID" || exit 0\n    sleep '
        yield p(v['patience'])
        yield '\n'
    else:
        yield '    for (( left = '
        yield p(v['patience'])
        yield '; left > 0; left -= '
        yield p(v['interval'])
        yield ' )); do\n      tell '
        yield p(v['signal'])
        yield ' "$step" || exit 0 # again and again: one that comes before its handler is lost\n      sleep '
        yield p(v['interval'])
        yield '\n    done\n    tell TERM "$step" || exit 0\n    sleep '
        yield p(v['grace'])
        yield '\n'
    yield '    tell KILL "$step" || exit 0\n  ) </dev/null >/dev/null 2>&1 &\n  watcher=$!\n}\n'
    if (not v['by_term']):
        yield 'on_term() {\n  ended=1\n  say "ended from outside"\n  if [ -n "$step" ]; then tell TERM "$step" || true; fi\n}\n'
    yield "no_more_signals() {\n  trap '' "
    yield p(v['signal'])
    yield '\n  if [ -n "$watcher" ]; then kill "$watcher" 2>/dev/null || true; fi\n}\ntrap on_signal '
    yield p(v['signal'])
    yield '\n'
    if (not v['by_term']):
        yield 'trap on_term TERM'
        if v['interrupt']:
            yield ' INT HUP'
        yield '\n'
    yield p(s())
    yield '\n'


def slurm_job_sh_j2(v, p, s):
    yield '#!/bin/bash\n'
    for l_directive in v['directives']:
        yield '#SBATCH '
        yield p(l_directive)
        yield '\n'
    for l_note in v['notes']:
        yield '# '
        yield p(l_note)
        yield '\n'
    yield 'set -euo pipefail\n\nsay() { printf \'%s jobgen: %s\\n\' "$(date \'+%F %T\')" "$*" >&2; }\n\n# Nothing of the shell that submitted this may decide how ranks find each other.\nunset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT \\\n  OMP_NUM_THREADS "${!PET_@}" "${!ACCELERATE_@}" "${!TORCHELASTIC_@}" "${!JOBGEN_@}"\nexport SLURM_EXPORT_ENV=ALL\n'
    for l_secret in v['secrets']:
        yield p(l_secret)
        yield '\n'
    yield '\nexport JOBGEN_JOB_ID=$SLURM_JOB_ID JOBGEN_ATTEMPT=${SLURM_RESTART_COUNT:-0}\n'
    if v['capped']:
        yield p(s('launch.restarts'))
        yield '\nif (( JOBGEN_ATTEMPT > '
        yield p(v['restarts'])
        yield ' )); then\n  say "this is restart $JOBGEN_ATTEMPT and launch.restarts is '
        yield p(v['restarts'])
        yield ': giving up"\n  exit 1\nfi\n'
        yield p(s())
        yield '\n'
    yield '\n'
    yield p(s('resources.nodes'))
    yield '\nhosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")\nexport MASTER_ADDR=${hosts%%$\'\\n\'*}'
    yield p(v['suffix'])
    yield '\nexport MASTER_PORT=$(( '
    yield p(v['port'])
    yield ' + SLURM_JOB_ID % 10000 ))\n'
    yield p(s('resources.cpus_per_node'))
    yield '\nexport SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-'
    yield p(v['cpus'])
    yield '}\n'
    yield p(s('checkpoint.directory'))
    yield '\n\ncheckpoints='
    yield p(v['checkpoints'])
    yield '\njob_dir=$checkpoints/.jobgen/$SLURM_JOB_ID\nexport JOBGEN_CONFIG_DIR='
    yield p(v['inside'])
    yield '/.jobgen/$SLURM_JOB_ID\nmkdir -p -- "$job_dir"\nexport JOBGEN_DONE_FILE=$JOBGEN_CONFIG_DIR/done\nrm -f -- "$job_dir/done"\n'
    yield p(s())
    yield '\n\n'
    yield from shell_checkpoints_sh_j2(v, p, s)
    yield p(s('checkpoint.resume'))
    yield '\n'
    if v['fingerprint']:
        yield 'same_run\n'
    if v['quarantine']:
        yield 'put_half_written_aside\n'
    if (v['pattern'] and (v['resume'] or v['requeue'])):
        yield 'started_from=$(newest)\n'
    elif (v['requeue'] and (not v['pattern'])):
        yield ': >"$job_dir/started"\n'
    yield "export JOBGEN_RESUME_FROM=''\n"
    for l_line in v['resume']:
        yield p(l_line)
        yield '\n'
    yield 'say "attempt $JOBGEN_ATTEMPT on ${hosts//$\'\\n\'/ }${JOBGEN_RESUME_FROM:+, from $JOBGEN_RESUME_FROM}"\n'
    yield p(s())
    yield '\n\n'
    yield from shell_files_sh_j2(v, p, s)
    yield 'cat >"$job_dir/program.sh" <<'
    yield p(v['program'].open)
    yield '\n'
    yield p(v['program'].content)
    yield '\n'
    yield p(v['program'].close)
    yield '\n\ntell() { kill "-$1" "$2" 2>/dev/null; } # srun hands it on to every process of the step\n'
    yield from shell_steps_sh_j2(v, p, s)
    yield 'preempted() { [[ $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null) =~ PreemptTime=[0-9] ]]; }\n'
    if v['requeue']:
        yield p(s('launch.restarts'))
        yield '\nrequeue() { # Slurm itself restarts a job after preemption and node failure only, and not if it ended in time\n  if (( JOBGEN_ATTEMPT >= '
        yield p(v['restarts'])
        yield ' )); then\n    say "'
        yield p(v['restarts'])
        yield ' restarts are used up"\n    return 0\n  fi\n  say "requeue: $1"\n  trap - '
        yield p(v['signal'])
        yield ' TERM\n  scontrol requeue "$SLURM_JOB_ID" || return 0\n  sleep 600\n}\n'
        yield p(s())
        yield '\n\n'
    if v['clean']:
        yield 'clean() { timeout 30 '
        yield p(v['clean'])
        yield ' || true; }\n'
    yield 'leave() {\n  no_more_signals\n'
    if v['requeue']:
        yield '  if [ -z "$ended" ] || preempted; then\n    if [ -n "$signalled" ] || preempted; then\n      requeue "the attempt was ended before the training was"\n    elif progressed; then\n      requeue "it failed ($1) after a new checkpoint"\n    else\n      say "it failed ($1) without a new checkpoint, so another attempt would fail too"\n    fi\n  fi\n'
    if v['clean']:
        yield '  clean\n'
    yield '  if (( $1 == 0 )); then exit 75; fi # ended in time, but not done\n  exit "$1"\n}\n\n'
    if v['in_container']:
        yield 'in_container=(\n'
        for l_option in v['in_container']:
            yield '  '
            yield p(l_option)
            yield '\n'
        yield ')\n'
    for l_step in v['steps']:
        yield p(l_step)
        yield ' || leave "$?"\n'
    yield 'status=0\n'
    yield p(v['train'])
    yield ' || status=$?\nif [ -e "$job_dir/done" ]; then\n  say "done"\nelif (( status != 0 )) || [ -n "$signalled$ended" ] || preempted; then\n  leave "$status"\nfi\nno_more_signals\nsignalled=\'\' ended=\'\'\n'
    for l_step in v['last']:
        yield p(l_step)
        yield '\n'
    if v['clean']:
        yield 'clean\n'
    yield 'say "finished"\n'


TEMPLATES = {
    "hosts/host.sh.j2": hosts_host_sh_j2,
    "hosts/start.sh.j2": hosts_start_sh_j2,
    "k8s/inside.sh.j2": k8s_inside_sh_j2,
    "shell/checkpoints.sh.j2": shell_checkpoints_sh_j2,
    "shell/files.sh.j2": shell_files_sh_j2,
    "shell/program.sh.j2": shell_program_sh_j2,
    "shell/steps.sh.j2": shell_steps_sh_j2,
    "slurm/job.sh.j2": slurm_job_sh_j2,
}
