"""A state folder of the test's own, and a cluster of shell lines."""

import pytest

from jobgen.schedulers import slurm


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("JOBGEN_STATE", str(folder))
    return folder


class Site:
    """A cluster of shell lines."""

    def __init__(self, folder):
        self.folder, self.calls = folder, folder / "calls"
        self.has("scontrol", "echo 'ClusterName             = here'")
        self.has("sbatch", "echo 41")
        self.has("squeue", "true")
        self.has("sacct", "true")
        self.has("scancel", "true")

    def has(self, name, lines):
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.calls}\n{lines}\n')
        path.chmod(0o755)

    def lacks(self, name):
        (self.folder / name).unlink()

    def called(self, name):
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] == name] if self.calls.exists() else []

    def queue(self, *rows):
        self.has("squeue", "cat <<'END'\n" + "\n".join(rows) + "\nEND")


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(slurm, "SETTLE_SECONDS", 0.2)
    slurm.configuration.cache_clear()
    yield Site(folder)
    slurm.configuration.cache_clear()
