"""Prints its arguments and environment as one line of JSON, byte for byte (surrogates stand for bytes that are no UTF-8)."""

import json
import os
import sys

environment = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()}
print("\nSAID " + json.dumps({"argv": sys.argv[1:], "env": environment, "cwd": os.getcwd()}), flush=True)
