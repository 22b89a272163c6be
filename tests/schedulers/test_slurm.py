"""Slurm's clients as they answer on other sites: stand-ins that print what was seen there."""

import os
import re
import time
from pathlib import Path

import pytest

from jobgen.schedulers import follow, receipts, slurm
from jobgen.schedulers.after import dependency
from jobgen.schedulers.errors import Conflict, NeverStarts, SchedulerError, Unreachable, Unsubmittable
from jobgen.schedulers.slurm_scheduler import SlurmScheduler
from jobgen.schedulers.slurm_words import exit_code, phase, why
from jobgen.schedulers.submit import Request, send
from jobgen.targets.artifact import Artifact

SCRIPT = "#!/bin/bash\n#SBATCH --job-name=x\n#SBATCH --output=logs/%x-%j.out\ntrue\n"
GONE = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def request(script=SCRIPT, name="x"):
    return Request(name, "slurm", Artifact(script), "", (), {})


def submit(script=SCRIPT, *, new=False, said=None, name="x"):
    return send(request(script, name), SlurmScheduler(), new=new, say=(said if said is not None else []).append)


def row(job_id, native, *, member="N/A", reason="None", comment="", code="0"):
    return f"{job_id}|{member}|{native}|node1|0:05|0|{code}|{reason}|{comment}|"


def test_the_log_folder_is_made_and_the_receipt_says_all_that_is_needed(site, tmp_path):
    receipt = submit()
    assert (tmp_path / "work" / "logs").is_dir()
    assert (receipt.job_id, receipt.state, receipt.details["cluster"]) == ("41", "sent", "here")
    assert (receipt.folder / "job.sh").read_text() == SCRIPT
    assert site.called("sbatch") == [f"sbatch --parsable --comment=jobgen:{receipt.token} {receipt.folder}/job.sh"]


@pytest.mark.parametrize(
    "lines", ["echo 41", "echo '41;here'", "echo '-- Welcome to the site --'; echo 'account 7: 2000 hours left'; echo 41", "printf '41\\r\\n'"]
)
def test_sbatchs_answer_is_found_behind_a_banner(site, lines):
    site.has("sbatch", lines)
    assert submit().job_id == "41"


def test_sbatchs_remarks_are_passed_on(site):
    site.has("sbatch", "echo 'sbatch: job_submit.lua: your partition was changed' >&2; echo 41")
    said = []
    submit(said=said)
    assert said == ["sbatch: job_submit.lua: your partition was changed"]


def test_a_refusal_is_in_sbatchs_words_and_leaves_nothing(site):
    site.has("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1")
    with pytest.raises(SchedulerError, match="Invalid qos specification") as error:
        submit()
    assert error.value.exit_status == 3
    assert receipts.every() == []


@pytest.mark.parametrize(
    "lines",
    [
        "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
        "echo 'sbatch: error: slurm_receive_msg: Zero Bytes were transmitted or received' >&2; exit 1",
        "kill -9 $$",
        "true",
    ],
)  # fmt: skip
def test_without_an_answer_the_job_may_have_arrived_so_a_repeat_asks_first(site, lines):
    site.has("sbatch", lines)
    with pytest.raises(Unreachable, match="repeat the call"):
        submit()
    (receipt,) = receipts.every()
    assert receipt.state == "sending"
    site.has("sbatch", "echo 99")
    site.queue(f"52|jobgen:{receipt.token}|/somewhere/job.sh|")
    assert SlurmScheduler().lookup(receipt) == "52"
    site.queue(f"53||{receipt.folder}/job.sh|")
    assert SlurmScheduler().lookup(receipt) == "53"
    site.queue()
    again = submit()
    assert (again.handle, again.job_id) == (receipt.handle, "99")


def test_a_lost_answer_is_found_in_the_accounting(site):
    site.has("sbatch", "kill -9 $$")
    with pytest.raises(Unreachable):
        submit()
    (receipt,) = receipts.every()
    site.has("sacct", f"echo '52||sbatch --parsable {receipt.folder}/job.sh'")
    assert follow.status(receipt.handle)[0].job_id == "52"


def test_an_answer_that_sbatch_wrote_is_enough_without_any_question(site):
    receipt = receipts.create("x", "slurm", request().digest, {"job.sh": SCRIPT}, {"cluster": "here"})
    (receipt.folder / slurm.ANSWER).write_text("52\n")
    site.queue(row(52, "RUNNING"))
    assert submit().job_id == "52"
    assert site.called("sbatch") == site.called("sacct") == []


def test_with_a_comment_of_its_own_a_job_is_found_by_its_script(site):
    """slurm.extra.comment is the user's (a budget, a ticket): it stays, and the receipt finds the job all the same."""
    script = SCRIPT.replace("true\n", "") + "#SBATCH --comment=budget-7\ntrue\n"
    site.has("sbatch", "kill -9 $$")
    with pytest.raises(Unreachable):
        submit(script)
    (receipt,) = receipts.every()
    assert site.called("sbatch") == [f"sbatch --parsable {receipt.folder}/job.sh"]
    site.queue(f"52|budget-7|{receipt.folder}/job.sh|", "53|budget-7|/elsewhere/job.sh|")
    assert SlurmScheduler().lookup(receipt) == "52"
    site.has("sbatch", "echo 54")
    site.queue()
    assert submit(script).job_id == "54"
    site.queue(row(54, "RUNNING", comment="budget-7"))
    assert follow.status(receipt.handle)[1].phase == "running"


def test_of_two_that_arrived_the_later_is_cancelled(site):
    receipt = receipts.create("x", "slurm", "d", {}, {"cluster": "here"})
    site.queue(f"60|jobgen:{receipt.token}||", f"59|jobgen:{receipt.token}||")
    assert slurm.lookup(receipt) == "59"
    assert site.called("scancel") == ["scancel 60"]


def test_when_the_queue_cannot_be_asked_nothing_is_sent(site):
    first = submit()
    site.has("squeue", "echo 'slurm_load_jobs error: Protocol authentication error' >&2; exit 1")
    with pytest.raises(Unreachable, match="authentication"):
        submit()
    assert len(site.called("sbatch")) == 1
    assert follow.listing()[0][1].native == "UNREACHABLE"
    assert receipts.find(first.handle).state == "sent"


def test_without_accounting_a_jobs_log_tells_its_end(site, tmp_path):
    receipt = submit()
    site.has("squeue", GONE)
    site.has("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert follow.status(None)[1].phase == "unknown"
    (tmp_path / "work" / "logs" / "x-41.out").write_text("a\n2026-01-01 00:00:00 jobgen: finished\n")
    found = follow.status(receipt.handle)[1]
    assert (found.phase, found.final) == ("succeeded", True)
    site.lacks("sacct")
    assert follow.status(receipt.handle)[1].phase == "succeeded"
    assert submit().handle != receipt.handle


def test_an_accounting_that_is_away_decides_nothing(site):
    receipt = submit()
    site.has("squeue", GONE)
    site.has("sacct", "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1")
    found = follow.status(receipt.handle)[1]
    assert (found.phase, found.final) == ("unknown", False)
    assert "Connection refused" in found.reason


def test_what_the_queue_still_knows_may_come_back_and_what_the_accounting_knows_is_final(site):
    receipt = submit()
    site.queue(row(41, "FAILED", reason="NonZeroExitCode", code="768"))
    found = follow.status(receipt.handle)[1]
    assert (found.phase, found.exit_code, found.final) == ("failed", "3", False)
    site.queue(row(41, "PENDING", reason="BeginTime"))
    assert follow.status(receipt.handle)[1].phase == "queued"
    site.has("squeue", GONE)
    site.has("sacct", "echo '41|FAILED|3:0|node1|00:00:05'")
    assert follow.status(receipt.handle)[1].final
    before = len(site.called("squeue"))
    assert follow.status(receipt.handle)[1].exit_code == "3"
    assert len(site.called("squeue")) == before


def test_another_clusters_jobs_are_left_alone(site):
    receipt = submit()
    slurm.configuration.cache_clear()
    site.has("scontrol", "echo 'ClusterName = there'")
    assert follow.status(receipt.handle)[1].native == "ELSEWHERE"
    assert "on the cluster here" in follow.cancel(receipt.handle)
    assert site.called("scancel") == []
    assert submit().handle != receipt.handle


def test_an_id_that_was_given_to_another_job_is_not_this_one(site):
    submit()
    site.queue(row(41, "RUNNING", comment="jobgen:0123456789abcdef"))
    assert follow.status(None)[1].phase == "unknown"


def test_a_job_id_that_comes_again_brings_nothing_of_the_old_run(site):
    """A cluster that was set up anew counts from the beginning; submitit would read the old folder of that id."""
    first = submit()
    site.queue(row(41, "FAILED", code="768"))
    site.has("sacct", "echo '41|FAILED|3:0|node1|00:00:05'")
    assert follow.status(first.handle)[1].phase == "failed"
    site.queue(row(41, "CANCELLED"))
    second = submit(new=True)
    assert (second.job_id, first.job_id) == ("41", "41")
    assert second.folder != first.folder
    site.queue(row(41, "RUNNING", comment=f"jobgen:{second.token}"))
    assert follow.status(second.handle)[1].phase == "running"
    assert follow.status(first.handle)[1].phase != "running"


def test_an_array_is_one_job(site):
    submit()
    site.queue(row(41, "RUNNING", member="3"), row(41, "PENDING", member="4", reason="JobArrayTaskLimit"))
    site.has("sacct", "echo '41_0|FAILED|1:0|node1|00:00:05'; echo '41_1|COMPLETED|0:0|n|1'; echo '41_[4-9%2]|PENDING|0:0||'; echo '41_3|RUNNING|0:0||'")
    found = follow.status(None)[1]
    assert (found.phase, found.reason) == ("running", "4 members: 1 running, 1 queued, 1 failed, 1 succeeded")


def test_the_end_of_a_run_is_waited_for_before_the_next(site, tmp_path):
    first = submit()
    mark = tmp_path / "asked"
    site.has("squeue", f"if [ -e {mark} ]; then echo '{row(41, 'CANCELLED')}'; else echo '{row(41, 'COMPLETING')}'; fi; touch {mark}")
    said = []
    assert submit(said=said).handle != first.handle
    assert said == [f"waiting for {first.handle}, which is ending"]


def test_other_content_is_refused_and_relative_folders_are_content(site, tmp_path, monkeypatch):
    script = SCRIPT + 'cd "$PWD"/x\n'
    first = submit(script)
    site.queue(row(41, "RUNNING"))
    assert submit(script).handle == first.handle
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(Conflict, match="another folder"):
        submit(script)


def test_a_missing_client_is_named(site, monkeypatch):
    site.lacks("scontrol")
    monkeypatch.setenv("PATH", str(site.folder))
    with pytest.raises(Unsubmittable, match="scontrol is not on this machine"):
        submit()


def test_slurms_variables_of_the_shell_reach_no_client(site, monkeypatch):
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_PARTITION", "SRUN_X", "PMI_RANK", "SCANCEL_INTERACTIVE"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("SLURM_CONF", "/etc/kept")
    site.has("sbatch", "env >&2; echo 41")
    said = []
    submit(said=said)
    assert "leaked" not in said[0]
    assert "SLURM_CONF=/etc/kept" in said[0]


@pytest.mark.parametrize(
    ("after", "found", "expected"),
    [
        ([("x", "success")], "RUNNING", "afterok:41"), ([("x", "failure")], "PENDING", "afternotok:41"), ([("x", "end")], "PENDING", "afterany:41"),
        ([("x", "start")], "PENDING", "after:41"), ([("x", "start")], "RUNNING", ""), ([("x", "success")], "COMPLETED", ""),
        ([("x", "end")], "FAILED", ""), ([("x", "failure")], "TIMEOUT", ""), ([("12", "success")], "RUNNING", ""),
        ([("12", "success"), ("x", "end")], "RUNNING", "afterok:12,afterany:41"), ([("slurm:12_3", "end"), ("x", "end")], "RUNNING", "afterany:12_3,afterany:41"),
    ],
)  # fmt: skip
def test_after_becomes_a_dependency(site, after, found, expected):
    submit()
    site.queue(row(41, found))
    assert dependency(after, "slurm") == expected


def test_what_can_no_longer_happen_is_refused(site):
    submit()
    site.queue(row(41, "FAILED"))
    with pytest.raises(NeverStarts, match="x failed, so a job that waits for its success would never start"):
        dependency([("x", "success")], "slurm")
    with pytest.raises(Unsubmittable, match="k8s cannot"):
        dependency([("x", "success")], "k8s")


@pytest.mark.parametrize(
    ("native", "expected"),
    [("CANCELLED by 0", "cancelled"), ("CANCELLED+", "cancelled"), ("COMPLETED", "succeeded"), ("OUT_OF_ME+", "unknown"), ("", "unknown"), ("NEW_STATE", "unknown")],
)
def test_states(native, expected):
    assert phase(native) == expected


@pytest.mark.parametrize(("written", "expected"), [("3:0", "3"), ("0:9", "137"), ("768", "3"), ("9", "137"), ("0", "0"), ("0:0", "0"), ("", ""), ("x", "")])
def test_exit_statuses(written, expected):
    assert exit_code(written) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Resources", "waits for nodes to become free (Resources)"),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "a node it needs is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:node[1-2])"),
        ("QOSMaxGRESPerUser", "it would exceed the QOS's limit on GPUs per user (QOSMaxGRESPerUser)"),
        ("AssocGrpCpuLimit", "it would exceed the account's limit on CPUs (AssocGrpCpuLimit)"),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more than the QOS's limit on time per job (QOSMaxWallDurationPerJobLimit)"),
        ("None", ""), ("SomethingNew", "SomethingNew"),
    ],
)  # fmt: skip
def test_reasons_in_words(reason, expected):
    assert why(reason) == expected


def test_a_growing_log_is_followed_to_the_jobs_end(site, tmp_path, capsys):
    import io
    import threading

    receipt = submit()
    log = tmp_path / "work" / "logs" / "x-41.out"
    done = tmp_path / "done"
    site.has("squeue", f"if [ -e {done} ]; then echo '{row(41, 'COMPLETED')}'; else echo '{row(41, 'RUNNING')}'; fi")

    def write():
        with log.open("ab", buffering=0) as file:
            file.write("é".encode()[:1])
            time.sleep(0.7)
            file.write("é".encode()[1:] + b"\n")
            time.sleep(0.7)
            file.write(b"last\n")
        done.touch()

    thread = threading.Thread(target=write)
    thread.start()
    out, said = io.StringIO(), []
    follow.logs(receipt.handle, follow=True, rank=None, out=out, say=said.append)
    thread.join()
    assert out.getvalue() == "é\nlast\n"
    assert said == ["running: on node1"]
    with pytest.raises(Unsubmittable, match="one file holds the output of all ranks"):
        follow.logs(receipt.handle, follow=False, rank=1, out=out, say=print)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH --output=%x-%j.out", "."), ("#SBATCH --output='a b/100%%/%x-%j.out'", "a b/100%"), ("#SBATCH --output=/abs/%x-%j.out", "/abs"),
        ("#SBATCH --output=/logs/%u/%j.out", None), ("#SBATCH --nodes=1", "."),
    ],
)  # fmt: skip
def test_the_log_folder(line, expected):
    found = slurm.output_folder(f"#!/bin/bash\n{line}\ntrue\n#SBATCH --output=no/x\n", Path("/base"))
    assert found == (None if expected is None else Path("/base") / expected)


def test_submit_beside_two_thousand_old_receipts_is_quick(site):
    for number in range(2000):
        receipt = receipts.Receipt(f"x-{number:06x}", "x", "slurm", "d", f"{number:016x}", "sent", float(number), str(number), {"cluster": "here"})
        receipt.folder.mkdir(parents=True)
        (receipt.folder / "receipt.json").write_text(receipts.json.dumps(receipt._asdict()))
    site.has("squeue", GONE)
    begun = time.process_time()
    submit()
    first = time.process_time() - begun
    begun = time.process_time()
    submit(name="x", new=True)
    second = time.process_time() - begun
    questions = len(site.called("squeue"))
    print(f"submit beside 2,000 receipts of the same name: {first:.2f} s, then {second:.2f} s of CPU; {questions} questions")
    assert questions <= 6
    assert second < 1.0


def test_times_are_asked_for_with_a_day_to_spare(site):
    """A login node's clock may be ahead of the controller's, and in another zone."""
    os.environ.pop("TZ", None)
    receipt = receipts.create("x", "slurm", "d", {}, {"cluster": "here"})
    slurm.lookup(receipt)
    since = re.search(r"--starttime=(\S+)", site.called("sacct")[0]).group(1)
    assert time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%S")) < time.time() - 80000
