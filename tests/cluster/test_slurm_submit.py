"""jobgen submit, status, logs, cancel and list on the real Slurm, through the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slurm]
HERE = Path(__file__).parent
PROBE = HERE / "programs" / "probe.py"


def helper(name):
    full = f"jobgen_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, HERE / f"{name}.py")
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


sleep = helper("command_line").sleep


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
    for job in (r["job_id"] for r in one.list() if r["phase"] in ("queued", "running")):
        slurm.run("scancel", job, check=False)


def test_submit_prints_the_handle_alone_and_the_job_can_be_followed(cli, slurm):
    spec = cli.spec("plain", launch__args=sleep(3, "--line", "grüße"))
    done = cli.call("submit", spec, "--target", "slurm")
    assert done.status == 0
    assert re.fullmatch(r"plain-[0-9a-f]{6}\n", done.out)
    handle = done.out.strip()
    found = cli.until(handle, "running", "succeeded")
    assert found["nodes"].startswith("node")
    assert slurm.field(found["job_id"], "JobName") == "plain"
    followed = cli.call("logs", "-f", handle)
    assert "begin grüße\nend grüße\n" in followed.out
    assert followed.out.rstrip().endswith("jobgen: finished")
    assert cli.call("logs", handle).out == followed.out
    for name in (handle, "plain", found["job_id"], None):
        done = cli.call("status", *filter(None, [name]))
        assert (done.status, done.out.split()[:2]) == (0, [handle, "succeeded"])
    assert [(r["handle"], r["phase"], r["exit_code"]) for r in cli.list()] == [(handle, "succeeded", "0")]
    assert handle in cli.call("list").out


def test_the_same_content_while_live_is_the_same_job_and_other_content_is_refused(cli, slurm):
    spec = cli.spec("same", launch__args=sleep(60))
    first = cli.submit(spec)
    again = cli.call("submit", spec, "--target", "slurm")
    assert (again.status, again.out.strip()) == (0, first)
    assert "live already" in again.err
    other = cli.call("submit", cli.spec("same", launch__args=sleep(61)), "--target", "slurm")
    assert (other.status, other.out) == (1, "")
    assert re.search(r"(?m)^-\s+60$", other.err), other.err
    assert re.search(r"(?m)^\+\s+61$", other.err), other.err
    assert f"jobgen cancel {first}" in other.err
    assert len(cli.list()) == 1

    second = cli.submit(cli.spec("same", launch__args=sleep(61)), "--new")
    assert second != first
    assert cli.submit(cli.spec("same", launch__args=sleep(60))) == first
    assert cli.call("cancel", second).status == 0
    assert cli.status(second)["phase"] == "cancelled"
    assert cli.status(first)["phase"] in ("queued", "running")

    cancelled = cli.call("cancel", first)
    assert (cancelled.status, cancelled.out) == (0, "")
    assert f"{first} is cancelled; checkpoints and logs stay" in cancelled.err
    assert cli.call("status", first).status == 4
    assert "not live" in cli.call("cancel", first).err
    third = cli.submit(spec, "--new")
    assert third not in (first, second)


def test_a_cancelled_job_is_gone_when_cancel_returns_so_that_submit_starts_anew(cli):
    spec = cli.spec("anew", launch__args=sleep(60))
    first = cli.submit(spec)
    cli.until(first, "running")
    cli.call("cancel", first)
    second = cli.submit(spec)
    assert second != first
    cli.call("cancel", second)


def test_watch_ends_with_the_jobs_end(cli):
    good = cli.call("submit", cli.spec("good", launch__args=sleep(1)), "--target", "slurm", "--watch")
    assert good.status == 0
    assert re.fullmatch(r"good-[0-9a-f]{6}\n", good.out)
    assert "begin hello" in good.err
    bad = cli.call("submit", cli.spec("bad", launch__args=sleep(0, "--exit", "3")), "--target", "slurm", "--watch")
    assert bad.status == 4
    assert "begin hello" in bad.err
    assert "failed: the script failed (NonZeroExitCode)" in bad.err
    assert cli.status("bad")["exit_code"] == "3"
    assert cli.call("status", "bad").status == 4


def test_a_dry_run_sends_nothing(cli):
    spec = cli.spec("dry")
    client = cli.call("submit", spec, "--target", "slurm", "--dry-run=client")
    assert client.status == 0
    assert client.out == cli.call("render", spec, "--target", "slurm").out
    assert "sbatch --parsable --comment=jobgen:TOKEN job.sh" in client.err
    server = cli.call("submit", spec, "--target", "slurm", "--dry-run=server")
    assert (server.status, server.out) == (0, "")
    assert "to start at" in server.err
    refused = cli.call("submit", spec, "--target", "slurm", "--dry-run=server", "--set", "slurm.partition=nowhere")
    assert (refused.status, refused.out) == (3, "")
    assert "invalid partition" in refused.err
    assert cli.list() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("slurm.partition=nowhere", "invalid partition specified"),
        ("slurm.account=nobody", "Invalid account"),
        ("slurm.qos=nothing", "Invalid qos"),
        ("slurm.constraint=gold", "Invalid feature specification"),
        ("slurm.reservation=none", "reservation is invalid"),
        ("resources.nodes=9", "(?i)node count|more processors|nodes"),
        ("slurm.partition=prod", "(?i)account"),
        ("launch.time_limit=8d", "(?i)time limit"),
        ("slurm.extra.nodelist=node77", "(?i)invalid node name"),
    ],
)  # fmt: skip
def test_what_sbatch_refuses_is_refused_in_its_own_words_and_leaves_nothing(cli, change, words):
    more = ["--set", "launch.launcher=srun"] if "nodes=9" in change else []
    done = cli.call("submit", cli.spec("refused"), "--target", "slurm", "--set", change, *more)
    assert (done.status, done.out) == (3, ""), done
    assert "sbatch refuses the job: sbatch: error:" in done.err
    assert re.search(words, done.err), done.err
    assert cli.list() == []
    assert not list((cli.folder / "state" / "jobs").iterdir())


def test_the_log_folder_is_made(cli):
    folder = cli.folder / "logs of mine" / "100% new"
    handle = cli.submit(cli.spec("logged", slurm__output=str(folder)))
    cli.until(handle, "succeeded", "failed")
    assert [path.name for path in folder.iterdir()] == [f"logged-{cli.status(handle)['job_id']}.out"]
    assert "begin hello" in cli.call("logs", handle).out


LEAKED = {
    "SBATCH_PARTITION": "maint", "SBATCH_TIMELIMIT": "1", "SBATCH_ACCOUNT": "nobody", "SBATCH_EXPORT": "NONE", "SBATCH_JOB_NAME": "wrong",
    "SBATCH_GRES": "gpu:8", "SBATCH_EXCLUSIVE": "user", "SBATCH_REQUEUE": "1", "SBATCH_SIGNAL": "KILL@10",
    "SLURM_JOB_ID": "1", "SLURM_NTASKS": "7", "SLURM_MEM_PER_CPU": "1", "SLURM_MEM_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "9",
    "SLURM_EXPORT_ENV": "NONE", "SRUN_CPUS_PER_TASK": "9", "PMI_RANK": "3", "SQUEUE_PARTITION": "debug", "SQUEUE_STATES": "SUSPENDED",
    "SACCT_FORMAT": "User", "SCANCEL_INTERACTIVE": "1", "SQUEUE_USERS": "alice",
}  # fmt: skip


def test_the_submitters_slurm_variables_change_nothing(cli, slurm):
    """Pitfalls 7 and 31."""
    spec = cli.spec("leaked", launch__args=sleep(15))
    handle = cli.call("submit", spec, "--target", "slurm", env=LEAKED)
    assert handle.status == 0, handle.err
    job = cli.status(handle.out.strip())["job_id"]
    assert (slurm.field(job, "Partition"), slurm.field(job, "TimeLimit"), slurm.field(job, "Account")) == ("gpu", "00:10:00", "research")
    assert (slurm.field(job, "JobName"), slurm.field(job, "Requeue"), slurm.field(job, "NumTasks")) == ("leaked", "0", "1")
    assert cli.call("submit", spec, "--target", "slurm", env=LEAKED).out == handle.out
    assert cli.call("status", env=LEAKED).status == 0
    assert cli.until(handle.out.strip(), "succeeded", "failed")["phase"] == "succeeded"


def test_submission_from_inside_a_job(cli, slurm):
    """Pitfall 31, as it happens: a job whose script submits another."""
    spec = cli.spec("inner", launch__args=sleep(1))
    outer = f"""#!/bin/bash
#SBATCH --account=research --job-name=outer --ntasks=2 --mem-per-cpu=100 --time=5 --output={cli.folder}/outer.out
export JOBGEN_STATE={cli.folder}/state
cd {cli.folder}
{sys.executable} -m jobgen.cli submit {spec} --target slurm
"""
    job = slurm.submit(outer, cli.folder, env=cli.env)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    found = cli.until("inner", "succeeded", "failed")
    assert found["phase"] == "succeeded", cli.call("logs", "inner").out
    assert slurm.field(found["job_id"], "NumTasks") == "1"


def test_secrets_must_be_set_and_stand_nowhere(cli, slurm):
    spec = cli.spec("secret", launch__secrets=["TOKEN_OF_MINE"], launch__args=sleep(2))
    missing = cli.call("submit", spec, "--target", "slurm")
    assert (missing.status, missing.out) == (2, "")
    assert "TOKEN_OF_MINE is not set" in missing.err
    assert cli.list() == []
    value = "s3cr3t'$value"
    handle = cli.submit(spec, env={"TOKEN_OF_MINE": value})
    job = cli.until(handle, "running", "succeeded")["job_id"]
    shown = slurm.run("scontrol", "show", "job", "-dd", job) + slurm.run("scontrol", "write", "batch_script", job, "-")
    assert cli.until(handle, "succeeded", "failed")["phase"] == "succeeded"
    written = json.loads((cli.folder / "ck" / "secret" / "environment.json").read_text())
    assert written["TOKEN_OF_MINE"] == value
    shown += slurm.run("sacct", "-j", job, "--batch-script") + slurm.run("sacct", "-j", job, "--long", "--parsable2")
    assert "TOKEN_OF_MINE" in shown
    assert "s3cr3t" not in shown
    (cli.folder / "ck" / "secret" / "environment.json").unlink()
    for path in cli.folder.rglob("*"):
        assert not path.is_file() or path.is_symlink() or b"s3cr3t" not in path.read_bytes(), path


def test_a_job_waits_for_another_and_ends_when_that_one_failed(cli, slurm):
    first = cli.submit(cli.spec("first", launch__args=sleep(6)))
    second = cli.submit(cli.spec("second", file="second.yaml", after=[{"job": first}]))
    found = cli.status(second)
    assert (found["phase"], found["reason"]) == ("queued", "waits for another job (Dependency)") or found["native"] == "PENDING"
    assert slurm.field(found["job_id"], "Dependency").startswith(f"afterok:{cli.status(first)['job_id']}")
    assert cli.until(second, "succeeded", "failed", "cancelled")["phase"] == "succeeded"
    assert cli.status(first)["phase"] == "succeeded"

    failing = cli.submit(cli.spec("failing", launch__args=sleep(6, "--exit", "1")))
    never = cli.submit(cli.spec("never", file="never.yaml", after=[{"job": failing}]))
    either = cli.submit(cli.spec("either", file="either.yaml", after=[{"job": failing, "on": "failure"}]))
    assert cli.until(never, "cancelled", "failed", "succeeded")["phase"] == "cancelled"
    assert "can never start" in cli.status(never)["reason"]
    assert cli.until(either, "succeeded", "failed", "cancelled")["phase"] == "succeeded"

    late = cli.call("submit", cli.spec("late", file="late.yaml", after=[{"job": failing}]), "--target", "slurm")
    assert (late.status, late.out) == (1, "")
    assert "would never start" in late.err
    fine = cli.submit(cli.spec("fine", file="fine.yaml", after=[{"job": first}]))
    assert cli.until(fine, "succeeded", "failed", "cancelled")["phase"] == "succeeded"
    unknown = cli.call("submit", cli.spec("lost", file="lost.yaml", after=[{"job": "no-such-job"}]), "--target", "slurm")
    assert (unknown.status, unknown.out) == (2, "")


def test_a_sweep_runs_so_many_points_at_once(cli, slurm):
    spec = cli.spec("swept", launch__args=sleep(4), sweep={"grid": {"training.max_steps": [1, 2, 3, 4]}, "max_parallel": 2})
    done = cli.call("submit", spec, "--target", "slurm")
    assert done.status == 0, done.err
    handles = done.out.split()
    assert len(set(handles)) == 4
    assert cli.call("submit", spec, "--target", "slurm").out.split() == handles
    most, deadline = 0, time.monotonic() + 90
    while True:
        found = cli.list()
        most = max(most, sum(r["phase"] == "running" for r in found))
        if not any(r["phase"] in ("queued", "running") for r in found):
            break
        assert time.monotonic() < deadline, found
    assert [r["phase"] for r in found] == ["succeeded"] * 4
    assert most == 2
    jobs = [cli.status(handle)["job_id"] for handle in handles]
    spans = [slurm.run("sacct", "-nXP", "-j", job, "-o", "Start,End").strip().split("|") for job in jobs]
    assert spans[2][0] >= spans[0][1]
    assert spans[3][0] >= spans[1][1]


def test_render_piped_into_sbatch_and_submit_run_the_same_thing_on_every_rank(cli, slurm):
    """What ``render`` shows is what runs: argv, environment and shipped files of each rank."""
    shipped = cli.folder / "shipped.json"
    shipped.write_text('{"a": "b $x `y`"}\n')
    spec = cli.spec(
        "alike", resources__nodes=2, resources__gpus_per_node=2, resources__cpus_per_node=2, resources__fabric="none",
        launch__launcher="srun", launch__entrypoint=str(PROBE), launch__args=["a b", "$HOME", "ü"], launch__env={"MINE": "x 'y'\n$z"},
        launch__code={"files": [str(shipped)]}, checkpoint__directory=str(cli.folder / "ck"),
    )  # fmt: skip
    script = cli.call("render", spec, "--target", "slurm").out

    def gathered(job):
        assert slurm.wait(job) == "COMPLETED", slurm.log(job)
        ranks = {}
        for path in sorted((cli.folder / "ck").glob("probe-0-*.json")):
            ranks[path.name] = json.loads(path.read_text())
            path.unlink()
        files = {path.name: path.read_text() for path in (cli.folder / "ck" / ".jobgen" / job).iterdir() if path.is_file()}
        assert len(ranks) == 4
        return ranks, files

    piped_job = slurm.submit(script, cli.folder, env=cli.env)
    piped = gathered(piped_job)
    handle = cli.submit(spec)
    sent_job = cli.status(handle)["job_id"]
    sent = gathered(sent_job)
    assert (cli.folder / "state" / "jobs" / handle / "job.sh").read_text() == script
    deadline = time.monotonic() + 60
    while (kept := slurm.run("sacct", "-j", sent_job, "--batch-script").split("\n", 2)[2].strip()) == "NONE" and time.monotonic() < deadline:
        time.sleep(1)  # slurmdbd stores the script some time after the job
    assert kept == script.strip()
    plain = [json.dumps(one, sort_keys=True).replace(job, "JOB") for one, job in ((piped, piped_job), (sent, sent_job))]
    differing = re.compile(
        r'"(SLURM_TASK_PID|pid|SLURM_STEP_LAUNCHER_PORT|SLURM_SRUN_COMM_PORT|SRUN_DEBUG|MASTER_PORT|SLURM_STEP_RESV_PORTS|'
        r'SLURM_JOB_START_TIME|SLURM_JOB_END_TIME|SLURM_TOPOLOGY_ADDR|SLURM_(?:JOB_|STEP_)?NODELIST|SLURMD_NODENAME|host|'
        r'SLURM_LAUNCH_NODE_IPADDR|SLURM_SRUN_COMM_HOST|SLURM_STEP_NODELIST|MASTER_ADDR|SLURM_WORKING_CLUSTER)": ("[^"]*"|\d+)'
    )
    a, b = (json.loads(differing.sub(r'"\1": 0', text)) for text in plain)
    only_pipe = {"SLURM_JOB_COMMENT"}
    for name, one in a[0].items():
        assert one["argv"] == b[0][name]["argv"]
        assert one["argv"][-3:] == ["a b", "$HOME", "ü"]
        assert one["env"]["MINE"] == "x 'y'\n$z"
        assert {k: v for k, v in one["env"].items() if k not in only_pipe} == {k: v for k, v in b[0][name]["env"].items() if k not in only_pipe}
        assert one["cwd"] == b[0][name]["cwd"]
    assert a[1] == b[1]
    assert a[1]["shipped.json"] == shipped.read_text()


def test_requeues_are_followed(cli, slurm):
    handle = cli.submit(cli.spec("again", launch__args=sleep(5), launch__restarts=3))
    job = cli.until(handle, "running")["job_id"]
    watcher = cli.start("logs", "-f", handle)
    slurm.until(job, lambda: "begin" in slurm.log(job), 30, "begin")
    slurm.run("scontrol", "requeue", job)
    found = cli.status(handle)
    assert found["phase"] in ("queued", "running")
    assert cli.until(handle, "succeeded", "failed", "cancelled")["restarts"] == 1
    out, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    assert out.count("jobgen: attempt ") == 2
    assert out.rstrip().endswith("jobgen: finished")
    assert "queued: starts again shortly after a requeue" in err


def test_why_a_job_waits_is_said_in_words(cli, slurm):
    handle = cli.submit(cli.spec("held", slurm__extra={"hold": True}))
    slurm.until(cli.status(handle)["job_id"], lambda: "held by you" in str(cli.status(handle)["reason"]), 20, "reason")
    assert "why: is held by you (scontrol release frees it) (JobHeldUser)" in cli.call("status", handle).out
    assert "no output yet (queued: is held by you" in cli.call("logs", handle).err


def test_an_array_is_one_job_with_members(cli, slurm):
    handle = cli.submit(cli.spec("many", slurm__extra={"array": "0-2"}, launch__args=sleep(3)))
    found = cli.until(handle, "succeeded", "failed")
    assert found["reason"].startswith("3 members: "), found
    assert found["phase"] == "succeeded", cli.call("logs", handle).out
    log = cli.call("logs", handle).out
    assert log.count("begin hello") == 3
    assert log.count("==> many-") == 3


def test_a_comment_of_ones_own_is_left_alone(cli, slurm):
    handle = cli.submit(cli.spec("own", slurm__extra={"comment": "budget-7"}))
    assert slurm.field(cli.status(handle)["job_id"], "Comment") == "budget-7"


def test_another_user_submits_and_follows(slurm, tmp_path):
    if os.geteuid() != 0 or not shutil.which("runuser") or "alice" not in {one.pw_name for one in pwd.getpwall()}:
        pytest.skip("needs root, and the user alice that slurm-up.sh makes")
    found = helper("command_line").user_python("alice")
    if found is None:
        pytest.skip("alice can run no python that has jobgen")
    python, env = found
    home = Path(pwd.getpwnam("alice").pw_dir)
    folder = home / f"jobgen-{tmp_path.name}-{os.getpid()}"
    folder.mkdir()
    try:
        spec = helper("command_line").CommandLine(folder).spec("hers", launch__args=sleep(2))
        subprocess.run(["chown", "-R", "alice:", str(folder)], check=True)
        clean = {"PATH": f"{slurm.bin}:/usr/bin:/bin", "HOME": str(home), "JOBGEN_STATE": str(folder / "state"), **env}

        def jobgen(*arguments):
            return subprocess.run(
                [str(slurm.bin / "slurm-exec"), "runuser", "-u", "alice", "--", "env", "-i", *(f"{k}={v}" for k, v in clean.items()),
                 python, "-m", "jobgen.cli", *map(str, arguments)], cwd=folder, text=True, capture_output=True, timeout=120, check=False,
            )  # fmt: skip

        done = jobgen("submit", spec, "--target", "slurm", "--watch")
        assert done.returncode == 0, done.stderr
        assert "end hello" in done.stderr
        record = json.loads(jobgen("status", "--format", "json").stdout)
        assert record["phase"] == "succeeded"
        assert slurm.field(record["job_id"], "UserId").startswith("alice")
        assert jobgen("logs", record["handle"]).stdout.rstrip().endswith("finished")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def lax(slurm):
    """Slurm's own default: limits of a partition are not enforced at submission. A small partition beside the others."""
    if os.environ.get("JOBGEN_CLUSTER") != "1":
        pytest.skip("changes the configuration of the cluster: set JOBGEN_CLUSTER=1")
    conf = Path("/etc/slurm/slurm.conf")
    before = conf.read_text()
    conf.write_text(re.sub(r"(?m)^EnforcePartLimits=.*", "EnforcePartLimits=NO", before))
    try:
        slurm.run("scontrol", "reconfigure")
        slurm.run("scontrol", "create", "PartitionName=small", "Nodes=node[1-4]", "MaxTime=01:00:00", "MaxNodes=1", "MaxMemPerNode=20000",
                  "AllowQos=normal", "PriorityTier=1", "PreemptMode=OFF", "State=UP")  # fmt: skip
        yield
    finally:
        conf.write_text(before)
        slurm.run("scontrol", "delete", "PartitionName=small", check=False)
        slurm.run("scontrol", "reconfigure")


@pytest.mark.parametrize(
    ("change", "words", "fix", "reason"),
    [
        ("launch.time_limit=2h", "launch.time_limit is 2h, its MaxTime is 1h", "launch.time_limit: 1h", "PartitionTimeLimit"),
        ("resources.nodes=2", "resources.nodes is 2, its MaxNodes is 1", "resources.nodes: 1", "PartitionNodeLimit"),
        ("resources.memory_per_node=30000MiB", "resources.memory_per_node asks for 30000 MiB, its MaxMemPerNode is 20000 MiB", "20000MiB", "MaxMemPerLimit"),
        ("resources.exclusive=true", "--mem=0: 1000000 MiB", "resources.exclusive: false", "MaxMemPerLimit"),
        ("slurm.qos=high", "slurm.qos is high, its AllowQos is normal", "slurm.qos: normal", "QOS"),
    ],
)  # fmt: skip
def test_what_sbatch_takes_and_no_partition_starts_is_refused_before(cli, slurm, lax, change, words, fix, reason):
    """Pitfall 13, with Slurm as the witness: the same script, sent by hand, pends for that very reason."""
    spec = cli.spec("limits", slurm__partition="small", launch__time_limit="30m", launch__launcher="srun")
    changed = ["--set", change]
    for more in ([], ["--dry-run=server"]):
        done = cli.call("submit", spec, "--target", "slurm", *changed, *more)
        assert (done.status, done.out) == (1, ""), done
        assert f"partition small: {words}" in done.err.replace("a whole node is asked for (", ""), done.err
        assert fix in done.err
        assert "or slurm.partition: " in done.err
    assert cli.list() == []
    job = slurm.submit(cli.call("render", spec, "--target", "slurm", *changed).out, cli.folder, env=cli.env)
    try:
        slurm.until(job, lambda: reason in slurm.run("squeue", "--noheader", "--jobs", job, "--format=%r"), 30, reason)
    finally:
        slurm.run("scancel", job)


def test_a_job_within_the_limits_is_sent_where_limits_are_not_enforced(cli, slurm, lax):
    spec = cli.spec("within", slurm__partition="small", launch__time_limit="30m", launch__args=sleep(1))
    assert "to start at" in cli.call("submit", spec, "--target", "slurm", "--dry-run=server").err
    assert cli.until(cli.submit(spec), "succeeded", "failed")["phase"] == "succeeded"
    either = cli.call("submit", cli.spec("either", slurm__partition="small,gpu"), "--target", "slurm", "--dry-run=server")
    assert either.status == 0, either.err


def test_a_partition_that_is_down_is_said_and_the_job_is_taken(cli):
    done = cli.call("submit", cli.spec("maint", slurm__partition="maint"), "--target", "slurm", "--dry-run=server")
    assert done.status == 0, done.err
    assert "warning: partition maint is DOWN" in done.err


@pytest.fixture
def cancelling(slurm):
    """The partition spot cancels what it preempts."""
    if os.environ.get("JOBGEN_CLUSTER") != "1":
        pytest.skip("changes the configuration of the cluster: set JOBGEN_CLUSTER=1")
    slurm.run("scontrol", "update", "PartitionName=spot", "PreemptMode=CANCEL")
    try:
        yield
    finally:
        slurm.run("scontrol", "update", "PartitionName=spot", "PreemptMode=REQUEUE")


def preempted_in_spot(cli, slurm, **changes):
    """A job of 60 steps and its follow-up, as submit proposes it; the job is preempted after a checkpoint. Their ids."""
    spec = cli.spec(
        "cut", slurm__partition="spot", slurm__extra={"nodelist": "node4"}, launch__restarts=3, launch__entrypoint=str(PROBE),
        training__framework="transformers", training__versions={"transformers": "4.57.1"}, training__max_steps=60, **changes,
    )  # fmt: skip
    done = cli.call("submit", spec, "--target", "slurm")
    assert done.status == 0, done.err
    assert "warning: partition spot has PreemptMode=CANCEL" in done.err
    first = done.out.strip()
    after = re.search(r"--new --set '(after=\[\{job: )HANDLE(, on: failure\}\])'", done.err)
    assert after, done.err
    second = cli.submit(spec, "--new", "--set", f"{after.group(1)}{first}{after.group(2)}")
    jobs = [cli.status(handle)["job_id"] for handle in (first, second)]
    slurm.until(jobs[0], lambda: "saved 10" in slurm.log(jobs[0]), 60, "checkpoint")
    high = "#!/bin/bash\n#SBATCH --partition=high --account=research --exclusive --mem=0 --time=1 --nodelist=node4 --output=/dev/null\nsleep 4\n"
    slurm.submit(high, cli.folder, env=cli.env)
    return jobs


def test_a_follow_up_goes_on_where_a_cancelled_job_was_preempted(cli, slurm, cancelling):
    """Pitfall 62: --requeue does nothing there; submit says so, and the job it proposes begins at the saved step."""
    first, second = preempted_in_spot(cli, slurm, launch__env={"PROBE_DEAF_AT": "0", "PROBE_PAUSE": "0.5"})
    assert slurm.wait(first) == "PREEMPTED", slurm.log(first)
    assert slurm.field(first, "Restarts") == "0"
    saved = [int(step) for step in re.findall(r"saved (\d+)", slurm.log(first))]
    slurm.until(second, lambda: "rank 0: start at step" in slurm.log(second), 60, "start")
    assert f"rank 0: start at step {saved[-1]}\n" in slurm.log(second)
    assert saved[-1] >= 10
    assert slurm.wait(second) == "COMPLETED", slurm.log(second)
    assert "rank 0: finished at step 60" in slurm.log(second)


def test_a_job_that_saves_within_the_grace_time_needs_no_follow_up(cli, slurm, cancelling):
    """Pitfall 62: the script's own requeue works there too, and what waited for its failure is dropped."""
    first, second = preempted_in_spot(cli, slurm)
    assert slurm.wait(first) == "COMPLETED", slurm.log(first)
    assert "requeue: the attempt was ended before the training was" in slurm.log(first)
    assert slurm.field(first, "Restarts") == "1"
    assert slurm.wait(second) == "CANCELLED"
