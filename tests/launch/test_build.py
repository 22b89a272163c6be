"""From a spec to the job: environment, files, program, resources, resume."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from jobgen.launch.job import RunTime, Unrenderable

_PATH = Path(__file__).parent.parent / "targets" / "shell_jobs.py"
if "shell_jobs" not in sys.modules:
    _SPEC = importlib.util.spec_from_file_location("shell_jobs", _PATH)
    sys.modules["shell_jobs"] = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(sys.modules["shell_jobs"])
shell_jobs = sys.modules["shell_jobs"]

TRANSFORMERS = {"training__framework": "transformers", "training__versions": {"transformers": "4.57.1"}}


def made(target="slurm", base=None, **changes):
    return shell_jobs.job(target, base, **changes)[0]


def env(job):
    return {one.name: one.value.literal for one in job.env}


def words(job):
    return ["".join(part if not isinstance(part, RunTime) else f"<{part.value}>" for part in one.parts) for one in job.command.words]


def refused(path, **changes):
    with pytest.raises(Unrenderable) as found:
        made(**changes)
    assert found.value.path == path
    return found.value


def test_the_environment_by_layers():
    job = made(launch__env={"NCCL_DEBUG": "INFO", "MINE": "x"})
    assert env(job)["NCCL_DEBUG"] == "INFO"
    assert [one.name for one in job.env][-2:] == ["NCCL_DEBUG", "MINE"]
    assert {one.name: one.layer for one in job.env}["MINE"] == "user"
    assert env(job)["TORCH_FR_BUFFER_SIZE"] == env(job)["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert env(job)["JOBGEN_CHECKPOINT_DIR"] == "/shared/ck"
    newer = env(made(training__versions={"torch": "2.10.0"}))
    assert newer["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in newer


def test_what_is_not_set():
    """Constants of other people's scripts that are worse than nothing."""
    names = set(env(made()))
    assert not names & {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE",
                        "TORCH_DISTRIBUTED_DEBUG", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_SOCKET_IFNAME", "HF_HOME"}  # fmt: skip


@pytest.mark.parametrize(("gpu", "split", "expected"), [
    ("h100-80gb", {"tensor": 2}, "1"), ("h100-80gb", {"context": 2}, "1"), ("h100-80gb", {}, None), ("b200-180gb", {"tensor": 2}, None),
    ("h100-80gb", {"tensor": 2, "sharding": "fsdp2"}, None),
])  # fmt: skip
def test_device_connections_follow_the_backend_the_parallelism_and_the_gpu(gpu, split, expected):
    from jobgen.catalog import gpus

    name = next((one for one in gpus.names() if one.startswith(gpu.split("-")[0])), gpu)
    job = made(training__framework="megatron-lm", resources__gpu={"name": name, "memory": "80GiB"} if "b200" not in name else name, parallelism=split)
    assert env(job).get("CUDA_DEVICE_MAX_CONNECTIONS") == expected


def test_local_caches_are_slurms():
    assert "TRITON_CACHE_DIR" in env(made("slurm"))
    assert "TRITON_CACHE_DIR" not in env(made("k8s"))


def test_shipped_code_is_started_from_where_it_lies(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run.sh").write_text("x\n")
    job = made(base=tmp_path, launch__code={"files": ["train.py", "sub/run.sh"]}, launch__entrypoint="./train.py")
    assert [(one.name, one.content, one.executable) for one in job.files] == [("train.py", "print(1)\n", False), ("run.sh", "x\n", True)]
    assert "<CONFIG_DIR>/train.py" in words(job)


def test_code_that_cannot_be_shipped_is_refused(tmp_path):
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    (tmp_path / "big").write_text("x" * 600_000)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "same.py").write_text("")
    (tmp_path / "same.py").write_text("")
    assert "not text" in refused("launch.code.files.0", base=tmp_path, launch__code={"files": ["bin"]}).why
    assert "No such file" in refused("launch.code.files.0", base=tmp_path, launch__code={"files": ["nowhere"]}).why
    assert "512 KiB" in refused("launch.code.files", base=tmp_path, launch__code={"files": ["big"]}).why
    assert "two files" in refused("launch.code.files.1", base=tmp_path, launch__code={"files": ["same.py", "a/same.py"]}).why


def test_a_mounted_code_folder_is_where_the_program_starts():
    assert made(launch__code="/workspace/repo").working_directory == "/workspace/repo"
    assert made(launch__code="/workspace/repo", launch__working_directory="/w").working_directory == "/w"
    assert made().working_directory is None


def test_arguments_are_passed_as_they_are_after_the_frameworks():
    job = made(**TRANSFORMERS, launch__args=["--my", "{config", "x y"])
    assert words(job)[-3:] == ["--my", "{config", "x y"]
    assert [one.origin for one in job.command.words][-3:] == ["launch.args.0", "launch.args.1", "launch.args.2"]


def test_the_config_is_named_by_its_place():
    job = made(training__framework="axolotl", launch__entrypoint=None, launch__command=["axolotl", "train", "{config}"],
               training__options={"datasets": [{"path": "x", "type": "alpaca"}]})  # fmt: skip
    name = next(one.name for one in job.files)
    assert words(job)[:3] == ["axolotl", "train", f"<CONFIG_DIR>/{name}"]


def test_resume_follows_the_frameworks_layout():
    resume = made(**TRANSFORMERS).resume
    assert (resume.mode, resume.pattern, resume.complete_marker, resume.by_framework) == ("auto", "checkpoint-*", "trainer_state.json", False)
    assert ["".join(map(str, one.parts)) for one in resume.arguments] == ["--resume_from_checkpoint", "RESUME_FROM"]
    assert made(**TRANSFORMERS, checkpoint__resume="never").resume.mode == "never"
    assert made(**TRANSFORMERS, checkpoint__resume="/x/checkpoint-5").resume.path == "/x/checkpoint-5"
    megatron = made(training__framework="megatron-lm").resume
    assert (megatron.tracker, megatron.by_framework) == ("latest_checkpointed_iteration.txt", True)


def test_the_fingerprint_is_the_models_and_the_batchs():
    first = made().resume.fingerprint
    assert made(launch__args=["x"], checkpoint__every_steps=7, launch__time_limit="2h").resume.fingerprint == first
    assert made(training__micro_batch_size=2).resume.fingerprint != first
    assert made(training__method="lora").resume.fingerprint != first


def test_resources_are_what_the_node_type_leaves():
    whole = made(resources={"nodes": 1, "gpus_per_node": 8, "gpu": "h100-80gb", "node_type": "p5.48xlarge", "fabric": "none"})
    half = made(resources={"nodes": 1, "gpus_per_node": 4, "gpu": "h100-80gb", "node_type": "p5.48xlarge", "fabric": "none"})
    assert (whole.exclusive, half.exclusive) == (True, False)
    assert half.memory_per_node_bytes * 2 == pytest.approx(whole.memory_per_node_bytes, abs=2)
    assert half.cpus_per_node * 2 == whole.cpus_per_node
    assert made(resources__exclusive=True).exclusive


def test_a_fabric_gives_its_variables_and_its_script():
    job = made(resources__fabric="gcp-gib")
    assert job.environment_script == "/usr/local/gib/scripts/set_nccl_env.sh"
    assert {one.layer for one in job.env} >= {"jobgen"}
    assert refused("resources.fabric", resources__fabric="nonsuch").fix


def test_what_has_no_program_is_refused():
    assert "launch.entrypoint" in refused("launch.entrypoint", launch__entrypoint=None).path
    assert "Ray" in refused("resources.nodes", training__framework="verl", training__objective="grpo", launch__entrypoint=None, launch__launcher=None,
                            parallelism__sharding="fsdp2").why  # fmt: skip


def test_a_deepspeed_file_is_made_from_the_spec():
    job = made(launch__launcher="deepspeed", training__framework="deepspeed", parallelism__sharding="zero3", training__micro_batch_size=2)
    config = json.loads(next(one.content for one in job.files if one.name == "deepspeed.json"))
    assert config["zero_optimization"]["stage"] == 3
    assert config["train_micro_batch_size_per_gpu"] == 2
