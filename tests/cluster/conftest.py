"""Makes the helpers beside the tests, and those of the targets' tests, importable (pytest imports tests by path)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "targets")]
