"""What was checked is what runs: the data types that the estimate counts are those that the written configuration makes.

``READERS`` say what a framework does with what is written, key by key, apart from the tables of ``states``: each line
was read in the framework (shared sources: ``states.RULES`` and the option tables).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from jobgen import api
from jobgen.effective.resolve import assume
from jobgen.effective.setup import Effective
from jobgen.frameworks import NAMES, find, states
from jobgen.frameworks.write import Configured, configure
from jobgen.spec.document import load_text
from tests.physics.specs import text

PRECISIONS = ("bf16", "fp16", "fp32", "bf16_pure", "fp8")
Kept = tuple[float, float, float]
"""Bytes of a frozen or trained weight as stored, as multiplied with, and of a master beside it."""
TORCH = {"float32": 4.0, "fp32": 4.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "fp16": 2.0}


def given(done: Configured) -> dict[str, Any]:
    """Everything written, by key: files, flags (``--key value``) and overrides (``key=value``)."""
    found: dict[str, Any] = {}
    for name, content in done.files:
        if name.endswith(".toml"):
            import tomllib

            found |= tomllib.loads(content)
        else:
            found |= {name: json.loads(content)} if name == "deepspeed.json" else yaml.safe_load(content)
    words = [str(word[0]) for word in done.args]
    for index, word in enumerate(words):
        if word.startswith("--"):
            after = words[index + 1] if index + 1 < len(words) else "--"
            found[word[2:]] = True if after.startswith("--") else yaml.safe_load(after)
        elif "=" in word:
            key, _, value = word.partition("=")
            found[key] = value
    return found


def deepspeed(block: Mapping[str, Any]) -> Kept:
    """DeepSpeed: 16-bit weights, and masters in fp32 unless told otherwise; without either block all is fp32."""
    if not block["bf16"]["enabled"] and not block["fp16"]["enabled"]:
        return 4, 4, 0
    return 2, 2, 2 if block["bf16"].get("bf16_master_weights_and_grads") else 4


def trainer(now: Effective, keys: Mapping[str, Any], loaded: float) -> Kept:
    """transformers' Trainer: torch.amp over what was loaded; FSDP upcasts what is trained where it mixes."""
    mixed = any(keys.get(name) is True for name in ("bf16", "fp16", "fp8")) or keys.get("mixed_precision") == "fp8"
    kind, full = now.spec.parallelism.sharding, now.spec.training.method == "full"
    block = keys.get("deepspeed.json") or keys.get("deepspeed")
    if kind in states.ZERO:
        assert isinstance(block, dict)
        assert block["bf16"]["enabled"] is bool(keys.get("bf16")), "the Trainer compares them, and stops"
        return deepspeed(block)
    if kind in states.FSDP and mixed and full:
        return 4, 2, 0
    return loaded, 2 if mixed else loaded, 0


def hugging_face(now: Effective, keys: Mapping[str, Any]) -> Kept:
    name = "dtype" if "dtype" in keys else "torch_dtype"
    return trainer(now, keys, TORCH[keys[name]])


def axolotl(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """utils/config: torch_dtype; core/builders/base.py: ``bf16: full`` is no torch.amp; fsdp2 is not upcast."""
    loaded = 2.0 if keys.get("bf16") or keys.get("bfloat16") or keys.get("fp16") else 4.0
    if now.spec.parallelism.sharding == "fsdp2" and keys.get("bf16"):
        return loaded, 2, 0
    return trainer(now, keys, loaded)


def llama_factory(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """model/adapter.py: what is trained is upcast unless pure_bf16, ZeRO-3 or FSDP."""
    if keys.get("pure_bf16"):
        assert not keys.get("bf16") and not keys.get("fp16"), "hparams/parser.py refuses it"
        return 2, 2, 0
    return trainer(now, keys, 4.0 if now.spec.training.method == "full" or not (keys.get("bf16") or keys.get("fp16") or keys.get("fp8")) else 2.0)


def litgpt(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """lightning.fabric's precision plugins; finetune/lora.py refuses a quantised base with a mixed one."""
    kind, _, style = str(keys["precision"]).partition("-")
    assert not (keys.get("quantize") and style == "mixed")
    return (4, 4 if kind == "32" else 2, 0) if style == "mixed" or kind == "32" else (2, 2, 0)


def fsdp_qlora(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """train.py: torch_dtype is fp32 but for bf16."""
    stored = 2.0 if keys["precision"] == "bf16" else 4.0
    return stored, 4 if keys["precision"] == "fp32" else 2, 0


def torchtune(now: Effective, keys: Mapping[str, Any]) -> Kept:
    return TORCH[keys["dtype"]], TORCH[keys["dtype"]], 0


def torchtitan(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """mixed_precision_param: FSDP gathers it; without FSDP it is autocast."""
    training = keys["training"]
    return TORCH[training["dtype"]], TORCH[training["mixed_precision_param"]], 0


def megatron(now: Effective, keys: Mapping[str, Any]) -> Kept:
    """training/arguments.py: without --bf16 and --fp16 all is fp32; with them, and with fp8, masters are fp32."""
    if "mixed_precision" in keys:
        return 2, 2, 4
    half = any(str(keys.get(name, False)).lower() == "true" for name in ("bf16", "fp16"))
    return (2, 2, 4) if half else (4, 4, 0)


def megatron_deepspeed(now: Effective, keys: Mapping[str, Any]) -> Kept:
    assert keys["deepspeed.json"]["bf16"]["enabled"] is bool(keys.get("bf16"))
    return deepspeed(keys["deepspeed.json"])


def only_deepspeed(now: Effective, keys: Mapping[str, Any]) -> Kept:
    return deepspeed(keys["deepspeed.json"])


def verl(now: Effective, keys: Mapping[str, Any]) -> Kept:
    actor = "actor_rollout_ref.actor.fsdp_config."
    return TORCH[keys[actor + "model_dtype"]], TORCH[keys[actor + "dtype"]], 0


READERS: Mapping[str, Callable[[Effective, Mapping[str, Any]], Kept]] = {
    "trl": hugging_face, "ms-swift": hugging_face, "axolotl": axolotl, "llama-factory": llama_factory, "litgpt": litgpt,
    "fsdp-qlora": fsdp_qlora, "torchtune": torchtune, "torchtitan": torchtitan, "megatron-lm": megatron, "nemo": megatron,
    "megatron-deepspeed": megatron_deepspeed, "deepspeed": only_deepspeed, "verl": verl,
}  # fmt: skip


def refused(framework: str, sharding: str, method: str, precision: str) -> bool:
    """Combinations that rules of their own refuse, so that nothing need be written for them."""
    return (
        (framework == "torchtune" and precision == "fp16")  # JG408
        or (framework == "llama-factory" and precision == "bf16_pure" and sharding in states.ZERO)  # JG412, JG414
        or (framework in ("trl", "ms-swift") and precision == "fp8" and (sharding in states.ZERO or framework == "ms-swift"))  # JG414
        or (framework in ("deepspeed", "megatron-deepspeed") and precision == "bf16_pure" and sharding == "none")  # JG414
        or (framework == "axolotl" and precision == "fp16" and sharding == "none" and method == "full")  # JG409
    )


PROGRAMS = frozenset({"custom", "transformers", "accelerate", "unsloth"})
"""Frameworks whose program loads the model itself: nothing that jobgen writes says in what."""
CASES = [
    (name, sharding, method, precision)
    for name in READERS
    for sharding, method, precision in itertools.product(sorted(find(name).sharding), ("full", "lora", "qlora"), PRECISIONS)
    if not states.unsupported(name, None, precision) and not refused(name, sharding, method, precision)
]


def test_every_framework_is_read_or_is_a_program_of_the_users_own() -> None:
    assert set(READERS) | PROGRAMS == set(NAMES)


@pytest.mark.parametrize(("framework", "sharding", "method", "precision"), CASES)
def test_the_estimate_counts_the_types_that_are_written(framework: str, sharding: str, method: str, precision: str) -> None:
    changes: dict[str, Any] = {
        "training__framework": framework, "training__method": method, "training__precision": precision, "training__max_steps": 10,
        "parallelism__sharding": sharding, "resources__gpus_per_node": 8, "checkpoint__directory": "/c",
    }  # fmt: skip
    if framework == "torchtitan":
        changes["training__versions"] = {"torchtitan": "0.2.1"}
    now = assume(load_text(text(**changes))).effective
    keys = given(configure(now.spec, now.framework, {"model.hidden_size": 4096}, now.versions.intervals))
    stored, compute, master = READERS[framework](now, keys)
    numbers = now.numbers
    if method == "full":
        assert (numbers.trainable, numbers.compute, numbers.master) == (stored, compute, master)
    else:
        assert numbers.compute == compute
        frozen = 4.0 if framework in ("verl", "torchtitan") and sharding in states.FSDP and precision in ("bf16", "fp16", "fp8") else numbers.weights
        assert frozen == stored


WITHOUT_A_WORD = [
    *((name, "none" if "none" in find(name).sharding else "fsdp1", precision) for name, (known, _) in states.UNSUPPORTED.items() for precision in sorted(known)),
    ("llama-factory", "zero2", "bf16_pure"), ("llama-factory", "zero3", "bf16_pure"), ("trl", "zero2", "fp8"), ("ms-swift", "none", "fp8"),
    ("deepspeed", "none", "bf16_pure"), ("megatron-deepspeed", "none", "bf16_pure"), ("axolotl", "none", "fp16"), ("torchtune", "none", "fp16"),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "sharding", "precision"), WITHOUT_A_WORD)
def test_what_cannot_be_written_is_refused(framework: str, sharding: str, precision: str) -> None:
    changes = {
        "training__framework": framework, "training__precision": precision, "training__max_steps": 10, "parallelism__sharding": sharding,
        "resources__gpu": "h100-80gb", "resources__gpus_per_node": 8,
    }  # fmt: skip
    errors = [f for f in api.check(load_text(text(**changes))).findings if f.severity == "error"]
    assert "training.precision" in [f.path for f in errors], errors
