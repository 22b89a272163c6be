"""Prints numbers, one a line, for the tests that follow a job's output: count.py LINES SECONDS_BETWEEN"""

import sys
import time

for number in range(int(sys.argv[1])):
    print(f"number {number}", flush=True)
    time.sleep(float(sys.argv[2]))
