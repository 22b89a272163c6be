"""Bug reports of others that a spec can show: pitfalls of batch scripts on Slurm, and of jobs without a scheduler.

Names are the reports': project, number, symptom; slurm_eNN are measured on the test cluster.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from jobgen.checks import bases
from jobgen.spec.document import load_text
from jobgen.spec.problem import SpecError

sys.path.insert(0, str(Path(__file__).parent))

from reports import BASE, codes, directives, refused, slurm, spec


def test_slurm_e01_directives_after_the_first_command_are_ignored() -> None:
    lines = slurm().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#SBATCH")]


def test_axolotl_slurm_example_variables_in_directives() -> None:
    refused(spec({"slurm.partition": "$PARTITION"}), "slurm.partition", "slurm")


def test_lightning_3351_two_field_times_are_seconds() -> None:
    assert "#SBATCH --time=0-00:30:00" in directives(slurm({"launch.time_limit": "30m", "launch.restarts": 0}))


def test_caput_254_sexagesimal_time() -> None:
    with pytest.raises(SpecError):
        load_text(bases.text(BASE).replace("time_limit: 3d", "time_limit: 1:30"))


def test_toil_4633_slash_in_the_job_name() -> None:
    with pytest.raises(SpecError):
        spec({"name": "team/run"})


def test_slurm_e23d_two_spellings_of_gpus() -> None:
    refused(spec({"slurm.extra": {"gres": "gpu:4"}}), "slurm.extra.gres", "slurm")
    assert len([line for line in directives(slurm()) if "gpus" in line or "gres" in line]) == 1


def test_dask_jobqueue_698_two_memory_options() -> None:
    refused(spec({"slurm.extra": {"mem-per-cpu": "4G"}}), "slurm.extra.mem-per-cpu", "slurm")


def test_slurm_e11_exclusive_gets_only_the_requested_memory() -> None:
    assert "#SBATCH --mem=0" in directives(slurm())
    assert "JG736" in codes(spec({"target": "slurm", "resources.memory_per_node": None}, "lora-8b"))


def test_prismatic_vlms_39_torchrun_under_eight_tasks() -> None:
    assert "#SBATCH --ntasks-per-node=1" in directives(slurm())
    refused(spec({"slurm.extra": {"ntasks-per-node": 8}}), "slurm.extra.ntasks-per-node", "slurm")


def test_reframe_2655_srun_ignores_cpus_per_task() -> None:
    assert "export SRUN_CPUS_PER_TASK=" in slurm() and "#SBATCH --cpus-per-task=96" in directives(slurm())


def test_nccl_1066_gpus_per_task_hides_the_others() -> None:
    refused(spec({"slurm.srun_args": ["--gpus-per-task=1"]}), "slurm.srun_args", "slurm")


def test_pith_train_91_master_on_localhost() -> None:
    script = slurm()
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST"' in script and "localhost" not in script
    refused(spec({"launch.env": {"MASTER_ADDR": "localhost"}}), "launch.env.MASTER_ADDR", "slurm")


def test_gpt_neox_768_fixed_port() -> None:
    assert "MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))" in slurm()


def test_torchx_479_one_rank_dies_and_the_job_burns_on() -> None:
    assert "--kill-on-bad-exit=1" in slurm()


def test_slurm_e63_restart_count_is_unbound_at_first() -> None:
    assert "${SLURM_RESTART_COUNT:-0}" in slurm()


def test_recorder_482_variables_of_the_login_shell() -> None:
    assert re.search(r"^unset RANK LOCAL_RANK WORLD_SIZE", slurm(), re.MULTILINE)


def test_az_hop_1119_restricting_export() -> None:
    refused(spec({"slurm.extra": {"export": "NONE"}}), "slurm.extra.export", "slurm")


def test_accelerate_3329_machine_rank_is_missing() -> None:
    command = {"training.framework": "custom", "launch.command": ["accelerate", "launch", "--num_machines", "2", "train.py"]}
    refused(spec(command), "launch.command", "slurm")
    script = slurm({"training.framework": "custom", "launch.entrypoint": "train.py", "launch.launcher": "accelerate"})
    assert "--machine_rank" in script


def test_lightning_19762_job_names_that_mean_interactive() -> None:
    refused(spec({"name": "interactive"}), "name", "slurm")


def test_lumi_110_threads_per_process_are_explicit() -> None:
    assert "export OMP_NUM_THREADS=12" in slurm()


def test_slurm_e34_ranges_of_nodes() -> None:
    with pytest.raises(SpecError):
        spec({"resources.nodes": "2-4"})


def test_pyxis_51_commas_in_mounts() -> None:
    volumes = [{"mount": "/lustre", "path": "/lustre"}, {"mount": "/a,b", "path": "/a,b"}]
    refused(spec({"volumes": volumes, "launch.image": "x", "slurm.container": "pyxis"}), "volumes.1", "slurm")


def test_pyxis_52_container_flags_without_an_image() -> None:
    refused(spec({"slurm.srun_args": ["--container-mounts=/a:/a"]}), "slurm.srun_args", "slurm")
    assert "JG767" in codes(spec({"launch.image": "registry/train:1"}), "slurm")


def test_pytorch_154849_usr1_reaches_every_process() -> None:
    assert "#SBATCH --signal=B:USR1@180" in directives(slurm())
    refused(spec({"slurm.extra": {"signal": "USR1@90"}}), "slurm.extra.signal", "slurm")


def test_lightning_20542_requeue_covers_preemption_only() -> None:
    script = slurm()
    assert "scontrol requeue" in script and "JG849" in codes(spec({"slurm.requeue": False}), "slurm")


def test_torchx_486_restarts_without_end() -> None:
    assert "JOBGEN_ATTEMPT > 2" in slurm()


def test_sisyphus_201_requeue_truncates_the_log() -> None:
    assert "#SBATCH --open-mode=append" in directives(slurm())


def test_a_secret_that_the_scripts_head_would_take_away() -> None:
    for name in ("JOBGEN_TOKEN", "ACCELERATE_KEY", "PET_TOKEN", "SLURM_JWT", "SBATCH_TOKEN"):
        refused(spec({"launch.secrets": ["HF_TOKEN", name]}), "launch.secrets.1", "slurm")
    assert "JG714" not in codes(spec({"launch.secrets": ["HF_TOKEN", "MY_SLURM_TOKEN"]}), "slurm")


def test_slurm_golden_lead_above_half_the_limit() -> None:
    refused(spec({"launch.time_limit": "10m", "slurm.signal_before": "9m"}), "slurm.signal_before", "slurm")
    assert "JG844" in codes(spec({"slurm.signal_before": "30s"}), "slurm")


def test_slurm_67_dependency_never_satisfied() -> None:
    assert "#SBATCH --kill-on-invalid-dep=yes" in directives(slurm({"after": [{"job": "slurm:12"}]}))


def test_slurm_68_no_kill_cannot_shrink_collectives() -> None:
    refused(spec({"slurm.extra": {"no-kill": True}}), "slurm.extra.no-kill", "slurm")


def test_curc_pr_562_site_options_pass_through() -> None:
    edits = {"slurm.account": "ml", "slurm.qos": "high", "slurm.constraint": "h100&ib", "slurm.reservation": "r1", "slurm.extra": {"mail-type": "END"}}
    lines = " ".join(directives(slurm(edits)))
    assert all(word in lines for word in ("--account=ml", "--qos=high", "--constraint='h100&ib'", "--reservation=r1", "--mail-type=END"))


def test_without_a_time_limit_the_partition_decides() -> None:
    assert "JG848" in codes(spec({"launch.time_limit": None}), "slurm")


def test_public_pytorchjobs_restart_a_hundred_times_without_saving() -> None:
    assert "JG841" in codes(spec({"launch.restarts": 100, "checkpoint.every_steps": None}))


def test_hosts_without_hosts() -> None:
    assert "JG750" in codes(spec({"target": "hosts"}))
