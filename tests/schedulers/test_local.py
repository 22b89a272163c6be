"""This machine as a scheduler: real processes, killed submitters, repeated calls."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobgen.schedulers import follow, local, receipts
from jobgen.schedulers.errors import Conflict, NoSuchJob, Unsubmittable
from jobgen.schedulers.local_scheduler import LocalScheduler
from jobgen.schedulers.submit import Request, send
from jobgen.targets.artifact import Artifact


def request(script, name="tiny", secrets=()):
    return Request(name, "local", Artifact(script), "name: tiny\n", tuple(secrets), {})


def submit(script, name="tiny", new=False, secrets=()):
    said = []
    return send(request(script, name, secrets), LocalScheduler(), new=new, say=said.append)


def ended(receipt, seconds=30):
    deadline = time.monotonic() + seconds
    while (found := local.status(receipt)).live:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_a_script_runs_to_its_end_and_its_output_is_kept():
    receipt = submit("echo out; echo err >&2; exit 0\n")
    assert ended(receipt).phase == "succeeded"
    assert (receipt.folder / "output.log").read_text() == "out\nerr\n"


def test_a_failing_script_fails_with_its_exit_status():
    receipt = submit("exit 7\n")
    found = ended(receipt)
    assert (found.phase, found.exit_code) == ("failed", "7")


def test_the_same_content_while_live_returns_the_live_handle():
    first = submit("sleep 20\n")
    try:
        assert submit("sleep 20\n").handle == first.handle
        assert len(receipts.every()) == 1
    finally:
        local.cancel(first)


def test_other_content_while_live_is_refused_with_the_difference():
    first = submit("sleep 20\n")
    try:
        with pytest.raises(Conflict, match=r"(?s)-sleep 20.*\+sleep 21"):
            submit("sleep 21\n")
    finally:
        local.cancel(first)


def test_new_starts_another_beside_the_live_one():
    first = submit("sleep 20\n")
    second = submit("sleep 20\n", new=True)
    try:
        assert first.handle != second.handle
    finally:
        local.cancel(first)
        local.cancel(second)


def test_after_it_ended_the_same_content_is_a_new_run():
    first = submit("true\n")
    ended(first)
    second = submit("true\n")
    assert second.handle != first.handle
    ended(second)


def test_cancel_reaches_the_whole_group_and_is_told_apart_from_failure():
    receipt = submit("trap 'exit 143' TERM; sleep 30 & echo started; wait\n")
    while b"started" not in (receipt.folder / "output.log").read_bytes() if (receipt.folder / "output.log").exists() else True:
        time.sleep(0.05)
    local.cancel(receipt)
    assert ended(receipt).phase == "cancelled"


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace():
    receipt = submit("trap '' TERM; echo started; while :; do sleep 0.2; done\n")
    while not (receipt.folder / "output.log").exists() or b"started" not in (receipt.folder / "output.log").read_bytes():
        time.sleep(0.05)
    local.cancel(receipt, grace_seconds=0.5)
    assert ended(receipt).phase == "cancelled"


def test_a_submission_in_a_command_substitution_returns_at_once(tmp_path):
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", (SUBMITTER % (tmp_path / "runs")).replace("sleep 2", "sleep 30")], capture_output=True, text=True, check=True)
    took = time.monotonic() - begun
    local.cancel(receipts.find(done.stdout.strip()))
    assert took < 20


def test_a_missing_secret_is_named_before_anything_is_written(monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(Unsubmittable, match="HF_TOKEN is not set"):
        submit("true\n", secrets=["HF_TOKEN"])
    assert receipts.every() == []


def test_a_receipt_that_was_never_answered_is_taken_up_again():
    """kill -9 between the receipt and the call: the repeat sends the same run, once."""
    wanted = request("echo once\n")
    receipt = receipts.create("tiny", "local", wanted.digest, {"job.sh": wanted.artifact.text, "spec.yaml": ""}, {})
    again = submit("echo once\n")
    assert again.handle == receipt.handle
    assert again.state == "sent"
    ended(again)
    assert (again.folder / "output.log").read_text() == "once\n"


def test_two_starts_of_one_folder_run_once():
    wanted = request("echo x; sleep 1\n")
    receipt = receipts.create("tiny", "local", wanted.digest, {"job.sh": wanted.artifact.text, "spec.yaml": ""}, {})
    for _ in range(3):
        local.send(receipt, receipt.folder / "job.sh")
    time.sleep(1.0)
    ended(receipt)
    time.sleep(0.5)
    assert (receipt.folder / "output.log").read_text() == "x\n"


SUBMITTER = """
import sys
from jobgen.schedulers.local_scheduler import LocalScheduler
from jobgen.schedulers.submit import Request, send
from jobgen.targets.artifact import Artifact
script = "echo run >> %s\\nsleep 2\\n"
print(send(Request("killed", "local", Artifact(script), "", (), {}), LocalScheduler(), new=False, say=lambda _: None).handle, flush=True)
"""


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.35, 0.45, 0.5, 0.55, 0.6, 0.7])
def test_killed_at_any_moment_a_repeat_neither_loses_nor_doubles(tmp_path, delay):
    runs = tmp_path / "runs"
    program = SUBMITTER % runs
    first = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, env=os.environ.copy())
    time.sleep(delay)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    receipt = receipts.find(done.stdout.strip())
    assert ended(receipt).phase == "succeeded"
    assert len([r for r in receipts.every() if r.name == "killed"]) == 1
    assert runs.read_text() == "run\n"


def test_status_logs_and_list_follow_by_handle_and_by_name(capsys):
    receipt = submit("echo hello\n", name="named")
    ended(receipt)
    assert follow.status("named")[1].phase == "succeeded"
    follow.logs(receipt.handle, follow=False, rank=None, out=sys.stdout, say=print)
    assert "hello" in capsys.readouterr().out
    assert [(r.handle, s.phase) for r, s in follow.listing()] == [(receipt.handle, "succeeded")]


def test_watching_a_failed_job_says_so():
    receipt = submit("echo out; exit 1\n")
    out, said = io.StringIO(), []
    assert follow.watch(receipt, out=out, say=said.append).phase == "failed"
    assert out.getvalue() == "out\n"
    assert "exit status 1" in said[-1]


def test_an_unknown_handle_is_refused():
    with pytest.raises(NoSuchJob):
        receipts.find("nothing")


def test_a_state_folder_that_cannot_be_written_is_said_so(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("JOBGEN_STATE", str(file / "below"))
    with pytest.raises(Unsubmittable, match="JOBGEN_STATE"):
        submit("true\n")
    assert Path(file).read_text() == ""


def test_a_run_whose_supervisor_was_killed_is_still_live_and_can_be_cancelled():
    receipt = submit("echo started; sleep 60\n")
    while not (receipt.folder / "group").exists() or b"started" not in (receipt.folder / "output.log").read_bytes():
        time.sleep(0.05)
    group = int((receipt.folder / "group").read_text())
    supervisor = int(Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(0.3)
    assert local.status(receipt).phase == "running"
    assert submit("echo started; sleep 60\n").handle == receipt.handle
    local.cancel(receipt)
    assert ended(receipt).phase == "cancelled"


def test_the_job_sees_the_submitters_gpus(monkeypatch):
    """submitit would hide all of them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    receipt = submit('echo "gpus=$CUDA_VISIBLE_DEVICES"; env | grep -c SUBMITIT_\n')
    ended(receipt)
    assert (receipt.folder / "output.log").read_text() == "gpus=2,3\n0\n"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    receipt = submit('echo "gpus=${CUDA_VISIBLE_DEVICES-unset}"\n')
    ended(receipt)
    assert (receipt.folder / "output.log").read_text() == "gpus=unset\n"
