"""Fields that contradict each other are named together, with their values and lines."""

import pytest

CASES = [
    ("model.name=", "model", "neither"),
    ("training.max_steps=3;training.data.tokens=1e9", "training.data.tokens", "`training.max_steps: 3`"),
    ("training.data.tokens=1e9;training.data.samples=10", "training.data.samples", "how long"),
    ("training.data.tokens=1e9;training.data.tokens_per_sample=10", "training.data.tokens_per_sample", "amount"),
    ("training.global_batch_size=100", "training.global_batch_size", "100 / 16"),
    ("training.global_batch_size=128;training.gradient_accumulation_steps=4", "training.global_batch_size", "x data (16) = 64"),
    ("parallelism.tensor=3", "parallelism.tensor", "nodes (2) x processes_per_node (8) / (tensor (3)"),
    ("parallelism.tensor=32", "parallelism.tensor", "16 / 32"),
    ("parallelism.expert=3", "parallelism.expert", "16 / 1 / (3 x 1)"),
    ("parallelism.replicate=2", "parallelism.replicate", "shard groups"),
    ("parallelism.replicate=3;parallelism.sharding=fsdp2", "parallelism.replicate", "16 / 3"),
    ("training.rollout={mode: server, nodes: 2}", "training.rollout.nodes", "leaves none"),
    ("launch.processes_per_node=16", "launch.processes_per_node", "needs a GPU"),
    ("launch.processes_per_node=8;launch.launcher=python", "launch.processes_per_node", "one process"),
    ("resources.hosts=[a, b, c]", "resources.hosts", "`resources.nodes: 2` (line 7)"),
    ("resources.hosts=[a, a]", "resources.hosts", "twice"),
    ("resources.hosts=[a, -oProxyCommand=x]", "resources.hosts.1", "not a host"),
    ("launch.entrypoint=a.py;launch.module=b", "launch.module", "each name the program"),
    ("launch.command=[]", "launch.command", "empty"),
    ("launch.python={venv: /a, uv: b}", "launch.python.uv", "each name"),
    ("launch.python={}", "launch.python", "no environment"),
    ("launch.env.A-B=x", "launch.env.A-B", "cannot name"),
    ("launch.secrets=[A=b]", "launch.secrets.0", "with its value"),
    ("launch.secrets=[A, A]", "launch.secrets", "twice"),
    ("launch.secrets=[A];launch.env.A=x", "launch.secrets.0", "both"),
    ("volumes=[{mount: /x}]", "volumes.0", "nothing to mount"),
    ("volumes=[{mount: /x, path: /a, scratch: true}]", "volumes.0.scratch", "each say"),
    ("volumes=[{mount: /x, path: /a, create: {size: 1TB}}]", "volumes.0.create", "does not name"),
    ("volumes=[{mount: x, path: /a}]", "volumes.0.mount", "absolute"),
    ("volumes=[{mount: /, path: /a}]", "volumes.0.mount", "file system"),
    ("volumes=[{mount: /x, path: /a/../b}]", "volumes.0.path", "absolute"),
    ("volumes=[{mount: /x, path: /a}, {mount: /x/, path: /b}]", "volumes.1.mount", "taken by"),
    ("parallelism.sharding=fsdp2;offload.optimizer=cpu", "offload.optimizer", "one switch"),
    ("parallelism.sharding=fsdp1;offload.parameters=cpu", "offload.parameters", "one switch"),
    ("parallelism.sharding=zero3;offload.optimizer=nvme", "offload.optimizer", "nvme_path"),
    ("training.lora.rank=8", "training.lora", "no effect"),
    ("training.quantization.type=nf4", "training.quantization", "no effect"),
    ("training.method=lora;training.quantization.type=nf4", "training.quantization", "no effect"),
    ("parallelism.virtual_pipeline=2", "parallelism.virtual_pipeline", "stages"),
    ("parallelism.pipeline=2;parallelism.pipeline_layers=[1]", "parallelism.pipeline_layers", "has 1 numbers"),
    ("kubernetes.extra_resources={nvidia.com/gpu: 8}", "kubernetes.extra_resources.nvidia.com/gpu", "gpus_per_node"),
    ("kubernetes.extra_resources={rdma/hca: many}", "kubernetes.extra_resources.rdma/hca", "quantity"),
    ("kubernetes.elastic={min_nodes: 3, max_nodes: 4}", "kubernetes.elastic", "not between"),
    ("after=[{job: ''}]", "after.0.job", "empty"),
    ("ignore=[JG305, JG305]", "ignore", "twice"),
    ("name=a/b", "name", "cannot name"),
    ("name='a b'", "name", "cannot name"),
    ("sweep={grid: {training.lora.rnk: [1]}}", "sweep.grid.training.lora.rnk", "no field"),
    ("sweep={grid: {training.micro_batch_size: [1, x]}}", "sweep.grid.training.micro_batch_size", "micro_batch_size: x"),
    ("sweep={grid: {parallelism.tensor: [1, 3]}}", "sweep.grid.parallelism.tensor", "16 / 3"),
    ("sweep={grid: {name: [a, b]}}", "sweep.grid.name", "cannot vary"),
    ("sweep={grid: {training.micro_batch_size: []}}", "sweep.grid.training.micro_batch_size", "no values"),
    ("sweep={zip: {training.micro_batch_size: [1, 2], training.sequence_length: [1]}}", "sweep.zip", "differ in length"),
    ("sweep={}", "sweep", "nothing"),
    ("sweep={grid: {training.micro_batch_size: [1]}, list: [{training.sequence_length: 3}]}", "sweep.list", "both"),
    ("plan.fix=[training.sequence_len]", "plan.fix.0", "no field"),
    ("plan.vary={parallelism.tensr: [1]}", "plan.vary.parallelism.tensr", "no field"),
    ("plan.vary={parallelism.tensor: [one]}", "plan.vary.parallelism.tensor", "one"),
]


@pytest.mark.parametrize(("sets", "path", "words"), CASES)
def test_a_contradiction_is_reported_once(sets, path, words, base, refuse):
    (problem,) = refuse(base, sets.split(";"))
    assert problem.path == path and words in problem.message and problem.fix and problem.line >= 1


def test_both_fields_are_named_with_their_lines(base, refuse):
    (problem,) = refuse(base + "launch:\n  entrypoint: a.py\n  module: b\n")
    assert problem.line == 12 and problem.code == "JG003"
    assert "`launch.entrypoint: a.py` (line 11) and `launch.module: b` (line 12)" in problem.message


def test_several_contradictions_are_reported_together(base, refuse):
    found = refuse(base, ["parallelism.tensor=3", "launch.processes_per_node=16", "training.lora.rank=8"])
    assert {p.path for p in found} == {"parallelism.tensor", "launch.processes_per_node", "training.lora"}
