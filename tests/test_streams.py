"""Where output goes: files, pipes, devices, closed streams, and locales."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SPEC = EXAMPLES / "llama-3.1-8b-lora.yaml"
RENDER = ("render", str(SPEC), "--target", "slurm")


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60} | more
    return subprocess.run([sys.executable, "-m", "jobgen.cli", *arguments], **given)  # type: ignore[call-overload, no-any-return]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """Not replaced: the same holds of /dev/null, which root could take from the whole machine."""
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run(*RENDER, "-o", str(pipe)).returncode == 0
    if not pipe.is_fifo():
        pytest.fail("the pipe was replaced by a file")
    reader.join(10)
    assert got[0].startswith(b"#!")


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for _ in range(2):
        assert run(*RENDER, "-o", str(tmp_path / "link")).returncode == 0
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "file").read_bytes().startswith(b"#!")


@pytest.mark.parametrize("path", ("", "folder", "folder/", "new/", "missing/file"))
def test_what_cannot_be_written_is_status_2_and_leaves_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    ended = run(*RENDER, "-o", path and f"{tmp_path}/{path}")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.startswith(b"jobgen: cannot write")
    assert [str(found.relative_to(tmp_path)) for found in tmp_path.rglob("*")] == ["folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "file").chmod(0o444)
    assert run(*RENDER, "-o", str(tmp_path / "file")).returncode == 2
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", (RENDER, ("check", str(SPEC)), ("explain", "--all")))
def test_output_that_cannot_be_written_is_said_so(command: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        ended = run(*command, stdout=full)
    assert ended.returncode == 2
    assert ended.stderr == b"jobgen: cannot write the output: No space left on device\n"


def test_closed_streams() -> None:
    closed = subprocess.run(["sh", "-c", f"exec '{sys.executable}' -m jobgen.cli gpus >&-"], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (closed.returncode, closed.stderr) == (2, b"jobgen: standard output is closed\n")
    closed = subprocess.run(["sh", "-c", f"exec '{sys.executable}' -m jobgen.cli check - <&-"], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (closed.returncode, closed.stderr) == (2, b"jobgen: standard input is closed\n")


def test_half_read_output_is_no_failure() -> None:
    piped = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m jobgen.cli schema | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (piped.stdout, piped.stderr) == (b"0\n", b"")


@pytest.mark.parametrize("locale", ({"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}))
def test_output_is_utf8_in_any_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.read_text(encoding="utf-8").replace("  time_limit:", "  env: {WORD: ж}\n  time_limit:").replace("./configs", str(EXAMPLES / "configs")), encoding="utf-8")
    for command in (("render", "--target", "slurm"), ("render", "--target", "k8s"), ("show",)):
        ended = run(command[0], str(spec), *command[1:], env=os.environ | locale)
        assert ended.returncode == 0, ended.stderr.decode()
        assert "ж" in ended.stdout.decode("utf-8")
