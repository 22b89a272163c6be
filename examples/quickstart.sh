#!/bin/sh
# The main job without a cluster, from nothing but Python: checks and renders an example for Slurm, then trains a tiny
# model on this machine's CPU through `jobgen submit`, with a checkpoint every 20 steps.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
say() { printf '\n$ %s\n' "$*"; "$@"; }

.ci/venv .venv
PATH=$here/.venv/bin:$PATH

# PyTorch in an environment of its own: Debian's small CPU build where it can be installed, else PyPI's (several GB).
train=$here/.venv-train
ranks="--set resources.gpus_per_node=2"
if ! "$train/bin/python" -c 'import torch' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    { apt-get install -y -q --no-install-recommends python3-torch python3-venv ||
      { apt-get update -q && apt-get install -y -q --no-install-recommends python3-torch python3-venv; }; } >/dev/null 2>&1 || true
  fi
  if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    /usr/bin/python3 -m venv --system-site-packages "$train"
  else
    python3 -m venv "$train"
    "$train/bin/pip" install -q --disable-pip-version-check torch
  fi
fi
# Debian's PyTorch 1.13 has a torchrun that does not start under its own Python 3.11: one plain process there.
[ -x "$train/bin/torchrun" ] || ranks="--set resources.gpus_per_node=1 --set launch.launcher=python"

say jobgen check examples/qwen2.5-coder-32b-sft.yaml
say jobgen estimate examples/qwen2.5-coder-32b-sft.yaml
say jobgen render examples/qwen2.5-coder-32b-sft.yaml --target slurm -o qwen2.5-coder-32b-sft.sh
# shellcheck disable=SC2086  # several words on purpose
say jobgen submit examples/tiny-local.yaml --watch --set launch.python.venv="$train" $ranks
say ls examples/tiny-run/checkpoints
