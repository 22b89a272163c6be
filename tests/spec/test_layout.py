"""The arithmetic of ranks and batch."""

import pytest

from jobgen.spec.layout import LayoutError, layout


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], {"world": 16, "data": 16, "shard": 1, "replicate": 1, "accumulation": 1, "global_batch": 16}),
        (["parallelism.sharding=zero3"], {"shard": 16}),
        (["parallelism={sharding: fsdp2, replicate: 2, tensor: 2, context: 2}"], {"data": 4, "shard": 2, "shard_group": 4}),
        (["parallelism={sharding: zero1, tensor: 4, pipeline: 2}"], {"data": 2, "shard": 2, "model_parallel": 8}),
        (["parallelism={expert: 8, pipeline: 2}"], {"data": 8, "expert_data": 1}),
        (["launch.launcher=python"], {"world": 2, "processes_per_node": 1, "data": 2}),
        (["parallelism.device_map=auto"], {"world": 2, "processes_per_node": 1}),
        (["launch.processes_per_node=4"], {"world": 8}),
        (["training.rollout={mode: server, nodes: 1}"], {"nodes": 1, "world": 8}),
        (["training.rollout={mode: colocate, nodes: 1}"], {"nodes": 2, "world": 16}),
        (["training.global_batch_size=128", "training.micro_batch_size=2"], {"accumulation": 4, "global_batch": 128}),
        (["training.gradient_accumulation_steps=8"], {"global_batch": 128}),
    ],
)
def test_sizes_follow_from_the_spec(sets, expected, base, accept):
    found = layout(accept(base, sets).spec)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.world == found.data * found.model_parallel == found.nodes * found.processes_per_node
    assert found.global_batch == found.micro_batch * found.accumulation * found.data


def test_a_layout_error_shows_the_equation(base, accept):
    spec = accept(base).spec
    broken = spec.model_copy(update={"parallelism": spec.parallelism.model_copy(update={"tensor": 3})})
    with pytest.raises(LayoutError, match=r"data = nodes \(2\) x processes_per_node \(8\) / \(tensor \(3\)") as caught:
        layout(broken)
    assert caught.value.faults[0].fix.endswith("1, 2, 4, 8, 16")


def test_a_batch_that_does_not_divide_names_its_neighbours(base, refuse):
    assert "96 or 112" in refuse(base, ["training.global_batch_size=100"])[0].fix
    assert refuse(base, ["training.global_batch_size=3"])[0].fix == "write global_batch_size: 16"


def test_a_group_larger_than_the_world_says_how_many_nodes(base, refuse):
    assert "multiple of 4 nodes" in refuse(base, ["parallelism.tensor=8", "parallelism.pipeline=4"])[0].fix
