#!/bin/sh
# Sets everything up and runs the tests that need no cluster. Arguments go to pytest.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
unset PYTHONDONTWRITEBYTECODE  # tests start hundreds of commands: compile once
.ci/venv .venv dev,plot
exec .venv/bin/python -m pytest "$@"
