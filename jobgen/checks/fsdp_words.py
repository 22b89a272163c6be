"""FSDP's settings in transformers' and accelerate's own words: names, types and combinations that they refuse."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import number, setting

FSDP = ("fsdp1", "fsdp2")
LAYER = ("fsdp_config.transformer_layer_cls_to_wrap", "fsdp_config.fsdp_transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap")
RESHARD = ("fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward")
SMALLEST = ("fsdp_config.min_num_params", "fsdp_config.fsdp_min_num_params", "fsdp_min_num_params")


def fsdp(case: Case) -> bool:
    """FSDP through accelerate."""
    return case.spec.parallelism.sharding in FSDP and case.spec.training.framework in (
        "transformers", "trl", "accelerate", "llama-factory", "axolotl", "ms-swift",
    )  # fmt: skip


@rule(
    "JG705", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"model.name": "Qwen/Qwen3-8B", "training.options": {"fsdp_config": {"fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}}}),
    good=Example("full-8b-fsdp2", {"model.name": "Qwen/Qwen3-8B", "training.options": {"fsdp_config": {"fsdp_transformer_layer_cls_to_wrap": "Qwen3DecoderLayer"}}}),
    fix="leave it out: jobgen writes the model's layer class",
    sources=("accelerate@16cb6eb8 utils/dataclasses.py set_auto_wrap_policy",),
    facts=("LA12",),
)  # fmt: skip
def layer_of_another_model(case: Case) -> Outcome | None:
    """The layer class to wrap is another model's

    accelerate looks it up in the model: "Could not find the transformer layer class".
    """
    found = setting(case, *LAYER) if fsdp(case) else None
    right = case.arch.module_class
    if found is None or not right or not found.value:
        return None
    given = found.value if isinstance(found.value, list) else [one.strip() for one in str(found.value).split(",")]
    strangers = [one for one in given if one != right and str(one).endswith(("DecoderLayer", "Block"))]
    if right in given or not strangers:
        return None
    return Outcome(found.path, f"{strangers[0]} is no layer of {case.arch.name}, whose layers are {right}", "remove it: jobgen writes the class",
                   {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG706", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"training.options": {"fsdp_config": {"fsdp_reshard_after_forward": "FULL_SHARD"}}}),
    good=Example("full-8b-fsdp2", {"training.options": {"fsdp_config": {"fsdp_reshard_after_forward": True}}}),
    fix="true or false with FSDP2, a strategy's name with FSDP1",
    sources=("accelerate@16cb6eb8 utils/dataclasses.py:1868-1876",),
    facts=("LA13",),
)  # fmt: skip
def resharding_type(case: Case) -> Outcome | None:
    """reshard_after_forward has another type in each FSDP version

    A boolean in FSDP2, the name of a strategy in FSDP1; accelerate raises.
    """
    found = setting(case, *RESHARD) if fsdp(case) else None
    if found is None or found.value is None:
        return None
    second = case.spec.parallelism.sharding == "fsdp2"
    if (found.on is not None) is second:
        return None
    right = "true or false" if second else "FULL_SHARD, SHARD_GRAD_OP or NO_SHARD"
    return Outcome(found.path, f"{found.words} with {case.spec.parallelism.sharding}", f"write {right}",
                   {found.edit: True if second else "FULL_SHARD"} if found.edit else None)  # fmt: skip


@rule(
    "JG707", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"training.options": {"fsdp_config": {"activation_checkpointing": True, "min_num_params": 100000000,
                                                                       "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}}}),
    good=Example("full-8b-fsdp1", {}),
    fix="remove min_num_params",
    sources=("transformers 4.57.6 training_args.py:1977-1982",),
    facts=("LA14",),
    versions="transformers 4",
)  # fmt: skip
def two_wrap_policies(case: Case) -> Outcome | None:
    """Two ways of choosing what FSDP wraps

    min_num_params and the layer's class exclude each other, and jobgen writes the class.
    """
    if not fsdp(case) or not number(case, *SMALLEST) or case.v["transformers"] >= (5, 0):
        return None
    found = setting(case, *SMALLEST)
    assert found is not None
    return Outcome(found.path, f"{found.words} beside the layer class {case.arch.module_class}", "remove min_num_params", {found.edit: None} if found.edit else None)


@rule(
    "JG708", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"launch.args": ["--fsdp", "full_shard shard_grad_op"]}),
    good=Example("full-8b-fsdp1", {"launch.args": ["--fsdp", "full_shard auto_wrap"]}),
    fix="leave fsdp out: jobgen writes it from parallelism.sharding and offload",
    sources=("transformers 4.57.6 training_args.py:1922-1928",),
    facts=("LA15",),
    versions="transformers 4",
)  # fmt: skip
def impossible_fsdp_words(case: Case) -> Outcome | None:
    """The words of fsdp exclude each other

    offload needs a strategy beside it, and full_shard and shard_grad_op are two.
    """
    found = setting(case, "fsdp") if fsdp(case) else None
    if found is None or isinstance(found.value, bool | dict) or case.v["transformers"] >= (5, 10):
        return None
    words = set(found.value if isinstance(found.value, list) else str(found.value).split())
    both = {"full_shard", "shard_grad_op"} <= words
    if not both and words != {"offload"}:
        return None
    what = "full_shard and shard_grad_op together" if both else "offload without a strategy"
    return Outcome(found.path, f"{found.words}: {what}", "remove fsdp: jobgen writes it", {found.edit: None} if found.edit else None)
