"""How single frameworks combine parallel dimensions, and what a combination costs."""

from __future__ import annotations

import math

from jobgen.checks.case import Case
from jobgen.checks.parallelism import ACCELERATE, megatron_like
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import number, on, setting, value

ZERO = ("zero1", "zero2", "zero3")
TITAN_SINGLE = frozenset(("1f1b", "gpipe"))
TITAN_SOURCE = "torchtitan@b5bcd76c torchtitan/distributed/pipeline_parallel.py:234-257"
ACCELERATE_SOURCE = "accelerate@16cb6eb8 parallelism_config.py"


@rule(
    "JG514", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"parallelism.pipeline": 2, "training.options": {"parallelism.pipeline_parallel_layers_per_stage": 4}}),
    good=Example("pretrain-8b-torchtitan", {"parallelism.pipeline": 2}),
    fix="a number of layers per stage that makes as many stages as the schedule runs",
    sources=(TITAN_SOURCE,),
    facts=("PD13",),
)  # fmt: skip
def torchtitan_stages(case: Case) -> Outcome | None:
    """torchtitan's schedule does not fit the number of stages

    1F1B and GPipe run one stage a rank, interleaved schedules two or more, and the stages must divide over the ranks.
    Embedding and head count as a layer each.
    """
    pipeline = case.layout.pipeline
    name = "parallelism.pipeline_parallel_layers_per_stage"
    per_stage = number(case, name)
    if case.spec.training.framework != "torchtitan" or pipeline == 1 or not per_stage:
        return None
    written = str(value(case, "parallelism.pipeline_parallel_schedule", default="")).lower()
    single = written in TITAN_SINGLE if written else case.spec.parallelism.virtual_pipeline == 1
    stages = math.ceil((case.arch.depth + 2) / per_stage)
    if stages % pipeline == 0 and (stages // pipeline == 1) is single:
        return None
    found = setting(case, name)
    assert found is not None
    schedule = "a single-stage schedule" if single else "an interleaved schedule"
    return Outcome(found.path, f"({case.arch.depth} + 2) layers / {per_stage:g} a stage = {stages} stages on {pipeline} ranks with {schedule}",
                   "remove pipeline_parallel_layers_per_stage", {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG515", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"parallelism.context": 2, "training.options": {"parallelism_config": {"sp_size": 2}}}),
    good=Example("full-8b-fsdp2", {"parallelism.context": 2}),
    fix="one of ring attention and Ulysses",
    sources=(f"{ACCELERATE_SOURCE}:329",),
    facts=("PD15",),
)  # fmt: skip
def two_context_methods(case: Case) -> Outcome | None:
    """Two ways of splitting the sequence at once

    accelerate refuses context parallelism (ring) together with sequence parallelism (Ulysses).
    """
    if case.spec.training.framework not in ACCELERATE or case.layout.context == 1 or case.spec.parallelism.context_method != "ring":
        return None
    names = ("parallelism_config.sp_size", "parallelism_config.parallelism_config_sp_size", "sp_size")
    found = setting(case, *names)
    if found is None or (number(case, *names) or 1) <= 1:
        return None
    return Outcome(found.path, f"{found.words} (Ulysses) beside context: {case.layout.context} with context_method: ring", f"remove {names[0]}",
                   {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG516", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"parallelism.tensor": 2, "parallelism.replicate": 4}),
    good=Example("full-8b-fsdp2", {"parallelism.tensor": 2, "parallelism.replicate": 2}),
    fix="a smaller parallelism.replicate",
    sources=(f"{ACCELERATE_SOURCE}:336",),
    facts=("PD16",),
)  # fmt: skip
def replicas_without_shards(case: Case) -> Outcome | None:
    """Tensor or context parallelism with replicas that are not sharded

    accelerate refuses replicas of shard groups of one rank beside tensor or context parallelism.
    """
    layout = case.layout
    if case.spec.training.framework not in ACCELERATE or layout.replicate == 1 or layout.shard > 1:
        return None
    if layout.tensor == 1 and layout.context == 1:
        return None
    size = next((d for d in range(layout.replicate // 2, 0, -1) if layout.data % d == 0), 1)
    return Outcome("parallelism.replicate", f"replicate ({layout.replicate}) leaves shard groups of one rank beside "
                   f"tensor ({layout.tensor}) and context ({layout.context})", f"write replicate: {size}", {"parallelism.replicate": size})  # fmt: skip


@rule(
    "JG517", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"parallelism.sharding": "zero3", "parallelism.context": 2}),
    good=Example("full-8b-zero2", {"parallelism.sharding": "zero3", "parallelism.context": 2, "parallelism.context_method": "ulysses"}),
    fix="parallelism.sharding: fsdp2; context parallelism under DeepSpeed: context_method: ulysses",
    sources=("accelerate@16cb6eb8 commands/launch.py:1205", ACCELERATE_SOURCE),
    facts=("PD17",),
)  # fmt: skip
def needs_fsdp2(case: Case) -> Outcome | None:
    """accelerate's tensor and context parallelism need FSDP2

    parallelism_config is accepted with fsdp_version 2 only. Under DeepSpeed the sequence is split by Ulysses, and
    tensors by AutoTP.
    """
    split, layout = case.spec.parallelism, case.layout
    if case.spec.training.framework not in ACCELERATE or split.sharding == "fsdp2":
        return None
    zero = split.sharding in ZERO
    if layout.context > 1 and not (zero and split.context_method == "ulysses"):
        name, size = "context", layout.context
    elif layout.tensor > 1 and not zero:
        name, size = "tensor", layout.tensor
    else:
        return None
    edits: dict[str, object] = {"parallelism.context_method": "ulysses"} if zero else {"parallelism.sharding": "fsdp2"}
    words = "context_method: ulysses" if zero else "sharding: fsdp2"
    return Outcome(f"parallelism.{name}", f"{name}: {size} with sharding: {split.sharding} reaches nobody: accelerate splits so under FSDP2",
                   f"write {words}", edits)  # fmt: skip


@rule(
    "JG518", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"training.options": {"use-torch-fsdp2": True}}),
    good=Example("pretrain-70b-megatron", {}),
    fix="remove use-torch-fsdp2; sharding: fsdp2 runs Megatron's own FSDP",
    sources=("Megatron-LM@d98e8a64 megatron/training/arguments.py:1031-1050",),
    facts=("PD18", "PR10"),
)  # fmt: skip
def torch_fsdp2_in_megatron(case: Case) -> Outcome | None:
    """Megatron-LM's torch FSDP2 excludes much else

    It asserts one pipeline stage, no expert parallelism, no distributed optimizer, untied embeddings and no fp16.
    """
    found = setting(case, "use-torch-fsdp2")
    if found is None or found.on is not True or case.spec.training.framework != "megatron-lm":
        return None
    layout, training = case.layout, case.spec.training
    reasons = [
        words for words, wrong in (
            (f"pipeline: {layout.pipeline}", layout.pipeline > 1), (f"expert: {layout.expert}", layout.expert > 1),
            ("the distributed optimizer (sharding: zero1)", case.spec.parallelism.sharding == "zero1"),
            ("tied embeddings", case.arch.tied), ("precision: fp16", training.precision == "fp16"),
        ) if wrong
    ]  # fmt: skip
    if not reasons:
        return None
    return Outcome(found.path, f"torch FSDP2 excludes {', '.join(reasons)}", "remove use-torch-fsdp2", {found.edit: None} if found.edit else None)


@rule(
    "JG519", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.expert": 2, "parallelism.tensor": 2, "resources.nodes": 2,
                                    "resources.fabric": "infiniband"}),
    good=Example("full-8b-axolotl", {"model.name": "Qwen/Qwen3-30B-A3B", "parallelism.expert": 2, "resources.nodes": 2, "resources.fabric": "infiniband"}),
    fix="expert parallelism with FSDP2 alone",
    sources=("axolotl@067b021c docs/support-matrix.qmd",),
    facts=("PD21",),
)  # fmt: skip
def axolotl_experts(case: Case) -> Outcome | None:
    """Axolotl's expert parallelism goes with FSDP2 alone

    With tensor or context parallelism it raises.
    """
    layout = case.layout
    if case.spec.training.framework != "axolotl" or layout.expert == 1 or (layout.tensor == 1 and layout.context == 1):
        return None
    name = "tensor" if layout.tensor > 1 else "context"
    return Outcome(f"parallelism.{name}", f"Axolotl refuses expert: {layout.expert} beside {name}: {getattr(layout, name)}", f"write {name}: 1",
                   {f"parallelism.{name}": 1})  # fmt: skip


@rule(
    "JG520", "warning", "end", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.tensor": 16}),
    good=Example("pretrain-70b-megatron", {}),
    fix="a tensor size within a node; pipeline, context or data parallelism between nodes",
    sources=("Megatron-LM (Narayanan et al. 2021, section 3.2): tensor parallelism within a node",),
)  # fmt: skip
def tensor_across_nodes(case: Case) -> Outcome | None:
    """Tensor parallelism crosses nodes

    It exchanges activations several times a layer, which the links inside a node carry and the network does not.
    """
    layout = case.layout
    if layout.tensor <= layout.processes_per_node or layout.nodes == 1:
        return None
    node = case.node
    if node is not None and "NVL72" in node.intra_link:
        return None
    return Outcome("parallelism.tensor", f"a tensor group of {layout.tensor} ranks spans {-(-layout.tensor // layout.processes_per_node)} nodes",
                   f"write tensor: {layout.processes_per_node} or less", {"parallelism.tensor": layout.processes_per_node})  # fmt: skip


@rule(
    "JG521", "warning", "end", "spec",
    bad=Example("pretrain-70b-megatron", {"training.gradient_accumulation_steps": 2}),
    good=Example("pretrain-70b-megatron", {}),
    fix="more microbatches: a larger global batch, or fewer stages",
    sources=("Megatron-LM (Narayanan et al. 2021, section 2.2): the bubble is (stages - 1) / microbatches of the work",),
)  # fmt: skip
def pipeline_bubble(case: Case) -> Outcome | None:
    """The pipeline has fewer microbatches than stages

    Stages idle while it fills and drains: (stages - 1) / (microbatches + stages - 1) of the time.
    """
    layout = case.layout
    if layout.pipeline == 1 or layout.accumulation >= layout.pipeline:
        return None
    idle = (layout.pipeline - 1) / (layout.accumulation + layout.pipeline - 1)
    edits = {"training.gradient_accumulation_steps": 4 * layout.pipeline} if case.spec.training.global_batch_size is None else None
    return Outcome("training.gradient_accumulation_steps", f"{layout.accumulation} microbatches through {layout.pipeline} stages idle {100 * idle:.0f} % of the time",
                   f"write gradient_accumulation_steps: {4 * layout.pipeline}, or fewer stages", edits)  # fmt: skip


@rule(
    "JG522", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.virtual_pipeline": 5, "training.gradient_accumulation_steps": 66}),
    good=Example("pretrain-70b-megatron", {"parallelism.virtual_pipeline": 5, "training.gradient_accumulation_steps": 64}),
    fix="a number of microbatches that the stages divide",
    sources=("Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py (interleaved: microbatches in groups of the pipeline size)",),
)  # fmt: skip
def microbatches_by_stages(case: Case) -> Outcome | None:
    """The interleaved schedule runs microbatches in groups of the pipeline's size

    Megatron-LM asserts that the number of microbatches is a multiple of the stages.
    """
    layout = case.layout
    if case.spec.parallelism.virtual_pipeline == 1 or layout.pipeline == 1 or not megatron_like(case) or layout.accumulation % layout.pipeline == 0:
        return None
    if on(case, "microbatch-group-size-per-virtual-pipeline-stage"):
        return None
    right = -(-layout.accumulation // layout.pipeline) * layout.pipeline
    edits = {"training.gradient_accumulation_steps": right} if case.spec.training.global_batch_size is None else None
    return Outcome("training.gradient_accumulation_steps", f"{layout.accumulation} microbatches / {layout.pipeline} stages is not a whole number",
                   f"write gradient_accumulation_steps: {right}", edits)  # fmt: skip


@rule(
    "JG901", "info", "end", "spec",
    bad=Example("pretrain-70b-megatron", {}),
    good=Example("pretrain-70b-megatron", {"parallelism.tensor": 2, "parallelism.pipeline": 16}),
    fix="nothing; keep make-vocab-size-divisible-by x tensor when converting checkpoints",
    sources=("Megatron-LM@d98e8a64 core/tokenizers/utils/build_tokenizer.py:138",),
    facts=("PD20",),
)  # fmt: skip
def padded_vocabulary(case: Case) -> Outcome | None:
    """Megatron pads the vocabulary

    Up to a multiple of make-vocab-size-divisible-by (128) x tensor. A checkpoint converted with another product has
    another embedding.
    """
    if not megatron_like(case):
        return None
    unit = int(number(case, "make-vocab-size-divisible-by") or 128) * case.layout.tensor
    padded = -(-case.arch.vocab // unit) * unit
    if padded == case.arch.vocab:
        return None
    return Outcome("parallelism.tensor", f"the vocabulary of {case.arch.vocab} is padded to {padded} (a multiple of {unit})",
                   "nothing to do; convert checkpoints with the same tensor size and padding")  # fmt: skip
