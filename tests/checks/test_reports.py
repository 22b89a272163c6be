"""Bug reports of others that a spec can show: each is refused, warned of, or made impossible by what is rendered.

Names are the reports': project, number, symptom. Here those of Kubernetes and of the network between nodes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from jobgen import api
from jobgen.catalog import fabrics
from jobgen.spec.problem import SpecError

sys.path.insert(0, str(Path(__file__).parent))

from reports import (
    KUBERNETES,
    POD,
    TRL,
    codes,
    container,
    found,
    kind,
    pods,
    program,
    refused,
    spec,
    templates,
    text,
    variables,
)

# Kubernetes: memory and devices of a pod ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", KUBERNETES)
def test_nccl_525_dev_shm_of_64_mib(target: str) -> None:
    for pod in templates(text(target)):
        (shm,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
        assert shm["emptyDir"]["medium"] == "Memory" and shm["emptyDir"]["sizeLimit"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("fabric", [name for name in fabrics.names() if name not in ("nvlink", "pcie")])
def test_pytorch_ci_infra_490_every_fabric_keeps_shm(fabric: str) -> None:
    edits = {"resources.fabric": fabric, "resources.node_type": "p5.48xlarge", "resources.gpu": "h100-80gb"}
    artifact = api.render(pods({**edits, "resources.cpus_per_node": 96}), target="k8s").text
    assert all("/dev/shm" in str(pod["containers"][0]["volumeMounts"]) for pod in templates(artifact))


def test_llm_d_352_shm_fills_up_over_crash_loops() -> None:
    assert "rm -f /dev/shm/nccl-*" in program(text())


def test_kubernetes_125852_shm_counts_against_the_memory_limit() -> None:
    refused(pods({"kubernetes.shm_size": "960GB"}), "kubernetes.shm_size", "k8s")


def test_cortex_2115_bus_error_of_a_small_shm() -> None:
    assert "JG766" in codes(pods({"kubernetes.shm_size": "64MiB"}), "k8s")


def test_hyperpod_cli_317_no_gpus_in_the_request() -> None:
    with pytest.raises(SpecError, match="gpus_per_node"):
        pods({"resources.gpus_per_node": 0})
    assert container(text())["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_mpi_operator_25_requests_differ_from_limits() -> None:
    resources = container(text())["resources"]
    assert resources["requests"] == resources["limits"] and "rdma/hca" in resources["limits"]


def test_pai_5215_quota_wants_cpu_and_memory_limits() -> None:
    limits = container(text())["resources"]["limits"]
    assert limits["cpu"] == "96" and limits["memory"]


def test_kueue_485_no_requests_no_flavour() -> None:
    assert "JG735" in codes(pods({"resources.cpus_per_node": None}), "k8s")


def test_kueue_4848_resource_not_covered_by_the_queue() -> None:
    (note,) = [finding for finding in found(pods({"kubernetes.queue": "team-a"}), "k8s") if finding.code == "JG912"]
    assert "rdma/hca" in note.message


def test_hyperpod_cli_383_requests_of_a_whole_node_are_never_admitted() -> None:
    node = {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa"}
    refused(pods({**node, "resources.cpus_per_node": 96}), "resources.cpus_per_node", "k8s")
    refused(pods({**node, "resources.cpus_per_node": 90, "resources.memory_per_node": "1152GiB"}), "resources.memory_per_node", "k8s")


def test_hyperpod_cli_306_efa_variables_without_the_device() -> None:
    node = {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 90, "kubernetes.extra_resources": {}}
    artifact = api.render(pods(node), target="k8s").text
    assert container(artifact)["resources"]["limits"]["vpc.amazonaws.com/efa"] == "4"
    assert "JG724" in codes(pods({"resources.fabric": "tcp", "launch.env": {"FI_PROVIDER": "efa", "OMP_NUM_THREADS": "12"}}), "k8s")


def test_awsome_distributed_ai_386_no_rdma_device_in_the_pod() -> None:
    assert "JG723" in codes(pods({"kubernetes.extra_resources": {}}), "k8s")


@pytest.mark.parametrize("fabric", ["infiniband", "roce", "efa", "azure-ib"])
def test_k8s_rdma_sriov_29_memlock_of_64_kib(fabric: str) -> None:
    node = {"resources.fabric": fabric, "resources.node_type": "p4de.24xlarge", "resources.cpus_per_node": 90}
    security = container(api.render(pods(node), target="k8s").text)["securityContext"]
    assert "IPC_LOCK" in security["capabilities"]["add"]


# Kubernetes: ranks and rendezvous -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", KUBERNETES)
def test_kubeflow_trainer_1790_world_size_counts_pods(target: str) -> None:
    artifact = text(target)
    assert "WORLD_SIZE" not in variables(artifact) and "unset RANK WORLD_SIZE" in program(artifact)
    assert "$WORLD_SIZE" not in artifact


def test_kubeflow_trainer_1872_python_uses_one_gpu_of_eight() -> None:
    assert "JG741" in codes(pods({**TRL, "launch.launcher": "python"}), "k8s")


def test_lightning_13374_one_process_per_pod_is_assumed() -> None:
    artifact = api.render(pods({**TRL, "parallelism.sharding": "zero3"}), target="k8s").text
    assert re.search(r"torchrun[\s\S]*--nproc-per-node=8", program(artifact))


def test_pytorch_73380_c10d_does_not_find_its_host() -> None:
    script = program(api.render(pods(TRL), target="k8s").text)
    assert "--rdzv" not in script and "--node-rank=" in script and "--master-addr=" in script


def test_samudra_805_jobs_of_one_node_collide_on_a_port() -> None:
    script = program(api.render(pods({**TRL, "resources.nodes": 1, "resources.gpu": "h200", "resources.fabric": None}), target="k8s").text)
    assert "--master-addr=127.0.0.1" in script


def test_kubeflow_trainer_1797_host_network_and_a_fixed_port() -> None:
    artifacts = [api.render(pods({"name": name, "resources.fabric": "oci-roce"}), target="k8s").text for name in ("one", "two")]
    ports = {container(artifact)["ports"][0]["containerPort"] for artifact in artifacts}
    assert len(ports) == 2 and 23456 not in ports
    assert all(pod["dnsPolicy"] == "ClusterFirstWithHostNet" for artifact in artifacts for pod in templates(artifact))


def test_kubeflow_trainer_2407_nproc_auto_counts_host_cpus() -> None:
    assert kind(text(), "PyTorchJob")["spec"]["nprocPerNode"] == "8"


def test_torch_elastic_env_of_the_user_breaks_the_rendezvous() -> None:
    refused(pods({"launch.env": {"PET_NNODES": "2", "OMP_NUM_THREADS": "12"}}), "launch.env.PET_NNODES", "k8s")


# Kubernetes: names ----------------------------------------------------------------------------------------------------


def test_kubeflow_trainer_1101_long_name_is_stuck_for_ever() -> None:
    refused(pods({"name": "x" * 60}), "name", "k8s")


def test_kubeflow_trainer_1745_dotted_and_upper_case_names() -> None:
    assert kind(text(name="Qwen2.5_Coder"), "PyTorchJob")["metadata"]["name"] == "qwen2-5-coder"


def test_mlbatch_38_label_values_above_63() -> None:
    refused(pods({"kubernetes.labels": {"run": "y" * 64}}), "kubernetes.labels", "k8s")


# Kubernetes: life and death -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_pytorch_146371_one_rank_dies_and_the_others_hang(target: str) -> None:
    artifact = text(target, launch__restarts="3")
    assert "maxRestarts: 3" in artifact and "backoffLimit: 0" in artifact and "restartPolicy: Never" in artifact


def test_kubeflow_trainer_2000_on_failure_of_a_large_job() -> None:
    assert "JG910" in codes(pods(), "k8s") and "JG765" in codes(pods({"kubernetes.restart": "pod"}), "jobset")


@pytest.mark.parametrize("target", KUBERNETES)
def test_kubeflow_trainer_2045_exit_code_restarts_for_ever(target: str) -> None:
    assert "ExitCode" not in text(target)


def test_kubeflow_trainer_1589_no_limit_of_restarts() -> None:
    policy = kind(text(launch__restarts="3"), "PyTorchJob")["spec"]["runPolicy"]
    assert policy["backoffLimit"] == 3 * 2
    assert kind(text(launch__restarts="0"), "PyTorchJob")["spec"]["runPolicy"]["backoffLimit"] == 0


def test_kubeflow_trainer_1579_failed_job_holds_its_gpus() -> None:
    assert kind(text(), "PyTorchJob")["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"


def test_kubeflow_trainer_2127_default_restart_policy_is_unclear() -> None:
    replicas = kind(text(), "PyTorchJob")["spec"]["pytorchReplicaSpecs"]
    assert all("restartPolicy" in replica for replica in replicas.values())


def test_kubeflow_trainer_1638_elastic_with_local_checkpoints() -> None:
    edits = {"kubernetes.elastic": {"min_nodes": 1, "max_nodes": 4}, "checkpoint.directory": "/tmp/run"}
    assert "checkpoint.directory" in {f.path for f in found(pods(edits), "k8s") if f.severity == "error"}


@pytest.mark.parametrize("target", KUBERNETES)
def test_kubeflow_trainer_1751_autoscaler_grows_the_job(target: str) -> None:
    assert "metrics" not in text(target)


def test_pytorch_147064_max_restarts_is_not_global() -> None:
    policy = kind(text(launch__restarts="2", launch__time_limit="24h"), "PyTorchJob")["spec"]["runPolicy"]
    assert policy["activeDeadlineSeconds"] == 3 * 86400


def test_kubeflow_trainer_3779_failed_trainjob_reruns_for_ever() -> None:
    assert "ttlSecondsAfterFinished" not in text("trainjob")
    refused(pods({"kubernetes.ttl": "1d"}), "kubernetes.ttl", "trainjob")


def test_kubeflow_trainer_1627_ttl_at_the_wrong_place() -> None:
    job = kind(text(kubernetes__ttl="1d"), "PyTorchJob")["spec"]
    assert job["runPolicy"]["ttlSecondsAfterFinished"] == 86400 and "ttlSecondsAfterFinished" not in job


def test_kubeflow_trainer_1825_gang_ignored() -> None:
    (note,) = [f for f in found(pods({"kubernetes.scheduler": "volcano"}), "k8s") if f.code == "JG911"]
    assert "--gang-scheduler-name=volcano" in note.message


def test_volcano_1959_gang_larger_than_what_starts_at_once() -> None:
    policy = kind(text(kubernetes__scheduler="volcano"), "PyTorchJob")["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy["minAvailable"] == 2


def test_kueue_1476_quota_is_not_topology() -> None:
    asked = "{kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}"
    artifact = text(kubernetes__annotations=asked, kubernetes__queue="team-a")
    assert artifact.count("kueue.x-k8s.io/podset-group-name") == 2, "the master lies beside the workers"


def test_pytorch_operator_258_istio_sidecar() -> None:
    assert text().count('sidecar.istio.io/inject: "false"') == 2


def test_axlearn_517_daemon_keeps_the_job_from_ending() -> None:
    artifact = api.render(pods({"resources.fabric": "gcp-tcpxo"}), target="k8s").text
    for pod in templates(artifact):
        assert len(pod["containers"]) == 1
        assert [one["restartPolicy"] for one in pod["initContainers"]] == ["Always"]


def test_pytorch_119856_checkpoint_on_sigterm_is_cut_at_30_s() -> None:
    artifact = text()
    (grace,) = {pod["terminationGracePeriodSeconds"] for pod in templates(artifact)}
    assert 120 <= int(variables(artifact)["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) < grace


def test_adaptdl_105_sigterm_never_reaches_python() -> None:
    assert re.search(r"^exec ", program(api.render(pods(TRL), target="k8s").text), re.MULTILINE)


def test_hyperpod_recipes_failed_training_shows_as_success() -> None:
    script = program(text())
    assert script.startswith("set -euo pipefail") and "| tee" not in script


@pytest.mark.parametrize("target", KUBERNETES)
def test_kubernetes_12889_numbers_in_variables(target: str) -> None:
    edits = {"launch.env": {"A": "1", "B": "true", "C": "on", "D": "1e3", "E": "0x1f", "F": "null"}}
    values = variables(api.render(pods(edits), target=target).text)
    assert {name: values[name] for name in "ABCDEF"} == edits["launch.env"]


# Kubernetes: storage --------------------------------------------------------------------------------------------------


def test_deepops_587_read_write_once_on_two_nodes() -> None:
    once = [{"mount": "/lustre", "claim": "new", "create": {"size": "1TB", "access_mode": "ReadWriteOnce"}}]
    refused(pods({"volumes": once}), "volumes.0.create.access_mode", "k8s")
    assert "JG856" in codes(spec({"volumes": [{**once[0], "path": "/lustre"}]}), "slurm")


def test_transformers_20988_every_node_rotates() -> None:
    assert "JG851" in codes(pods({"training.options": {"save_on_each_node": True}}), "k8s")


def test_transformers_28015_every_node_renames() -> None:
    edits = {"training.framework": "transformers", "launch.entrypoint": "train.py", "training.versions": {"transformers": "4.36.1"}}
    assert "JG852" in codes(pods(edits), "k8s")


def test_automodel_3686_makedirs_races_on_a_shared_file_system() -> None:
    assert "mkdir -p -- /lustre/checkpoints/full-32b" in program(text())


def test_fms_hf_tuning_217_checkpoints_in_tmp_evict_the_pod() -> None:
    refused(pods({"checkpoint.directory": "/tmp/run"}), "checkpoint.directory", "k8s")


def test_kubernetes_engine_samples_1581_hub_cache_on_the_overlay() -> None:
    assert variables(text())["HF_HOME"].startswith("/lustre/")


def test_huggingface_hub_2797_read_only_cache() -> None:
    volumes = [*POD["volumes"], {"mount": "/models", "claim": "models", "read_only": True}]
    assert "JG853" in codes(pods({"volumes": volumes, "launch.env": {"HF_HOME": "/models/hf"}}), "k8s")


def test_kserve_3562_home_of_a_random_user() -> None:
    artifact = text()
    assert variables(artifact)["TRITON_CACHE_DIR"].startswith("/jobgen") and variables(artifact)["XDG_CACHE_HOME"].startswith("/jobgen")
    assert "export HOME=/jobgen/home" in program(artifact)


def test_awsome_distributed_ai_hf_token_in_clear_text() -> None:
    token = {"HF_TOKEN": "hf_" + "a1" * 17}
    refused(pods({"launch.env": token}), "launch.env.HF_TOKEN", "k8s")
    artifact = api.render(pods({"launch.secrets": ["HF_TOKEN"], "kubernetes.secret": "hf"}), target="k8s").text
    assert "secretKeyRef" in artifact


# The network ----------------------------------------------------------------------------------------------------------


def test_nccl_718_gid_index_differs_from_pod_to_pod() -> None:
    edits = {"resources.fabric": "roce", "launch.env": {"NCCL_IB_GID_INDEX": "3"}}
    assert "JG711" in codes(pods(edits), "k8s") and "GID_INDEX" not in text(resources__fabric="roce")


def test_nemo_rl_1973_stale_efa_variables() -> None:
    edits = {"resources.fabric": "efa", "resources.node_type": "p4de.24xlarge", "resources.cpus_per_node": 90,
             "launch.env": {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}}  # fmt: skip
    assert len([f for f in found(pods(edits), "k8s") if f.code == "JG711"]) == 2


@pytest.mark.parametrize("value", ["^lo", "^docker0"])
def test_horovod_700_one_sided_exclusion(value: str) -> None:
    assert "JG712" in codes(pods({"launch.env": {"NCCL_SOCKET_IFNAME": value}}), "k8s")


def test_aws_do_eks_51_nccl_syntax_for_gloo() -> None:
    refused(pods({"launch.env": {"GLOO_SOCKET_IFNAME": "^lo"}}), "launch.env.GLOO_SOCKET_IFNAME", "k8s")


def test_aicr_422_hard_coded_tcpxo_variables() -> None:
    edits = {"resources.fabric": "gcp-tcpxo"}
    assert ". /usr/local/nvidia/lib64/nccl-env-profile.sh" in program(api.render(pods(edits), target="k8s").text)
    assert "JG711" in codes(pods({**edits, "launch.env": {"NCCL_PROTO": "Simple"}}), "k8s")


def test_aicr_1631_installer_is_not_done_yet() -> None:
    script = program(api.render(pods({"resources.fabric": "gcp-tcpxo"}), target="k8s").text)
    assert script.index("until [ -e /usr/local/nvidia/lib64/nccl-env-profile.sh ]") < script.index(". /usr/local/nvidia/lib64/nccl-env-profile.sh")


def test_aws_distill_template_nccl_timeout_does_not_exist() -> None:
    assert "JG710" in codes(pods({"launch.env": {"NCCL_TIMEOUT": "7200"}}), "k8s")


def test_pytorch_121055_async_error_handling_loses_the_dump() -> None:
    assert "JG715" in codes(pods({"launch.env": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}}), "k8s")
    assert "ASYNC_ERROR_HANDLING" not in text()


def test_torchtune_2093_killed_while_rank_0_saves() -> None:
    edits = {"training.framework": "custom", "launch.entrypoint": "train.py", "checkpoint.content": "full"}
    assert "JG846" in codes(spec(edits))


def test_deepspeed_2679_ssh_in_pods() -> None:
    command = {"training.framework": "deepspeed", "launch.command": ["deepspeed", "--hostfile", "hosts", "train.py"]}
    refused(pods(command), "launch.command", "k8s")
    own = {"training.framework": "deepspeed", "launch.entrypoint": "train.py", "launch.launcher": "deepspeed"}
    assert "--no_ssh" in program(api.render(pods(own), target="k8s").text)
