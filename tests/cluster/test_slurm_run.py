"""Rendered scripts on the real Slurm: what reaches the program, and what happens when things go wrong."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobgen.effective.resolve import assume
from jobgen.launch.build import build
from jobgen.spec.document import load_text
from jobgen.targets import render

pytestmark = [pytest.mark.cluster, pytest.mark.slurm]
HERE = Path(__file__).parent
PROBE = HERE / "programs" / "probe.py"
NODES = "node[3-4]"


def _helper():
    name = "jobgen_tests_slurm_cluster"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "slurm_cluster.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def slurm():
    found = _helper().find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def torch_venv(tmp_path_factory):
    found = _helper().torch_python(tmp_path_factory.mktemp("torch") / "venv")
    if isinstance(found, str):
        pytest.skip(found)
    return found


def spec_of(folder: Path, **changes: object) -> str:
    """A job of two nodes with two ranks each that runs the probe; ``changes`` by dotted path."""
    tree: dict[str, object] = {
        "name": "probe",
        "model": {"config": str(HERE.parent.parent / "examples" / "tiny" / "config.json"), "init": "random"},
        "training": {"method": "full", "framework": "transformers", "sequence_length": 64, "max_steps": 40, "precision": "fp32",
                     "versions": {"transformers": "4.57.1"}},
        "resources": {"nodes": 2, "gpus_per_node": 2, "gpu": {"name": "cpu", "memory": "2GiB"}, "memory_per_node": "4GiB",
                      "cpus_per_node": 2, "fabric": "none"},
        "checkpoint": {"directory": str(folder / "ck"), "every_steps": 5, "keep": 5},
        "launch": {"launcher": "srun", "entrypoint": str(PROBE), "time_limit": "10m"},
        "slurm": {"partition": "spot", "account": "research", "extra": {"nodelist": NODES}},
    }  # fmt: skip
    for path, value in changes.items():
        node = tree
        *above, last = path.split("__")
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found.group()):04x}", json.dumps(tree, ensure_ascii=False))


def script_of(folder: Path, **changes: object) -> str:
    document = load_text(spec_of(folder, **changes))
    return render("slurm", build(assume(document).effective, "slurm", folder), document.spec).text


def fake_python(folder: Path) -> Path:
    """A "virtual environment" whose python is this one."""
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        if not (venv / "bin" / name).exists():
            (venv / "bin" / name).symlink_to("/usr/bin/python3")
    return venv


@pytest.fixture
def here(tmp_path):
    """A folder that all nodes see."""
    tmp_path.chmod(0o755)
    return tmp_path


def submit(slurm, here, env=None, **changes):
    changes.setdefault("launch__python", {"venv": str(fake_python(here))})
    return slurm.submit(script_of(here, **changes), here, env)


def probes(here: Path, attempt: int = 0) -> dict[int, dict]:
    found = {}
    for path in (here / "ck").glob(f"probe-{attempt}-*.json"):
        found[int(path.stem.split("-")[2])] = json.loads(path.read_text())
    return found


HOSTILE = [
    "plain", "two words", "", "it's", 'say "hi"', "$HOME", "${PATH}", "$(id)", "`id`", "a\nb\n", "\t", "back\\slash", "\\", "'",
    "'\"'\"'", "-n", "--", "--help", "*", "?", "~", "!!", "a;b", "a|b", "a&b", ">x", "#no", "#SBATCH --nodes=9", "%j", "{{ x }}",
    "{config", "naïve — 日本語 🚀", "é" * 40, "a=b", "end\\", "END_OF_PROGRAM", "x\nEND_OF_PROGRAM\ny",
    "$'\\n'", "\u2028", "a" * 65536,
]  # fmt: skip


def test_hostile_arguments_and_variables_arrive_unchanged_on_every_rank(slurm, here):
    """Pitfall 34: nothing is split, expanded or eaten on the way from the spec to the process."""
    env = {f"PROBE_V{index}": value for index, value in enumerate(HOSTILE)}
    job = submit(slurm, here, launch__args=HOSTILE, launch__env=env, training__max_steps=1)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    found = probes(here)
    assert sorted(found) == [0, 1, 2, 3]
    for one in found.values():
        assert one["argv"][-len(HOSTILE) :] == HOSTILE
        assert {name: one["env"].get(name) for name in env} == env


def test_every_rank_knows_its_place(slurm, here):
    """Pitfalls 22, 23, 24, 26: ranks are computed on the node, the master is the first host, the port is the job's."""
    job = submit(slurm, here, training__max_steps=1, slurm__partition="gpu")
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    found = probes(here)
    assert {rank: (one["env"]["LOCAL_RANK"], one["host"]) for rank, one in found.items()} == {
        0: ("0", "node3"), 1: ("1", "node3"), 2: ("0", "node4"), 3: ("1", "node4"),
    }  # fmt: skip
    for one in found.values():
        assert one["env"]["MASTER_ADDR"] == "node3"
        assert one["env"]["MASTER_PORT"] == str(20000 + int(job) % 10000)
        assert one["env"]["WORLD_SIZE"] == "4"
        assert one["env"]["OMP_NUM_THREADS"] == "1"
        assert one["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_submitters_shell_decides_nothing(slurm, here):
    """Pitfalls 32, 33: RANK, MASTER_ADDR and the like of a login shell are gone, and --export=NONE takes nothing away."""
    leaked = os.environ | {"RANK": "7", "WORLD_SIZE": "99", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1", "PET_NNODES": "3",
                           "ACCELERATE_USE_FSDP": "true", "TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "77",
                           "SLURM_EXPORT_ENV": "NONE"}  # fmt: skip
    job = submit(slurm, here, env=leaked, training__max_steps=1, launch__env={"MINE": "kept"})
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    for one in probes(here).values():
        assert one["env"]["MASTER_ADDR"] == "node3"
        assert one["env"]["WORLD_SIZE"] == "4"
        assert one["env"]["MINE"] == "kept"
        assert not {"PET_NNODES", "ACCELERATE_USE_FSDP", "TORCHELASTIC_RUN_ID"} & set(one["env"])
        assert one["env"]["OMP_NUM_THREADS"] == "1"


def test_secrets_come_from_the_submitter_and_stand_nowhere(slurm, here):
    env = os.environ | {"HF_TOKEN": "hf_secret value'$x"}
    script = script_of(here, launch__secrets=["HF_TOKEN"], training__max_steps=1, launch__python={"venv": str(fake_python(here))})
    job = slurm.submit(script, here, env)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert all(one["env"]["HF_TOKEN"] == "hf_secret value'$x" for one in probes(here).values())
    for path in (here / "ck" / ".jobgen").rglob("*"):
        assert not path.is_file() or "hf_secret" not in path.read_text()
    assert "hf_secret" not in slurm.log(job)

    without = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    job = slurm.submit(script, here, without)
    assert slurm.wait(job) == "FAILED"
    assert "HF_TOKEN: is a secret of this job" in slurm.log(job)


def test_preparation_once_copies_everywhere_and_finish_after_success_only(slurm, here):
    source = here / "data set"
    source.mkdir()
    (source / "a").write_text("x")
    job = submit(
        slurm, here, training__max_steps=1,
        launch__prepare=[f"echo prepared $SLURMD_NODENAME >> {here}/prepared", 'echo "open (" # it is'],
        launch__stage=[{"from": str(source), "to": str(here / "staged")}],
        launch__finish=[f"echo finished $SLURMD_NODENAME >> {here}/finished"],
        launch__setup=["export FROM_SETUP=1"],
    )  # fmt: skip
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert (here / "prepared").read_text() == "prepared node3\n"
    assert (here / "finished").read_text() == "finished node3\n"
    assert (here / "staged" / "a").read_text() == "x"
    assert all(one["env"]["FROM_SETUP"] == "1" for one in probes(here).values())

    (here / "finished").unlink()
    job = submit(slurm, here, training__max_steps=1, launch__env={"PROBE_EXIT": "3"}, launch__finish=[f"touch {here}/finished"])
    assert slurm.wait(job) == "FAILED"
    assert not (here / "finished").exists()
    assert slurm.field(job, "ExitCode") == "3:0"


@pytest.mark.fault("fails at once", "ends failed, at most one restart", "none")
def test_a_job_that_fails_at_once_is_not_started_again(slurm, here):
    """Pitfall 63: no restart without progress, whatever restarts allows."""
    job = submit(slurm, here, launch__restarts=5, training__max_steps=0 + 1, checkpoint__every_steps=5, launch__env={"PROBE_EXIT": "9", "PROBE_PAUSE": "0"},
                 launch__args=["--max_steps", "0"])  # fmt: skip
    state = slurm.wait(job)
    log = slurm.log(job)
    assert (state, slurm.field(job, "Restarts")) in [("FAILED", "0"), ("FAILED", "1")], log
    assert "without a new checkpoint, so another attempt would fail too" in log


@pytest.mark.fault("a rank killed (SIGKILL)", "all ranks end, requeued, resumes", "one interval")
def test_a_killed_rank_ends_the_job_which_goes_on_from_the_last_checkpoint(slurm, here):
    """Pitfalls 27, 61: one dead rank ends the step at once; the attempt made progress, so it is worth another."""
    job = submit(slurm, here, launch__restarts=3, launch__env={"PROBE_DIES_RANK": "3", "PROBE_DIES_AT": "12"})
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    log = slurm.log(job)
    assert "it failed (137) after a new checkpoint" in log
    assert re.search(r"jobgen: attempt 1 on node3 node4, from \S+/ck/checkpoint-[1-3][0-9]\n", log)
    assert "rank 0: finished at step 40" in log
    assert slurm.field(job, "Restarts") == "1"


@pytest.mark.fault("newest checkpoint half written", "the one before is taken", "one interval")
def test_a_half_written_checkpoint_is_passed_over(slurm, here):
    ck = here / "ck"
    for step in (5, 10):
        (ck / f"checkpoint-{step}").mkdir(parents=True)
    (ck / "checkpoint-5" / "trainer_state.json").write_text('{"global_step": 5}')
    job = submit(slurm, here, training__max_steps=8)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert "rank 0: start at step 5" in slurm.log(job)


def test_the_folder_of_another_model_or_batch_is_refused(slurm, here):
    assert slurm.wait(submit(slurm, here, training__max_steps=1)) == "COMPLETED"
    job = submit(slurm, here, training__max_steps=1, training__micro_batch_size=2)
    assert slurm.wait(job) == "FAILED"
    assert "holds the run of another model or batch" in slurm.log(job)


def preempt(slurm, here, job, after):
    """Wait for a line of the job's log, then take its nodes for a few seconds."""
    slurm.until(job, lambda: after in slurm.log(job), 90, repr(after))
    high = "#!/bin/bash\n#SBATCH --partition=high --account=research --nodes=2 --exclusive --mem=0 --time=1\n" \
           f"#SBATCH --nodelist={NODES} --output=/dev/null\nsleep 5\n"  # fmt: skip
    return slurm.submit(high, here)


@pytest.mark.fault("preemption", "told, saves, requeued, resumes", "none")
def test_a_preempted_job_saves_leaves_and_goes_on_where_it_was(slurm, here):
    """Pitfalls 56, 57, 60, 64: the signal reaches the program, exit 0 in the grace period is not the end, the log grows."""
    job = submit(slurm, here, launch__restarts=3, training__max_steps=60)
    preempt(slurm, here, job, "saved 10")
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    log = slurm.log(job)
    saved = [int(step) for step in re.findall(r"told to stop \(10\) at step (\d+)", log)]
    assert saved, log
    assert "requeue: the attempt was ended before the training was" in log
    resumed = int(re.findall(r"rank 0: start at step (\d+)", log)[1])
    assert abs(resumed - saved[0]) <= 1
    assert log.count("jobgen: attempt ") == 2
    assert "rank 0: finished at step 60" in log


@pytest.mark.parametrize(("name", "number"), [("USR2", 12), ("TERM", 15)])
def test_the_chosen_signal_arrives_before_the_limit_and_the_job_goes_on(slurm, here, name, number):
    """Pitfall 66: Slurm itself sends it, every rank hears it, and the restarted attempt begins at the saved step."""
    job = submit(slurm, here, launch__restarts=3, training__max_steps=120, launch__time_limit="1m", slurm__signal_before="30s", slurm__signal=name,
                 launch__env={"PROBE_PAUSE": "0.4"})  # fmt: skip
    assert slurm.wait(job, 240) == "COMPLETED", slurm.log(job)
    log = slurm.log(job)
    stopped = re.findall(r"rank (\d): told to stop \((\d+)\) at step (\d+)", log)
    assert {(rank, told) for rank, told, _ in stopped} == {(str(rank), str(number)) for rank in range(4)}, log
    assert "requeue: the attempt was ended before the training was" in log
    resumed = int(re.findall(r"rank 0: start at step (\d+)", log)[1])
    assert abs(resumed - int(stopped[0][2])) <= 1
    assert "rank 0: finished at step 120" in log


@pytest.mark.fault("a signal after the end", "stays completed", "none")
def test_a_late_signal_does_not_undo_success(slurm, here):
    """Pitfall 58: the program said it is done; the signal that comes while it cleans up changes nothing."""
    job = submit(slurm, here, launch__restarts=3, training__max_steps=5, launch__env={"PROBE_SAYS_DONE": "1", "PROBE_LINGERS": "8"})
    slurm.until(job, lambda: "finished at step 5" in slurm.log(job), 60, "finish")
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert slurm.field(job, "Restarts") == "0"


@pytest.mark.fault("time limit again and again", "requeued up to restarts, then failed", "one interval")
def test_restarts_are_capped(slurm, here):
    """Pitfall 63: after the last allowed restart an unfinished job ends with a failure."""
    job = submit(slurm, here, launch__restarts=1, training__max_steps=10000, launch__env={"PROBE_PAUSE": "0.5"})
    for attempt in (0, 1):
        slurm.until(job, lambda n=attempt: slurm.log(job).count("rank 0: start at step") == n + 1, 90, "start")
        slurm.run("scancel", "--signal=USR1", "--batch", job)
        slurm.until(job, lambda n=attempt: slurm.log(job).count("told to stop (10)") >= 4 * (n + 1), 60, "stop")
    assert slurm.wait(job) == "FAILED", slurm.log(job)
    assert "1 restarts are used up" in slurm.log(job)
    assert slurm.field(job, "ExitCode") == "75:0"


@pytest.mark.fault("scancel", "ends cancelled, not requeued", "none")
def test_a_cancelled_job_stays_cancelled(slurm, here):
    job = submit(slurm, here, launch__restarts=3, training__max_steps=10000)
    slurm.until(job, lambda: "saved 5" in slurm.log(job), 60, "checkpoint")
    slurm.run("scancel", job)
    assert slurm.wait(job) == "CANCELLED", slurm.log(job)
    assert "requeue:" not in slurm.log(job)


FAKE_APPTAINER = """#!/usr/bin/python3
# What apptainer exec --cleanenv does to a command line and an environment; nothing is isolated.
import json, os, sys
words, binds = sys.argv[1:], []
assert words.pop(0) == "exec"
while words[0].startswith("-"):
    if words.pop(0) == "--bind":
        binds.append(words.pop(0))
image = words.pop(0)
env = {k.removeprefix("APPTAINERENV_"): v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}
env |= {"PATH": os.environ["PATH"], "APPTAINER_CONTAINER": image, "SEEN_BINDS": json.dumps(binds), "NCCL_DEBUG": "TRACE"}
os.execvpe(words[0], words, env)
"""


def test_apptainer_on_two_nodes_gets_binds_and_variables(slurm, here):
    """Pitfalls 49, 55: with --cleanenv everything that is needed arrives, and the spec's variables win over the image's."""
    tool = here / "bin" / "apptainer"
    tool.parent.mkdir()
    tool.write_text(FAKE_APPTAINER)
    tool.chmod(0o755)
    job = submit(
        slurm, here, env=os.environ | {"HF_TOKEN": "hf_'$x"}, training__max_steps=1, launch__image="/images/a.sif", slurm__container="apptainer",
        launch__setup=[f"export PATH={here}/bin:$PATH"], launch__secrets=["HF_TOKEN"], launch__env={"MINE": "x'\n$y"},
        volumes=[{"mount": str(here), "path": str(here)}, {"mount": "/data", "path": "/tmp", "read_only": True}],
    )  # fmt: skip
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    found = probes(here)
    assert sorted(found) == [0, 1, 2, 3]
    for rank, one in found.items():
        env = one["env"]
        assert (env["APPTAINER_CONTAINER"], env["HF_TOKEN"], env["MINE"], env["NCCL_DEBUG"]) == ("/images/a.sif", "hf_'$x", "x'\n$y", "WARN")
        assert json.loads(env["SEEN_BINDS"]) == [f"{here}:{here}", "/tmp:/data:ro"]
        assert (env["RANK"], env["MASTER_ADDR"], env["CUDA_VISIBLE_DEVICES"]) == (str(rank), "node3", "0,1")


def test_pyxis_gets_the_image_the_mounts_and_the_variables(slurm, here):
    """Pitfalls 48-52, with a plug-in that checks the flags' syntax and tells each task what it saw."""
    if "--container-image" not in slurm.run("srun", "--help"):
        pytest.skip("the cluster was started without JG_FAKE_PYXIS=1")
    job = submit(
        slurm, here, training__max_steps=1, launch__image="nvcr.io/nvidia/pytorch:25.09-py3", slurm__container="pyxis",
        volumes=[{"mount": str(here), "path": str(here)}, {"mount": "/data", "path": "/tmp", "read_only": True}, {"mount": "/local", "scratch": True}],
    )  # fmt: skip
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    env = probes(here)[2]["env"]
    assert env["FAKEPYXIS_IMAGE"] == "nvcr.io#nvidia/pytorch:25.09-py3"
    assert env["FAKEPYXIS_MOUNTS"] == f"{here}:{here},/tmp:/data:ro,/tmp/jobgen-{job}/scratch2:/local"
    assert env["FAKEPYXIS_NO_MOUNT_HOME"] == "1"
    assert "MASTER_ADDR" in env["FAKEPYXIS_ENV"].split(",")
    assert not Path(f"/tmp/jobgen-{job}/scratch2").exists()


def test_a_small_limit_of_locked_memory_is_raised_and_warned_of(slurm, here):
    """Pitfall 44: the submitting shell's soft limit of 64 KiB reaches the job; the program gets the node's own, and where that
    is small too the log says so, once a node."""
    script = script_of(here, training__max_steps=1, resources__fabric="infiniband", launch__python={"venv": str(fake_python(here))})
    (here / "job.sh").write_text(script)
    (here / "send.sh").write_text("ulimit -S -l 64\nexec sbatch --parsable job.sh\n")

    def limits(job):
        assert slurm.wait(job) == "COMPLETED", slurm.log(job)
        return {tuple(one["locked"]) for one in probes(here).values()}

    job = slurm.run("slurm-exec", "bash", "send.sh", cwd=here).strip()
    ((soft, hard),) = limits(job)
    assert soft == hard != 64 * 1024
    small = hard != -1
    assert slurm.log(job).count("of memory (ulimit -l), not unlimited: infiniband registers") == 2 * small
    assert not small or f"jobgen: warning: node4 may lock {hard // 1024} KiB" in slurm.log(job)

    job = submit(slurm, here, training__max_steps=1, resources__fabric="infiniband", launch__setup=["ulimit -l 128"], slurm__extra={"propagate": "NONE", "nodelist": NODES})
    assert limits(job) == {(128 * 1024, 128 * 1024)}
    assert "node3 may lock 128 KiB" in slurm.log(job)
    assert "LimitMEMLOCK=infinity" in slurm.log(job)
    assert "#SBATCH --propagate=NONE" in slurm.run("scontrol", "write", "batch_script", job, "-")


@pytest.mark.fault("scontrol requeue", "resumes", "one interval")
def test_a_job_that_is_requeued_by_hand_goes_on(slurm, here):
    job = submit(slurm, here, launch__restarts=2, training__max_steps=60)
    slurm.until(job, lambda: "saved 10" in slurm.log(job), 60, "checkpoint")
    slurm.run("scontrol", "requeue", job)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert re.findall(r"rank 0: start at step (\d+)", slurm.log(job))[1] >= "10"


def test_a_path_to_resume_from_is_the_start_only(slurm, here):
    """The first attempt begins at the path, a requeued one and a later job at what the run has saved itself."""
    old = here / "old" / "checkpoint-7"
    old.mkdir(parents=True)
    (old / "trainer_state.json").write_text('{"global_step": 7}')
    job = submit(slurm, here, launch__restarts=2, training__max_steps=60, checkpoint__resume=str(old))
    slurm.until(job, lambda: "saved 15" in slurm.log(job), 60, "checkpoint")
    slurm.run("scontrol", "requeue", job)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    first, second = (int(step) for step in re.findall(r"rank 0: start at step (\d+)", slurm.log(job)))
    assert first == 7
    assert second >= 15
    later = submit(slurm, here, training__max_steps=61, checkpoint__resume=str(old))
    assert slurm.wait(later) == "COMPLETED", slurm.log(later)
    assert "rank 0: start at step 60" in slurm.log(later)


@pytest.mark.fault("a node goes down", "Slurm requeues, resumes", "one interval")
def test_a_lost_node_costs_at_most_one_checkpoint_interval(slurm, here):
    job = submit(slurm, here, launch__restarts=2, training__max_steps=60)
    slurm.until(job, lambda: "saved 10" in slurm.log(job), 60, "checkpoint")
    slurm.run("scontrol", "update", "nodename=node4", "state=down", "reason=test")
    try:
        slurm.until(job, lambda: slurm.state(job) == "PENDING", 60, "requeue")
    finally:
        slurm.run("scontrol", "update", "nodename=node4", "state=resume", check=False)  # it may be back by itself
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert int(re.findall(r"rank 0: start at step (\d+)", slurm.log(job))[1]) >= 10
    assert "rank 0: finished at step 60" in slurm.log(job)


@pytest.mark.fault("the checkpoint disk is full", "ends failed, last checkpoint whole", "one interval")
def test_a_full_disk_ends_the_job_and_leaves_the_last_checkpoint(slurm, here):
    ck = here / "ck"
    ck.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(ck)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        job = submit(slurm, here, launch__restarts=3, training__max_steps=60)
        slurm.until(job, lambda: "saved 10" in slurm.log(job), 60, "checkpoint")
        with contextlib.suppress(OSError):
            (ck / "rubbish").write_bytes(b"x" * 2_000_000)
        assert slurm.wait(job) == "FAILED", slurm.log(job)
        assert "No space left on device" in slurm.log(job)
        assert int(slurm.field(job, "Restarts")) <= 1
        assert json.loads((ck / "checkpoint-10" / "trainer_state.json").read_text()) == {"global_step": 10}
    finally:
        subprocess.run(["umount", str(ck)], check=False)


@pytest.mark.fault("one array member fails", "the others end", "none")
def test_an_array_member_that_fails_fails_alone(slurm, here):
    job = submit(slurm, here, training__max_steps=1, launch__prepare=['[ "$SLURM_ARRAY_TASK_ID" != 1 ]'], resources__nodes=1,
                 slurm__extra={"array": "0-2", "nodelist": None})  # fmt: skip
    assert [slurm.wait(f"{job}_{member}") for member in (0, 1, 2)] == ["COMPLETED", "FAILED", "COMPLETED"]


@pytest.mark.fault("afterok on a failed job", "the follow-up is dropped", "none")
def test_what_waits_for_a_failed_job_does_not_wait_for_ever(slurm, here):
    """Pitfall 67."""
    first = submit(slurm, here, training__max_steps=1, launch__env={"PROBE_EXIT": "3"})
    second = submit(slurm, here, training__max_steps=1, after=[{"job": first}])
    third = submit(slurm, here, training__max_steps=1, after=[{"job": first, "on": "end"}])
    assert [slurm.wait(job) for job in (first, second, third)] == ["FAILED", "CANCELLED", "COMPLETED"]


def test_two_jobs_on_one_node_have_ports_of_their_own(slurm, here):
    """Pitfall 26."""
    (here / "a").mkdir()
    (here / "b").mkdir()
    jobs = [submit(slurm, here / name, training__max_steps=5, resources__nodes=1, slurm__extra={"nodelist": "node3"}) for name in "ab"]
    assert [slurm.wait(job) for job in jobs] == ["COMPLETED", "COMPLETED"]
    assert len({probes(here / name)[0]["env"]["MASTER_PORT"] for name in "ab"}) == 2


@pytest.mark.fault("a rank hangs on shutdown", "ended after the wait", "none")
def test_a_rank_that_hangs_at_its_end_does_not_hold_the_job(slurm, here):
    """Pitfall 27: srun --wait ends the others a minute after the first has ended."""
    job = submit(slurm, here, training__max_steps=1, launch__env={"PROBE_SAYS_DONE": "1", "PROBE_HANGS_RANK": "3"})
    assert slurm.wait(job, 150) == "COMPLETED", slurm.log(job)


@pytest.mark.fault("a program deaf to signals", "ended in time, requeued, resumes", "one interval")
def test_a_program_that_hears_nothing_is_ended_in_time_and_goes_on(slurm, here):
    """Pitfall 61: without this it would run into the limit, and Slurm would not start it again."""
    job = submit(slurm, here, launch__restarts=2, training__max_steps=60, slurm__signal_before="18s", launch__env={"PROBE_DEAF_AT": "0"})
    slurm.until(job, lambda: "saved 10" in slurm.log(job), 60, "checkpoint")
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    assert slurm.wait(job) == "COMPLETED", slurm.log(job)
    assert slurm.field(job, "Restarts") == "1"
    assert "told to stop" not in slurm.log(job)
    assert int(re.findall(r"rank 0: start at step (\d+)", slurm.log(job))[1]) >= 10


@pytest.mark.fault("preemption told to steps only", "requeued, resumes", "one interval")
def test_preemption_of_which_the_batch_shell_is_not_told(slurm, here):
    """Pitfall 59: without preempt_send_user_signal only the steps get SIGTERM; a program that leaves with 0 is not done."""
    if os.environ.get("JOBGEN_CLUSTER") != "1":
        pytest.skip("changes the configuration of the cluster: set JOBGEN_CLUSTER=1")
    conf = Path("/etc/slurm/slurm.conf")
    before = conf.read_text()
    conf.write_text(before.replace("SlurmctldParameters=preempt_send_user_signal", "#SlurmctldParameters=preempt_send_user_signal"))
    try:
        slurm.run("scontrol", "reconfigure")
        job = submit(slurm, here, launch__restarts=3, training__max_steps=60)
        preempt(slurm, here, job, "saved 10")
        assert slurm.wait(job) == "COMPLETED", slurm.log(job)
        log = slurm.log(job)
        assert "time is up" not in log
        assert "told to stop (15)" in log
        assert len(re.findall(r"rank 0: start at step (\d+)", log)) == 2
        assert "rank 0: finished at step 60" in log
    finally:
        conf.write_text(before)
        slurm.run("scontrol", "reconfigure")


def test_sbatch_takes_every_golden_script(slurm, here):
    """But for what this cluster does not have: the reservation, the jobs that are waited for."""
    folder = HERE.parent / "targets" / "golden" / "shell"
    tried = 0
    for path in sorted(folder.glob("*.sh")):
        text = path.read_text()
        if not text.startswith("#!/bin/bash\n#SBATCH"):
            continue
        text = text.replace("--reservation=res", "--begin=now").replace("afterok:1234,afterany:77", "singleton").replace("--contiguous", "--spread-job")
        assert "to start at" in slurm.run("sbatch", "--test-only", cwd=here, stdin=text, check=False), path.name
        tried += 1
    assert tried >= 15


TRAIN = HERE.parent.parent / "examples" / "tiny" / "train.py"


def train(slurm, here, venv, **changes):
    """The tiny trainer (DDP, gloo) by torchrun on two nodes with two ranks each."""
    old = "site-packages" not in os.environ.get("JOBGEN_TORCH", "") and not os.environ.get("JOBGEN_TORCH")
    changes = {
        "training__framework": "custom", "training__versions": {"torch": "1.13.1"} if old else {}, "launch__launcher": "torchrun",
        "launch__entrypoint": str(TRAIN), "launch__python": {"venv": str(venv)}, "launch__restarts": 5,
        "launch__env": {"GLOO_SOCKET_IFNAME": "eth0"},
        "launch__args": ["--directory", str(here / "ck"), "--steps", "60", "--save-every", "10", "--seconds-per-step", "0.3"],
    } | changes  # fmt: skip
    return slurm.submit(script_of(here, **changes), here)


@pytest.mark.fault("preemption of torch training", "told, saves, requeued, ends at its step", "none")
def test_torchrun_training_is_preempted_requeued_and_ends_at_the_right_step(slurm, here, torch_venv):
    job = train(slurm, here, torch_venv)
    preempt(slurm, here, job, "step 20")
    assert slurm.wait(job, 240) == "COMPLETED", slurm.log(job)
    log = slurm.log(job)
    stopped = int(re.search(r"told to stop, saved at step (\d+)", log).group(1))
    assert 20 <= stopped < 60
    assert re.findall(r"(?:started|resumed) at step (\d+) on 4 ranks", log) == ["0", str(stopped)]
    assert "finished at step 60" in log
    assert (here / "ck" / "step-60" / "complete").exists()


@pytest.mark.fault("time limit of torch training", "told, saves, requeued, ends at its step", "none")
def test_torchrun_training_outlives_its_time_limit(slurm, here, torch_venv):
    """Pitfalls 61, 65: each attempt is told in time, saves, and is followed by another until all steps are done."""
    job = train(slurm, here, torch_venv, launch__time_limit="2m", slurm__signal_before="30s",
                launch__args=["--directory", str(here / "ck"), "--steps", "100", "--save-every", "50", "--seconds-per-step", "1.2"])  # fmt: skip
    assert slurm.wait(job, 480) == "COMPLETED", slurm.log(job)
    log = slurm.log(job)
    stopped = re.findall(r"told to stop, saved at step (\d+)", log)
    starts = re.findall(r"(?:started|resumed) at step (\d+) on 4 ranks", log)
    assert stopped
    assert starts == ["0", *stopped]
    assert "finished at step 100" in log


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed", "srun"])
def test_every_launcher_joins_two_nodes_in_one_world(slurm, here, torch_venv, launcher):
    """Pitfalls 18, 23, 25, 39, 40 with the real launchers."""
    if launcher != "srun" and not (torch_venv / "bin" / launcher).exists():
        pytest.skip(f"{launcher} is not in {torch_venv} (JOBGEN_TORCH)")
    words = ["two words", "$HOME", "it's"]
    job = train(slurm, here, torch_venv, launch__launcher=launcher, launch__entrypoint=str(HERE / "programs" / "allreduce.py"), launch__args=words,
                launch__env={"GLOO_SOCKET_IFNAME": "eth0", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true"})  # fmt: skip
    assert slurm.wait(job, 240) == "COMPLETED", slurm.log(job)
    said = sorted((json.loads(one) for one in re.findall(r"RESULT (\{.*?\})", slurm.log(job))), key=lambda one: one["rank"])
    assert [(one["rank"], one["world"], one["host"], one["sum"]) for one in said] == [
        (0, 4, "node3", 10.0), (1, 4, "node3", 10.0), (2, 4, "node4", 10.0), (3, 4, "node4", 10.0),
    ]  # fmt: skip
    assert all(one["argv"][-3:] == words for one in said)
