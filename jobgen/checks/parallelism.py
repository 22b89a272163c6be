"""Parallel sizes against the model, the framework and each other (what needs no model is checked on reading)."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import value
from jobgen.effective.numbers import megatron

ACCELERATE = frozenset(("transformers", "trl", "accelerate", "axolotl"))
"""Frameworks whose tensor and context parallelism is accelerate's parallelism_config or DeepSpeed's."""
LACKS = {
    "tensor": ("llama-factory", "unsloth", "fsdp-qlora"),
    "pipeline": (
        "transformers", "trl", "accelerate", "llama-factory", "axolotl", "unsloth", "fsdp-qlora", "torchtune", "litgpt",
    ),
    "context": ("llama-factory", "unsloth", "fsdp-qlora", "litgpt"),
    "expert": ("trl", "accelerate", "llama-factory", "unsloth", "fsdp-qlora", "torchtune", "litgpt"),
}  # fmt: skip
"""Frameworks without that dimension."""
UNEVEN = (
    "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", "pipeline-model-parallel-layout",
    "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split",
)  # fmt: skip
"""Megatron's flags for stages of different length."""
MEGATRON_SOURCE = "Megatron-LM@d98e8a64 megatron/training/arguments.py"


def megatron_like(case: Case) -> bool:
    """Megatron's own argument checks run."""
    return megatron(case.effective) or case.spec.training.framework in ("megatron-deepspeed", "nemo")


def largest_divisor(limit: int, *numbers: int) -> int:
    """The largest size up to ``limit`` that divides all numbers."""
    return next(size for size in range(max(1, limit), 0, -1) if all(number % size == 0 for number in numbers))


def attention_heads(case: Case) -> list[tuple[int, int]]:
    """(query heads, key-value heads) of the kinds of layer with softmax attention."""
    layers = [layer for layer in case.arch.layers if layer.heads and layer.mixer not in ("linear", "mamba", "conv", "none")]
    return list(dict.fromkeys((layer.heads, layer.kv_heads or layer.heads) for layer in layers))


@rule(
    "JG501", "error", "read", "spec",
    bad=Example("pretrain-8b-torchtitan", {"parallelism.sharding": "zero3"}),
    good=Example("pretrain-8b-torchtitan", {}),
    fix="a sharding that the framework has",
    sources=("the framework's own options (jobgen.frameworks)",),
)  # fmt: skip
def foreign_sharding(case: Case) -> Outcome | None:
    """The framework has no such sharding

    The setting would reach nobody: the program shards in its own way, or not at all.
    """
    wanted, can = case.spec.parallelism.sharding, case.framework.sharding
    if not can or wanted in can:
        return None
    stages = {"zero3": ("fsdp2", "fsdp1"), "fsdp1": ("fsdp2", "zero3"), "fsdp2": ("fsdp1", "zero3"), "zero2": ("zero1", "fsdp2"),
              "zero1": ("zero2", "fsdp2"), "none": ()}  # fmt: skip
    near = next((kind for kind in stages[wanted] if kind in can), next(iter(sorted(can))))
    return Outcome("parallelism.sharding", f"{case.spec.training.framework} has no {wanted} (it has {', '.join(sorted(can))})",
                   f"write sharding: {near}", {"parallelism.sharding": near})  # fmt: skip


@rule(
    "JG502", "error", "read", "spec",
    bad=Example("full-8b-fsdp2", {"parallelism.pipeline": 2}),
    good=Example("full-8b-fsdp2", {"parallelism.tensor": 2}),
    fix="size 1, or a framework with that dimension (Megatron-LM, torchtitan)",
    sources=("the framework's own options (jobgen.frameworks)",),
)  # fmt: skip
def foreign_dimension(case: Case) -> Outcome | None:
    """The framework does not split the model that way

    Ranks would be taken for a dimension that nobody reads, and the batch would be another than the spec says.
    """
    split, training = case.spec.parallelism, case.spec.training
    if training.backend == "megatron":
        return None
    for name, without in LACKS.items():
        size = getattr(split, name)
        if size > 1 and training.framework in without:
            return Outcome(f"parallelism.{name}", f"{training.framework} has no {name} parallelism, so {name}: {size} has no effect",
                           f"remove it, or train with a framework that has it{_with(name)}", {f"parallelism.{name}": 1})  # fmt: skip
    return None


def _with(name: str) -> str:
    return " (megatron-lm, torchtitan)" if name != "tensor" else " (megatron-lm, torchtitan, accelerate)"


@rule(
    "JG503", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"model.name": "Qwen/Qwen2.5-14B", "parallelism.tensor": 16, "parallelism.pipeline": 4}),
    good=Example("pretrain-70b-megatron", {"model.name": "Qwen/Qwen2.5-14B", "parallelism.tensor": 8, "parallelism.pipeline": 4}),
    fix="a tensor size that divides the attention heads",
    sources=("Megatron-LM@d98e8a64 core/transformer/transformer_config.py:1446",),
    facts=("PD02",),
)  # fmt: skip
def heads_by_tensor(case: Case) -> Outcome | None:
    """Tensor parallelism does not divide the attention heads

    Each rank takes whole heads.
    """
    tensor = case.layout.tensor
    bad = [heads for heads, _ in attention_heads(case) if heads % tensor]
    if tensor == 1 or not bad:
        return None
    size = largest_divisor(tensor, tensor, *(number for heads in attention_heads(case) for number in heads))
    return Outcome("parallelism.tensor", f"{bad[0]} heads / tensor ({tensor}) = {bad[0] / tensor:g} heads a rank",
                   f"write tensor: {size}", {"parallelism.tensor": size})  # fmt: skip


@rule(
    "JG504", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.tensor": 8}),
    good=Example("pretrain-8b-torchtitan", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.tensor": 4}),
    fix="a tensor size that divides the key-value heads (Megatron-LM also takes a multiple of them)",
    sources=("Megatron-LM@d98e8a64 core/transformer/transformer_config.py:1461-1468",),
    facts=("PD03",),
)  # fmt: skip
def key_value_heads_by_tensor(case: Case) -> Outcome | None:
    """Tensor parallelism does not fit the key-value heads

    With grouped-query attention a rank needs whole key-value heads. Megatron-LM repeats them where the tensor size is a
    multiple; others do not.
    """
    tensor = case.layout.tensor
    repeats = megatron_like(case)
    for heads, pairs in attention_heads(case):
        if tensor == 1 or heads % tensor or pairs % tensor == 0 or (repeats and tensor % pairs == 0):
            continue
        size = largest_divisor(tensor, tensor, *(number for both in attention_heads(case) for number in both))
        return Outcome("parallelism.tensor", f"{pairs} key-value heads / tensor ({tensor}) = {pairs / tensor:g} heads a rank",
                       f"write tensor: {size}", {"parallelism.tensor": size})  # fmt: skip
    return None


@rule(
    "JG505", "error", "init", "spec",
    bad=Example("pretrain-30b-a3b-megatron", {"model.name": "Qwen/Qwen3-235B-A22B", "parallelism.pipeline": 4, "resources.nodes": 16,
                                              "parallelism.tensor": 4}),
    good=Example("pretrain-30b-a3b-megatron", {"model.name": "Qwen/Qwen3-235B-A22B", "parallelism.pipeline": 4, "resources.nodes": 16,
                                               "parallelism.tensor": 4, "parallelism.pipeline_layers": [23, 24, 24, 23]}),
    fix="parallelism.pipeline_layers with the layers of each stage",
    sources=(f"{MEGATRON_SOURCE}:966-998",),
    facts=("PD04",),
)  # fmt: skip
def layers_by_pipeline(case: Case) -> Outcome | None:
    """The layers do not divide into the pipeline's stages

    Megatron-LM asserts it unless the stages' lengths are given: Qwen3-235B has 94 layers, so 2, 47 and 94 stages only.
    No framework runs more stages than there are layers, the embedding and the head.
    """
    split, depth = case.spec.parallelism, case.arch.depth
    chunks = split.pipeline * split.virtual_pipeline
    if split.pipeline > 1 and chunks > depth + 2:
        return Outcome("parallelism.pipeline", f"{chunks} stages for {depth} layers", f"at most {depth} stages")
    if split.pipeline == 1 or not megatron_like(case) or split.pipeline_layers is not None or depth % chunks == 0:
        return None
    if any(value(case, name) for name in UNEVEN):
        return None
    return Outcome("parallelism.pipeline", f"{depth} layers / {chunks} stages is not a whole number",
                   f"write pipeline_layers: {spread(depth, chunks)}", {"parallelism.pipeline_layers": spread(depth, chunks)})  # fmt: skip


def spread(depth: int, stages: int) -> list[int]:
    """Layers over stages, the first and last short: they also hold the embeddings and the head."""
    low, more = divmod(depth, stages)
    middle = [*range(1, stages - 1), 0, stages - 1]
    longer = set(middle[:more])
    return [low + (stage in longer) for stage in range(stages)]


@rule(
    "JG506", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.pipeline_layers": [20, 20, 20, 19]}),
    good=Example("pretrain-70b-megatron", {"parallelism.pipeline_layers": [19, 21, 21, 19]}),
    fix="numbers that add up to the model's layers",
    sources=(f"{MEGATRON_SOURCE}:966-998",),
)  # fmt: skip
def stage_lengths(case: Case) -> Outcome | None:
    """The stages do not add up to the model's layers

    Layers would be missing, or asked for that do not exist.
    """
    written, depth = case.spec.parallelism.pipeline_layers, case.arch.depth
    if written is None or sum(written) == depth:
        return None
    right = spread(depth, len(written))
    return Outcome("parallelism.pipeline_layers", f"{' + '.join(map(str, written))} = {sum(written)}, the model has {depth} layers",
                   f"write pipeline_layers: {right}", {"parallelism.pipeline_layers": right})  # fmt: skip


@rule(
    "JG507", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.pipeline": 2, "parallelism.virtual_pipeline": 2,
                                          "training.options": {"no-overlap-p2p-communication": True}}),
    good=Example("pretrain-70b-megatron", {"parallelism.pipeline": 2, "parallelism.virtual_pipeline": 2}),
    fix="three or more stages, or overlapping p2p communication",
    sources=(f"{MEGATRON_SOURCE}:969-1009",),
    facts=("PD05",),
)  # fmt: skip
def interleaved_schedule(case: Case) -> Outcome | None:
    """Megatron's interleaved schedule does not fit

    It needs two stages, three where p2p communication does not overlap, and whole chunks of layers (JG505).
    """
    split = case.spec.parallelism
    if split.virtual_pipeline == 1 or split.pipeline != 2 or not megatron_like(case):
        return None
    if value(case, "no-overlap-p2p-communication") is None:
        return None
    return Outcome("parallelism.virtual_pipeline", "two stages without overlapping p2p communication cannot interleave",
                   "remove virtual_pipeline", {"parallelism.virtual_pipeline": 1})  # fmt: skip


@rule(
    "JG508", "error", "init", "spec",
    bad=Example("pretrain-30b-a3b-megatron", {"parallelism.expert": 12, "resources.nodes": 6}),
    good=Example("pretrain-30b-a3b-megatron", {}),
    fix="an expert size that divides the experts; 1 for a dense model",
    sources=(f"{MEGATRON_SOURCE}:1657", "torchtitan@b5bcd76c torchtitan/distributed/parallel_dims.py"),
    facts=("PD06",),
)  # fmt: skip
def experts_by_size(case: Case) -> Outcome | None:
    """Expert parallelism does not divide the experts

    Each rank of the group holds whole experts.
    """
    expert = case.layout.expert
    if expert == 1:
        return None
    counts = sorted({layer.experts for layer in case.arch.layers if layer.experts})
    if not counts:
        return Outcome("parallelism.expert", f"{case.arch.name} has no experts", "remove it", {"parallelism.expert": 1})
    bad = [count for count in counts if count % expert]
    if not bad:
        return None
    ranks = case.layout.world // case.layout.pipeline
    size = largest_divisor(expert, expert, *counts, ranks)
    return Outcome("parallelism.expert", f"{bad[0]} experts / expert ({expert}) is not a whole number", f"write expert: {size}",
                   {"parallelism.expert": size})  # fmt: skip


@rule(
    "JG509", "error", "first_step", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.context": 2, "training.sequence_length": 8190, "parallelism.pipeline": 2}),
    good=Example("pretrain-70b-megatron", {"parallelism.context": 2, "parallelism.pipeline": 2}),
    fix="a sequence length that is a multiple of 2 x context",
    sources=(f"{MEGATRON_SOURCE}:1335", "torch distributed/tensor/experimental/_attention.py (load balancing by head and tail)"),
    facts=("PD08",),
)  # fmt: skip
def sequence_by_context(case: Case) -> Outcome | None:
    """The sequence does not divide over the context group

    Ring attention gives each rank one piece from the front and one from the back, so that causal work is even.
    """
    split, length = case.spec.parallelism, case.spec.training.sequence_length
    pieces = split.context * (2 if split.context_method == "ring" else 1)
    if split.context == 1 or length % pieces == 0:
        return None
    right = -(-length // pieces) * pieces
    times = "2 x context" if split.context_method == "ring" else "context"
    return Outcome("training.sequence_length", f"sequence_length ({length}) / ({times} = {pieces}) is not a whole number",
                   f"write sequence_length: {right}", {"training.sequence_length": right})  # fmt: skip


@rule(
    "JG510", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"parallelism.sharding": "zero3", "parallelism.context": 8, "parallelism.context_method": "ulysses",
                                  "model.name": "Qwen/Qwen2.5-7B"}),
    good=Example("full-8b-zero2", {"parallelism.sharding": "zero3", "parallelism.context": 4, "parallelism.context_method": "ulysses",
                                   "model.name": "Qwen/Qwen2.5-7B"}),
    fix="a context size that divides the heads of a tensor rank, or context_method: ring",
    sources=("DeepSpeed sequence/layer.py (all-to-all over heads)", "Megatron-LM core/extensions/transformer_engine.py (a2a)"),
)  # fmt: skip
def heads_by_context(case: Case) -> Outcome | None:
    """Ulysses cannot give each context rank whole heads

    It exchanges the sequence split for a split over heads before attention.
    """
    split = case.spec.parallelism
    if split.context == 1 or split.context_method != "ulysses":
        return None
    for heads, _ in attention_heads(case):
        if heads % split.tensor == 0 and (heads // split.tensor) % split.context:
            size = largest_divisor(split.context, split.context, *(h // split.tensor for h, _ in attention_heads(case)))
            return Outcome("parallelism.context", f"{heads} heads / tensor ({split.tensor}) / context ({split.context}) is not a whole number",
                           f"write context: {size}, or context_method: ring", {"parallelism.context": size})  # fmt: skip
    return None


@rule(
    "JG511", "warning", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.tensor": 1, "parallelism.pipeline": 16}),
    good=Example("pretrain-70b-megatron", {}),
    fix="remove sequence_parallel, or a tensor size above 1",
    sources=(f"{MEGATRON_SOURCE}:1433", "Megatron-LM@d98e8a64 core/model_parallel_config.py:504"),
    facts=("PD09",),
)  # fmt: skip
def sequence_parallel_alone(case: Case) -> Outcome | None:
    """Sequence parallelism has nothing to split over

    It uses the tensor group. Megatron-LM's command line switches it off with a warning, its configuration class raises.
    """
    split = case.spec.parallelism
    if split.sequence_parallel is not True or split.tensor > 1:
        return None
    return Outcome("parallelism.sequence_parallel", "sequence_parallel is ignored: the tensor group has one rank", "remove it",
                   {"parallelism.sequence_parallel": None})  # fmt: skip


@rule(
    "JG512", "warning", "init", "effective",
    bad=Example("pretrain-30b-a3b-megatron", {"parallelism.sequence_parallel": False}),
    good=Example("pretrain-30b-a3b-megatron", {}),
    fix="parallelism.sequence_parallel: true",
    sources=("Megatron-LM@d98e8a64 core/model_parallel_config.py:560",),
    facts=("PD10",),
)  # fmt: skip
def experts_without_sequence_parallel(case: Case) -> Outcome | None:
    """Expert and tensor parallelism need sequence parallelism in Megatron

    Without it every tensor rank routes the same tokens, which Megatron-LM does not support in training.
    """
    layout = case.layout
    if not megatron_like(case) or layout.expert == 1 or layout.tensor == 1 or case.spec.parallelism.sequence_parallel is not False:
        return None
    return Outcome("parallelism.sequence_parallel", f"expert ({layout.expert}) and tensor ({layout.tensor}) without sequence parallelism",
                   "write sequence_parallel: true", {"parallelism.sequence_parallel": True})  # fmt: skip


@rule(
    "JG513", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.tensor": 1,
                                           "parallelism.expert": 32, "parallelism.replicate": 2, "resources.nodes": 4, "resources.fabric": "infiniband"}),
    good=Example("pretrain-8b-torchtitan", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.tensor": 1, "parallelism.expert": 16,
                                            "parallelism.replicate": 2, "resources.nodes": 4, "resources.fabric": "infiniband"}),
    fix="an expert size that divides shard x context x tensor",
    sources=("torchtitan@b5bcd76c torchtitan/distributed/parallel_dims.py:191-196",),
    facts=("PD12",),
)  # fmt: skip
def torchtitan_experts(case: Case) -> Outcome | None:
    """torchtitan takes expert ranks from one shard group

    The expert size must divide shard x context x tensor; replicas do not count.
    """
    layout = case.layout
    ranks = layout.shard * layout.context * layout.tensor
    if case.spec.training.framework != "torchtitan" or layout.expert == 1 or ranks % layout.expert == 0:
        return None
    size = largest_divisor(layout.expert, layout.expert, ranks)
    return Outcome("parallelism.expert", f"shard ({layout.shard}) x context ({layout.context}) x tensor ({layout.tensor}) = {ranks}, "
                   f"which expert ({layout.expert}) does not divide", f"write expert: {size}", {"parallelism.expert": size})  # fmt: skip
