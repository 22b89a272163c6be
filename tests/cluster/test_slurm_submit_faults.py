"""Submission under faults on the real Slurm: killed at random moments, a controller that goes away, many at once.

JOBGEN_KILLS sets how many submissions each variant kills (50).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slurm]
HERE = Path(__file__).parent
RUN = f"{os.getpid():x}-{int(time.time()):x}"
"""In every name, so that the accounting of an earlier test is not taken for this one's."""
KILLS = int(os.environ.get("JOBGEN_KILLS", "50"))


def helper(name):
    full = f"jobgen_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, HERE / f"{name}.py")
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@pytest.fixture(scope="session")
def slurm():
    found = helper("slurm_cluster").find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def cli(slurm, tmp_path):
    tmp_path.chmod(0o755)
    one = helper("command_line").CommandLine(tmp_path, slurm.bin)
    yield one
    for name in (r["name"] for r in one.list()):
        slurm.run("scancel", f"--name={name}", check=False)


def jobs_named(slurm, name, since):
    """Every job of that name, queued, running or ended, by both of Slurm's own tellers."""
    queue = slurm.run("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%F").split()
    book = slurm.run("sacct", "--noheader", "--parsable2", "--allocations", f"--name={name}", f"--starttime={since}", "--format=JobID").split()
    return set(queue) | set(book)


@pytest.mark.parametrize("group", [False, True], ids=["jobgen alone", "jobgen and sbatch"])
def test_killed_at_random_moments_a_repeat_neither_loses_nor_doubles(cli, slurm, say, group):
    """Each round kills one submission with SIGKILL, then calls it again."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5))
    held = {"slurm__extra": {"hold": True}}
    begun = time.monotonic()
    cli.submit(cli.spec("warm", **held))
    usual = time.monotonic() - begun
    chance = random.Random(int(group))
    stages = {"before its receipt": 0, "sending": 0, "sent": 0, "ended by itself": 0}
    repeated_times = []
    for turn in range(KILLS):
        name = f"kill{int(group)}-{RUN}-{turn}"
        spec = cli.spec(name, **held)
        process = cli.start("submit", spec, "--target", "slurm", group=True)
        if turn % 2:
            time.sleep(chance.uniform(0.4, 1.1) * usual)
        else:  # in the middle of the call itself, which is short
            while not list((cli.folder / "state" / "jobs").glob(f"{name}-*/receipt.json")) and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.15) * usual)
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        if process.returncode == -signal.SIGKILL:
            receipts = list((cli.folder / "state" / "jobs").glob(f"{name}-*/receipt.json"))
            text = receipts[0].read_text() if receipts else ""
            stages["sent" if '"sent"' in text else "sending" if text else "before its receipt"] += 1
        else:
            stages["ended by itself"] += 1
        begun = time.monotonic()
        handle = cli.submit(spec)
        repeated_times.append(time.monotonic() - begun)
        usual = sorted(repeated_times[-5:])[len(repeated_times[-5:]) // 2]
        assert cli.submit(spec) == handle
        found = jobs_named(slurm, name, since)
        assert len(found) == 1, (name, found, stages)
        assert cli.status(handle)["job_id"] in found
        slurm.run("scancel", *found)
    assert sum(stages.values()) == KILLS
    listed = [record for record in cli.list() if record["name"].startswith("kill")]
    assert len(listed) == KILLS
    assert {record["phase"] for record in listed} == {"cancelled"}
    say(f"{KILLS} submissions killed ({'jobgen and sbatch' if group else 'jobgen alone'}; one takes {usual:.2f} s): {stages}; "
        f"lost 0, doubled 0; repeat {sum(repeated_times) / KILLS:.2f} s on average, {max(repeated_times):.2f} s at most")  # fmt: skip


def test_eight_at_once_are_one_job(cli, slurm, say):
    spec = cli.spec(f"eight-{RUN}", slurm__extra={"hold": True})
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5))
    begun = time.monotonic()
    calls = [cli.start("submit", spec, "--target", "slurm") for _ in range(8)]
    ends = [call.communicate(timeout=120) for call in calls]
    assert [call.returncode for call in calls] == [0] * 8, ends
    assert len({out for out, _ in ends}) == 1
    assert len(jobs_named(slurm, f"eight-{RUN}", since)) == 1
    assert sum("live already" in err for _, err in ends) == 7
    say(f"8 submissions at once: 1 job, {time.monotonic() - begun:.1f} s")


class Controller:
    """slurmctld of the test cluster, frozen, stopped and started by its recorded pid."""

    def __init__(self, root: Path, slurm) -> None:
        self.root, self.slurm = root, slurm
        self.pid_file = root / "run" / "slurmctld.pid"

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def answers(self) -> bool:
        return subprocess.run([str(self.slurm.bin / "scontrol"), "ping"], capture_output=True, text=True, check=False).stdout.count(" UP") >= 1

    def stop(self, number=signal.SIGTERM) -> None:
        """SIGTERM lets it save its state; SIGKILL loses what it took in the last seconds, as Slurm documents."""
        os.kill(self.pid, number)
        while Path(f"/proc/{self.pid}").exists() and "State:\tZ" not in Path(f"/proc/{self.pid}/status").read_text():
            time.sleep(0.05)

    def start(self) -> None:
        """As slurm-up.sh does: in the controller's namespaces, which the kill left behind."""
        namespace = Path("/run/netns/jgctl")
        inside = ["nsenter", f"--net={namespace}", "unshare", "--uts", "sh", "-c", 'hostname jgctl; exec "$@"', "sh"] if namespace.exists() else []
        with (self.root / "log" / "slurmctld.out").open("ab") as log:
            process = subprocess.Popen([*inside, "/usr/sbin/slurmctld", "-D"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.pid_file.write_text(f"{process.pid}\n")
        deadline = time.monotonic() + 60
        while not self.answers():
            assert time.monotonic() < deadline, "slurmctld does not come back"
            time.sleep(0.2)


@pytest.fixture
def controller(slurm):
    """Only while nobody else's jobs would feel it."""
    root = helper("slurm_cluster").ROOT
    if os.geteuid() != 0:
        pytest.skip("needs root to stop slurmctld")
    deadline = time.monotonic() + 120
    while slurm.run("squeue", "--noheader", "--states=R,CG").strip():
        if time.monotonic() > deadline:
            pytest.skip("other jobs run on the test Slurm, and stopping its controller would disturb them")
        time.sleep(1)
    one = Controller(root, slurm)
    yield one
    with contextlib.suppress(ProcessLookupError):
        os.kill(one.pid, signal.SIGCONT)
    if not one.answers():
        one.start()


def test_without_a_controller_the_message_says_so_and_a_repeat_is_safe(cli, slurm, controller):
    """Stopped before the call: nothing is sent, and nothing is left that counts as live."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5))
    spec = cli.spec(f"away-{RUN}", slurm__extra={"hold": True})
    running = cli.submit(cli.spec("before", file="before.yaml", slurm__extra={"hold": True}))
    controller.stop()
    try:
        done = cli.call("submit", spec, "--target", "slurm", timeout=300)
        assert (done.status, done.out) == (3, ""), done
        assert "Slurm cannot be reached" in done.err
        assert cli.call("status", running, timeout=300).status == 3
        listed = cli.call("list", timeout=300)
        assert listed.status == 0
        assert "cannot be reached" in listed.out
    finally:
        controller.start()
    handle = cli.submit(spec)
    assert cli.submit(spec) == handle
    assert len(jobs_named(slurm, f"away-{RUN}", since)) == 1
    assert cli.status(running)["phase"] == "queued"


@pytest.mark.parametrize(("number", "turn"), [(signal.SIGTERM, turn) for turn in range(4)] + [(signal.SIGKILL, 4), (signal.SIGKILL, 5)])
def test_a_controller_that_goes_away_in_the_middle_loses_and_doubles_nothing(cli, slurm, say, controller, number, turn):
    """slurmctld ends at a random moment of a submit, back 2 s later: the submit gets through, or says that it did not;
    called again there is exactly one job. (A SIGKILL may make Slurm itself forget a job: then that is sent again.)"""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 5))
    begun = time.monotonic()
    cli.submit(cli.spec("warm", slurm__extra={"hold": True}))
    usual = time.monotonic() - begun
    spec = cli.spec(f"middle{turn}-{RUN}", file="middle.yaml", slurm__extra={"hold": True})
    process = cli.start("submit", spec, "--target", "slurm")
    time.sleep(random.Random(turn).uniform(0.6, 1.0) * usual)
    controller.stop(number)
    time.sleep(2)
    controller.start()
    out, err = process.communicate(timeout=330)
    assert "Traceback" not in err
    handle = cli.submit(spec)
    if process.returncode:
        assert (process.returncode, out) == (3, "")
        assert "Slurm" in err or "sbatch" in err
    elif number == signal.SIGTERM:
        assert handle == out.strip()
    assert cli.submit(spec) == handle
    name = f"middle{turn}-{RUN}"
    assert len(slurm.run("squeue", "--noheader", f"--name={name}", "--format=%F").split()) == 1
    assert number == signal.SIGKILL or len(jobs_named(slurm, name, since)) == 1
    say(f"slurmctld ended by {number.name} in the middle of a submit: exit status {process.returncode}; one job after the repeat")


def test_a_follower_outlives_a_restart_of_the_controller(cli, slurm, controller):
    handle = cli.submit(cli.spec("followed", launch__args=helper("command_line").sleep(12)))
    cli.until(handle, "running")
    watcher = cli.start("logs", "-f", handle)
    time.sleep(2)
    controller.stop()
    time.sleep(4)
    controller.start()
    out, err = watcher.communicate(timeout=120)
    assert watcher.returncode == 0, err
    assert "end hello" in out
    assert cli.until(handle, "succeeded", "failed")["phase"] == "succeeded"
