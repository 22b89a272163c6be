"""Pitfalls of batch scripts for multi-node training, by their numbers in the facts: what a script shows, or is refused.

Those of the submitting command are tested with the schedulers, those that only a cluster shows again in tests/cluster:
test_pitfall_table.py names a test for every number.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from shell_cases import APPTAINER, PYXIS, TRANSFORMERS
from shell_jobs import artifact, function, job, program, script

from jobgen.launch.job import Unrenderable
from jobgen.spec.problem import SpecError
from jobgen.targets.containers.pyxis import normalised
from jobgen.targets.directives import clock


def directives(text: str) -> dict[str, str | None]:
    """The directives as sbatch reads them: until the first command, POSIX quotes."""
    found: dict[str, str | None] = {}
    for line in text.split("\n"):
        if line.startswith("#SBATCH "):
            (word,) = shlex.split(line[8:])
            name, equals, value = word.removeprefix("--").partition("=")
            assert name not in found, f"--{name} twice"
            found[name] = value if equals else None
        elif line.strip() and not line.startswith("#"):
            break
    return found


def refused(*words: str, **changes: object) -> Unrenderable:
    with pytest.raises(Unrenderable) as found:
        script(**changes)
    for word in words:
        assert word in str(found.value)
    assert found.value.fix
    return found.value


def batch(text: str) -> str:
    """The batch script without the programs in it."""
    return re.sub(r"<<'(END_OF_\w+)'\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


# A. Directives -------------------------------------------------------------------------------------------------------


def test_01_every_directive_stands_before_the_first_command():
    text = script(launch__args=["\n#SBATCH --nodes=9\n"], launch__env={"X": "#SBATCH --wait"}, launch__setup=["#SBATCH --time=1"])
    lines = text.split("\n")
    last = max(index for index, line in enumerate(lines) if line.startswith("#SBATCH"))
    first = next(index for index, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    assert last < first
    assert directives(text)["nodes"] == "2"
    assert not [line for line in lines if re.match(r"##SBATCH|# SBATCH| +#SBATCH --(nodes|wait)", line)]


@pytest.mark.parametrize("value", ["$ACCOUNT", "`id`", "a\\b", "$(id)"])
def test_02_nothing_in_a_directive_waits_for_an_expansion(value):
    error = refused("expands nothing", slurm__account=value)
    assert error.path == "slurm.account"


def test_03_an_image_with_a_hash_is_no_directive():
    text = script(**PYXIS)
    assert "container" not in " ".join(directives(text))
    assert "  '--container-image=nvcr.io#nvidia/pytorch:25.09-py3'" in batch(text).split("\n")


@pytest.mark.parametrize("value", ["a b", "it's", 'say "x"', "#1", "naïve 日本語", "a'b\"c", "-x", "*", "a;b"])
def test_04_a_value_with_spaces_or_quotes_is_quoted(value):
    assert directives(script(slurm__extra={"comment": value}))["comment"] == value


@pytest.mark.parametrize(("seconds", "text"), [(5400, "0-01:30:00"), (86400, "1-00:00:00"), (259200, "3-00:00:00"), (1800, "0-00:30:00"), (61, "0-00:01:01"), (31536000, "365-00:00:00")])
def test_05_time_has_the_only_form_that_is_read_alike_everywhere(seconds, text):
    assert clock(seconds) == text


def test_05_time_comes_from_the_limit():
    assert directives(script(launch__time_limit="1d 2h"))["time"] == "1-02:00:00"
    assert "time" not in directives(script(launch__time_limit=None))


def test_06_an_account_of_digits_stays_as_it_is():
    assert directives(script(slurm__account="0123"))["account"] == "0123"


def test_08_the_script_is_what_sbatch_takes():
    text = script(launch__args=["a\nb"])
    assert text.startswith("#!/bin/bash\n")
    assert text.endswith("\n")
    assert "\r" not in text
    assert "\ufeff" not in text


def test_09_the_log_lies_in_a_folder_that_exists():
    assert directives(script())["output"] == "%x-%j.out"
    assert directives(script(slurm__output="/logs/100%"))["output"] == "/logs/100%%/%x-%j.out"
    with pytest.raises((Unrenderable, SpecError), match="/"):
        script(name="a/b")


def test_10_the_log_has_no_task_patterns_and_array_members_have_their_own():
    for name in ("output", "error"):
        assert not re.search("%[tNn]", directives(script()).get(name) or "")
    assert directives(script(slurm__extra={"array": "0-3"}))["output"] == "%x-%A_%a.out"


def test_11_steps_write_to_the_jobs_log():
    assert "--output" not in batch(script()).replace("#SBATCH --output", "")


def test_12_what_a_site_requires_is_passed_on():
    made = directives(script(
        slurm__partition="p", slurm__qos="q", slurm__constraint="ib&h100", slurm__reservation="r",
        slurm__extra={"comment": "x", "wckey": "w", "mail_type": "END", "nodelist": "node[1-2]", "hint": "nomultithread", "propagate": "NONE"},
    ))  # fmt: skip
    assert {"partition": "p", "account": "research", "qos": "q", "constraint": "ib&h100", "reservation": "r", "comment": "x", "wckey": "w",
            "mail-type": "END", "nodelist": "node[1-2]", "hint": "nomultithread", "propagate": "NONE"}.items() <= made.items()  # fmt: skip


def test_14_gpus_are_asked_for_in_one_spelling():
    plain, gres = directives(script()), directives(script(slurm__gpu_option="gres"))
    assert (plain["gpus-per-node"], "gres" in plain) == ("2", False)
    assert (gres["gres"], "gpus-per-node" in gres) == ("gpu:2", False)
    refused("slurm.gpu_option", slurm__extra={"gres": "gpu:4"})
    refused("resources.gpus_per_node", slurm__extra={"gpus": 4})


def test_15_memory_is_asked_for_once():
    refused("resources.memory_per_node", slurm__extra={"mem-per-cpu": "4G"})
    refused("resources.memory_per_node", slurm__extra={"mem_per_gpu": "4G"})


def test_16_a_whole_node_brings_its_memory_and_a_part_names_it():
    whole, part = directives(script(resources__gpus_per_node=8)), directives(script())
    assert ("exclusive" in whole, whole["mem"]) == (True, "0")
    assert ("exclusive" in part, part["mem"]) == (False, "4096M")


def test_16_memory_that_nobody_named_is_what_the_estimate_needs():
    text = script(resources__memory_per_node=None)
    assert int(directives(text)["mem"].removesuffix("M")) >= 1024
    assert "# resources.memory_per_node is not set" in text


@pytest.mark.parametrize("value", [None, False])
def test_17_an_unset_option_is_left_out(value):
    assert "wckey" not in directives(script(slurm__extra={"wckey": value}))
    assert "partition" not in directives(script())


def test_17_an_empty_option_is_refused():
    refused("is empty", slurm__partition="")


# B. Launch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("launcher", "tasks"), [("torchrun", "1"), ("accelerate", "1"), ("deepspeed", "1"), ("python", "1"), ("srun", "2")])
def test_18_a_launcher_per_node_has_one_task_per_node(launcher, tasks):
    changes = {"training__framework": "deepspeed", "parallelism__sharding": "zero3"} if launcher == "deepspeed" else {}
    if launcher == "python":
        changes["launch__processes_per_node"] = 1
    text = script(launch__launcher=launcher, **changes)
    assert directives(text)["ntasks-per-node"] == tasks
    assert f"--nodes=2 --ntasks={2 * int(tasks)} --ntasks-per-node={tasks} " in batch(text).split("status=0\n")[-1]
    refused("launch.launcher", slurm__extra={"ntasks-per-node": 8})
    refused("launch.launcher", slurm__srun_args=["--ntasks-per-node=8"])


def test_19_srun_gets_the_cpus_that_were_asked_for():
    text = script()
    assert directives(text)["cpus-per-task"] == "4"
    assert "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}" in text
    per_rank = script(launch__launcher="srun")
    assert directives(per_rank)["cpus-per-task"] == "2"
    assert "SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$(( SLURM_CPUS_ON_NODE / 2 ))}" in per_rank


def test_20_every_task_sees_the_gpus_of_its_node():
    assert "--gpus-per-task" not in script(launch__launcher="srun")
    refused("--gpus-per-task", slurm__extra={"gpus-per-task": 1})
    refused("one GPU called 0", slurm__srun_args=["--gpus-per-task=1"])


def test_21_counts_are_written_not_read_from_variables():
    assert not re.search(r"SLURM_(GPUS_PER_NODE|NTASKS|NNODES)\b", script(launch__launcher="srun"))


def test_22_ranks_are_computed_on_the_node():
    text = script(launch__launcher="srun")
    assert not re.search(r"SLURM_(PROCID|NODEID|LOCALID)", batch(text))
    assert "NODE_RANK=$SLURM_NODEID" in program(script())
    assert "RANK=$SLURM_PROCID" in program(text)
    assert "cat >\"$job_dir/program.sh\" <<'END_OF_PROGRAM'" in text


def test_23_the_master_is_the_first_host_of_the_list():
    text = batch(script())
    assert 'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")' in text
    assert "export MASTER_ADDR=${hosts%%$'\\n'*}\n" in text
    assert "localhost" not in text
    assert "scontrol" not in program(script())


def test_24_the_master_is_a_name_with_the_sites_suffix():
    text = script(slurm__master_addr_suffix="i")
    assert "export MASTER_ADDR=${hosts%%$'\\n'*}i\n" in text
    assert not re.search(r"hostname (-I|-i|--ip)|LAUNCH_NODE_IPADDR", text)


def test_25_the_rendezvous_is_static():
    text = program(script())
    assert '--node-rank="$NODE_RANK"' in text
    assert '--master-addr="$MASTER_ADDR"' in text
    assert "rdzv" not in text


def test_26_the_port_is_the_jobs_own_on_one_node_too():
    assert "export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))" in script()
    one = program(script(resources__nodes=1))
    assert '--master-port="$MASTER_PORT"' in one
    assert "--master-addr=127.0.0.1" in one
    assert "--standalone" not in one


def test_27_one_dead_rank_ends_the_step():
    assert "srun --kill-on-bad-exit=1 --wait=60 " in script()


def test_27_the_last_node_may_write_a_large_checkpoint():
    made, spec = job()
    from jobgen.targets import render

    text = render("slurm", made._replace(checkpoint_seconds=300.0), spec).text
    assert "--kill-on-bad-exit=1 --wait=600 " in text


def test_28_the_status_of_the_training_is_that_of_the_job():
    text = batch(script())
    assert "set -euo pipefail\n" in text
    assert "| tee" not in text
    assert 'train || status=$?' in text
    assert 'exit "$1"' in function(text, "leave")


def test_29_the_restart_count_may_be_unset():
    assert set(re.findall(r"\$\{?SLURM_RESTART_COUNT\S*", script(launch__restarts=3))) == {"${SLURM_RESTART_COUNT:-0}"}


def test_30_steps_follow_each_other_and_none_is_started_in_another():
    text = script(launch__prepare=["x"], launch__stage=[{"from": "/a", "to": "/b"}], launch__finish=["y"])
    assert "srun" not in program(text)
    order = [text.rindex(f'program.sh" {step}') for step in ("prepare", "stage", "train", "finish")]
    assert order == sorted(order)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "NODE_RANK", "OMP_NUM_THREADS"])
def test_32_the_submitters_launcher_variables_are_gone(name):
    unset = re.search(r"^unset (.*?[^\\])$", script(), re.MULTILINE | re.DOTALL).group(1)
    assert name in unset.split()
    assert '"${!PET_@}"' in unset


def test_33_no_export_option_takes_the_environment_away():
    text = script(launch__env={"A": "x,y z"})
    assert "--export" not in text
    assert "export SLURM_EXPORT_ENV=ALL" in text
    assert "  export A='x,y z'" in program(text)
    refused("exported by the script", slurm__extra={"export": "NONE"})
    refused("export", slurm__srun_args=["--export=ALL,A=b"])


def test_34_a_command_is_a_list_of_quoted_words():
    text = program(script(launch__args=["a b", "$HOME", '{"x": [1, 2]}', "it's"]))
    assert "    'a b'\n    '$HOME'\n    '{\"x\": [1, 2]}'\n    'it'\\''s'\n" in text
    assert "bash -c" not in script()


def test_35_an_argument_longer_than_the_kernel_takes_is_refused():
    assert refused("131071", launch__args=["x" * 140_000]).path == "launch.args.0"
    assert refused("131071", launch__env={"A": "x" * 131_070}).path == "launch.env.A"


def test_36_the_script_does_not_look_for_itself():
    text = script()
    assert not re.search(r"BASH_SOURCE|\$0\b|dirname \"\$0", batch(text))
    refused("relative", checkpoint__directory="ck", launch__working_directory="/w")


def test_37_shells_that_are_no_login_shells_find_conda_and_modules():
    text = program(script(launch__python={"conda": "my env"}, launch__setup=["module load cuda"]))
    assert '. "$conda_base/etc/profile.d/conda.sh"' in text
    assert "conda activate 'my env'" in text
    assert text.index("/etc/profile.d/modules.sh") < text.index("module load cuda") < text.index("conda activate")
    assert "set -u" not in text.replace("set -eo", "")


def test_38_no_mpi_plug_in_is_named_unless_asked_for():
    assert "--mpi" not in script()
    assert " --mpi=pmix " in script(slurm__srun_args=["--mpi=pmix"])


def test_39_the_deepspeed_launcher_needs_no_ssh():
    text = script(launch__launcher="deepspeed", training__framework="deepspeed", parallelism__sharding="zero3")
    assert "    --no_ssh\n    --node_rank=\"$NODE_RANK\"\n    --hostfile=\"$JOBGEN_CONFIG_DIR\"/hostfile\n" in program(text)
    assert "node-0 slots=2\nnode-1 slots=2\n" in text


def test_40_accelerate_is_told_every_machine():
    text = program(script(launch__launcher="accelerate", parallelism__sharding="fsdp2"))
    for words in ("--config_file \"$JOBGEN_CONFIG_DIR\"/accelerate.yaml", "--num_machines 2", "--num_processes 4", '--machine_rank "$NODE_RANK"',
                  '--main_process_ip "$MASTER_ADDR"', '--main_process_port "$MASTER_PORT"'):  # fmt: skip
        assert f"    {words}\n" in text


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_41_names_that_lightning_misreads_are_refused(name):
    refused("Lightning", name=name)


def test_42_threads_are_the_tasks_cpus_over_its_processes():
    assert "  export OMP_NUM_THREADS=2\n" in program(script())


def test_43_interfaces_are_a_sites_choice():
    assert not re.search(r"(NCCL|GLOO)_SOCKET_IFNAME", script())
    assert "export GLOO_SOCKET_IFNAME=eth0" in script(launch__env={"GLOO_SOCKET_IFNAME": "eth0"})


def test_44_a_small_limit_of_locked_memory_is_raised_and_what_is_left_of_it_is_said(tmp_path):
    """The program really run under such limits: soft 64 KiB is raised to the hard limit, a hard one is warned of."""
    for name in ("torchrun", "python"):
        tool = tmp_path / name
        tool.write_text("#!/bin/bash\nulimit -l\n")
        tool.chmod(0o755)

    def trained(limits: str, **changes: object) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.sh"
        path.write_text(program(script(**changes)))
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JOBGEN_CONFIG_DIR": str(tmp_path), "JOBGEN_RESUME_FROM": "", "SLURM_NODEID": "0", "SLURM_LOCALID": "0",
               "SLURMD_NODENAME": "node7", "MASTER_ADDR": "x", "MASTER_PORT": "1"}  # fmt: skip
        return subprocess.run(["bash", "-c", f"{limits}; exec bash {path} train"], env=env, text=True, capture_output=True, check=False)

    hard = trained("ulimit -l 64", resources__fabric="infiniband")
    assert (hard.returncode, hard.stdout) == (0, "64\n"), hard.stderr
    assert "jobgen: warning: node7 may lock 64 KiB of memory (ulimit -l), not unlimited" in hard.stderr
    assert "slurm.extra: {propagate: NONE}" in hard.stderr
    assert "PropagateResourceLimitsExcept=MEMLOCK" in hard.stderr
    soft = trained("ulimit -S -l 64; ulimit -H -l 512", resources__fabric="infiniband")
    assert (soft.returncode, soft.stdout) == (0, "512\n"), soft.stderr
    assert "may lock 512 KiB" in soft.stderr
    given = trained("ulimit -l 64", resources__fabric="infiniband", slurm__extra={"propagate": "NONE"})
    assert "LimitMEMLOCK=infinity" in given.stderr
    assert "propagate" not in given.stderr
    for changes in ({"resources__fabric": "tcp"}, {"resources__fabric": "infiniband", "resources__nodes": 1}, {}):
        other = trained("ulimit -l 64", **changes)
        assert (other.returncode, other.stderr) == (0, "")


def test_45_caches_are_the_jobs_own_and_local():
    text = script()
    assert '  export TRITON_CACHE_DIR=/tmp/jobgen-"$JOBGEN_JOB_ID"/triton\n' in program(text)
    assert "HF_HOME" not in text
    assert 'rm -rf -- "/tmp/jobgen-$JOBGEN_JOB_ID"' in batch(text)


@pytest.mark.parametrize("case", [PYXIS, APPTAINER])
def test_45_downloads_in_a_container_are_shared_unless_the_image_says_where(case):
    body = function(program(script(**case, launch__env={"MINE": "x"})), "enter")
    assert 'if [ -z "${HF_HOME:-}" ]; then export HF_HOME=/shared/.cache/huggingface; fi' in body
    assert body.index("export HF_HOME") < body.index("environment")


def test_46_heterogeneous_jobs_are_refused():
    refused("het-group", slurm__extra={"het-group": 1})
    refused("node list", slurm__srun_args=["--het-group=0"])


def test_47_the_number_of_nodes_is_one_number():
    assert directives(script())["nodes"] == "2"
    refused("resources.nodes", slurm__extra={"nodes": "2-4"})


# C. Containers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "read"), [
    ("nvcr.io/nvidia/pytorch:25.09-py3", "nvcr.io#nvidia/pytorch:25.09-py3"), ("nvcr.io#nvidia/x:1", "nvcr.io#nvidia/x:1"),
    ("host:5000/img", "host:5000#img"), ("localhost/img", "localhost#img"), ("ubuntu", "ubuntu"), ("org/img:1", "org/img:1"),
    ("docker://nvcr.io/a/b", "nvcr.io#a/b"), ("/images/a.sqsh", "/images/a.sqsh"), ("./a.sqsh", "./a.sqsh"), ("cont.sqsh", "./cont.sqsh"),
])  # fmt: skip
def test_48_images_are_named_as_enroot_reads_them(written, read):
    assert normalised(written) == read


def test_49_the_specs_variables_win_over_the_images():
    text = script(**PYXIS, launch__env={"PATH": "/mine", "NCCL_DEBUG": "INFO"}, launch__secrets=["HF_TOKEN"])
    assert "  export PATH=/mine\n" in program(text)
    (carried,) = re.findall(r"--container-env=([\w,]+)", text)
    assert {"MASTER_ADDR", "MASTER_PORT", "HF_TOKEN", "JOBGEN_RESUME_FROM"} <= set(carried.split(","))


def test_50_the_home_folder_stays_outside():
    assert "--no-container-mount-home" in script(**PYXIS)
    assert "--no-home" in script(**APPTAINER)


@pytest.mark.parametrize("path", ["/a,b", "/a:b"])
@pytest.mark.parametrize("case", [PYXIS, APPTAINER])
def test_51_paths_that_mounts_cannot_hold_are_refused(case, path):
    volumes = [{"mount": "/shared", "path": "/lustre"}, {"mount": "/x", "path": path}]
    assert refused("separates mounts", **(case | {"volumes": volumes})).path == "volumes.1"


def test_51_mounts_have_their_flags():
    assert "/lustre/shared:/shared,/lustre/data:/data:ro," in script(**PYXIS)


def test_52_a_container_without_an_image_is_refused():
    assert refused("launch.image", **(PYXIS | {"launch__image": None})).path == "launch.image"
    refused("without an image", slurm__srun_args=["--container-mounts=/a:/a"])


def test_53_requeue_is_the_batch_scripts():
    text = script(**(PYXIS | TRANSFORMERS), launch__restarts=2)
    assert "scontrol requeue" in batch(text)
    assert "scontrol" not in program(text)


def test_54_apptainer_needs_no_plug_in():
    assert "--container-" not in script(**APPTAINER)


def test_55_apptainer_gets_gpus_binds_and_variables():
    text = program(script(**APPTAINER, launch__secrets=["HF_TOKEN"]))
    assert re.search(r"exec apptainer exec --nv --no-home --bind /lustre/shared:/shared --bind /lustre/data:/data:ro .* /images/train.sif bash", text)
    carried = re.search(r"for name in (.*); do", text).group(1).split()
    assert {"MASTER_ADDR", "SLURM_NODEID", "SLURM_PROCID", "HF_TOKEN", "CUDA_VISIBLE_DEVICES"} <= set(carried)
    assert 'export "APPTAINERENV_$name=${!name}"' in text


@pytest.mark.parametrize("case", [PYXIS, APPTAINER])
def test_checkpoints_that_would_vanish_with_the_container_are_refused(case):
    assert refused("vanish", **case, checkpoint__directory="/elsewhere/ck").path == "checkpoint.directory"
    assert refused("scratch", **case, checkpoint__directory="/local/ck").path == "checkpoint.directory"
    assert refused("vanish", **case, launch__stage=[{"from": "/data/x", "to": "/tmp/x"}]).path == "launch.stage.0.to"


# D. Signals, preemption, requeue --------------------------------------------------------------------------------------


def test_56_the_step_runs_in_the_background_and_is_waited_for_again():
    body = function(script(), "run")
    assert re.search(r'srun .* "\$@" </dev/null &\n  step=\$!\n  while :; do\n    if wait "\$step"', body)


def test_57_the_batch_shell_gets_the_signal_and_the_launcher_ignores_it():
    text = script()
    assert directives(text)["signal"] == "B:USR1@180"
    body = function(program(text), "train")
    assert body.index("trap '' USR1") < body.index('exec "${command[@]}"')


def test_58_the_signal_is_repeated_and_a_finished_job_is_finished():
    text = script(**TRANSFORMERS, launch__restarts=3)
    assert re.search(r"for \(\( left = 135; left > 0; left -= 10 \)\); do\n\s+tell USR1", text)
    end = text[text.rindex("status=0\n") :]
    assert end.index('[ -e "$job_dir/done" ]') < end.index("leave")


def test_59_preemption_without_a_signal_to_the_batch_shell_is_seen():
    text = script(**TRANSFORMERS, launch__restarts=3)
    assert "PreemptTime=[0-9]" in text
    assert "trap on_term TERM" in text


@pytest.mark.parametrize("number", [60, 61])
def test_60_61_a_signalled_unfinished_job_is_requeued_by_itself(number):
    text = script(**TRANSFORMERS, launch__restarts=3)
    assert "requeue" in directives(text)
    assert 'scontrol requeue "$SLURM_JOB_ID"' in function(text, "requeue")
    assert '[ -n "$signalled" ] || preempted' in function(text, "leave")


def test_63_restarts_are_capped_and_need_progress():
    text = script(**TRANSFORMERS, launch__restarts=3)
    assert "if (( JOBGEN_ATTEMPT > 3 )); then" in text
    assert "if (( JOBGEN_ATTEMPT >= 3 )); then" in function(text, "requeue")
    assert "elif progressed; then" in function(text, "leave")
    none = script()
    assert "no-requeue" in directives(none)
    assert "scontrol requeue" not in none


def test_64_the_log_is_appended_to():
    assert directives(script())["open-mode"] == "append"
    refused("append", slurm__extra={"open-mode": "truncate"})


def test_65_a_lead_of_more_than_half_the_limit_is_refused():
    error = refused("more than half", launch__time_limit="5m", slurm__signal_before="3m")
    assert error.path == "slurm.signal_before"
    refused("65535", launch__time_limit="7d", slurm__signal_before="1d")


@pytest.mark.parametrize("signal", ["USR1", "USR2"])
def test_66_the_signal_is_a_choice(signal):
    text = script(**TRANSFORMERS, launch__restarts=3, slurm__signal=signal)
    other = {"USR1": "USR2", "USR2": "USR1"}[signal]
    assert directives(text)["signal"] == f"B:{signal}@180"
    assert f"\ntrap on_signal {signal}\ntrap on_term TERM\n" in text
    assert f"trap '' {signal}\n" in function(program(text), "train")
    assert f'tell {signal} "$step"' in function(text, "on_signal")
    assert f"trap '' {signal}\n" in function(text, "no_more_signals")
    assert other not in text


def test_66_sigterm_ahead_of_the_end_is_told_once_and_reaches_the_launcher():
    text = script(**(APPTAINER | TRANSFORMERS), launch__restarts=3, slurm__signal="TERM")
    assert directives(text)["signal"] == "B:TERM@180"
    assert "\ntrap on_signal TERM\n" in text
    assert "on_term" not in text
    assert "USR" not in text
    assert "trap ''" not in program(text)
    body = function(text, "on_signal")
    assert "tell TERM" not in body
    assert body.index('scancel --signal=TERM "$SLURM_JOB_ID"') < body.index("sleep 135") < body.index("tell KILL")


def test_66_other_signals_are_refused():
    with pytest.raises(SpecError, match="USR1"):
        script(slurm__signal="KILL")
    refused("slurm.signal", slurm__extra={"signal": "INT@60"})


def test_67_a_dependency_that_cannot_be_met_ends_the_job():
    made = directives(script(after=[{"job": "12"}, {"job": "13", "on": "end"}, {"job": "14_2", "on": "failure"}]))
    assert made["dependency"] == "afterok:12,afterany:13,afternotok:14_2"
    assert made["kill-on-invalid-dep"] == "yes"


def test_68_a_job_does_not_go_on_without_a_node():
    refused("without a node", slurm__extra={"no-kill": True})
    refused("without a node", slurm__srun_args=["--no-kill"])
    refused("without a node", slurm__srun_args=["-k"])


# E. What submitit would add ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, False])
def test_72_an_option_that_is_off_is_left_out_and_spellings_are_one(value):
    text = script(slurm__extra={"mail_type": "END", "wckey": value, "contiguous": value, "hold": True})
    assert "--wckey" not in text and "contiguous" not in text
    assert (directives(text)["mail-type"], directives(text)["hold"]) == ("END", None)
    refused("append", slurm__extra={"open_mode": "truncate"})


def test_76_a_line_of_the_set_up_that_fails_ends_the_job(tmp_path):
    path = tmp_path / "program.sh"
    path.write_text(program(script(launch__setup=["false | cat", "echo went on"])))
    done = subprocess.run(["bash", str(path), "train"], env={"PATH": "/usr/bin:/bin"}, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert "went on" not in done.stdout


# The rest of the artifact --------------------------------------------------------------------------------------------


def test_the_same_spec_gives_the_same_bytes():
    assert artifact(**TRANSFORMERS) == artifact(**TRANSFORMERS)


@pytest.mark.parametrize("name", ["a b", "1x", "x-y", "X=1", "$(id)", ""])
def test_names_that_are_no_variables_are_refused(name):
    with pytest.raises((Unrenderable, SpecError), match="variable"):
        script(launch__secrets=[name])
    with pytest.raises((Unrenderable, SpecError), match="variable"):
        script(launch__env={name: "x"})


def test_secrets_are_checked_and_never_written():
    text = script(launch__secrets=["HF_TOKEN"])
    assert text.count("HF_TOKEN") == 2
    assert 'export HF_TOKEN="${HF_TOKEN:?' in text
