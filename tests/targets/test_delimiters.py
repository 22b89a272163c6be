"""Text of the spec that looks like the end of a here-document ends none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobgen.api import render
from jobgen.spec.document import load_text

SPEC = """\
name: words
model: {{name: Qwen/Qwen3-0.6B}}
training: {{method: full, sequence_length: 512, max_steps: 2}}
resources: {{nodes: 1, gpus_per_node: 1, gpu: h100-80gb, memory_per_node: 200GB}}
checkpoint: {{directory: "{folder}/check points' \\"$(touch pwned)", every_steps: 1, keep: 2}}
launch:
  launcher: python
  command: [sh, -c, 'printf %s "$MARK"']
  setup: ["true <<'X'\\n{word}\\ntouch pwned\\nX"]
  time_limit: 1h
  env: {{MARK: ended}}
  code: "{folder}"
  working_directory: "{folder}"
"""


@pytest.mark.parametrize("word", ("END_OF_PROGRAM", "END_OF_HOST", "END_OF_PROGRAM_2", "END_OF_FILE"))
def test_a_delimiter_in_the_setup_ends_nothing(tmp_path: Path, word: str) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    text = render(load_text(SPEC.format(word=word, folder=folder)), target="local").text
    ended = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "ended"), ended.stderr
    assert not list(tmp_path.rglob("pwned"))
    (mark,) = tmp_path.rglob(".jobgen/run*")
    assert len(mark.read_text().strip()) == 16
