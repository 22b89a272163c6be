"""A job for the submission tests: lasts as long as it is told, ends as it is told, and says what reached it."""

import argparse
import json
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.0)
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--line", default="hello")
options, _ = parser.parse_known_args()
print(f"begin {options.line}", flush=True)
with open(os.path.join(os.environ["JOBGEN_CHECKPOINT_DIR"], "environment.json"), "w") as file:
    json.dump(dict(os.environ), file)
time.sleep(options.seconds)
print(f"end {options.line}", flush=True)
raise SystemExit(options.exit)
