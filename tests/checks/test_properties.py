"""No combination of valid field values makes a rule raise, whatever is known of versions."""

from __future__ import annotations

import copy
import json
import typing
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobgen.checks import bases
from jobgen.checks.registry import Finding
from jobgen.checks.run import findings, verdict
from jobgen.effective.resolve import facts, known
from jobgen.spec.document import load_text
from jobgen.spec.models import (
    Attention,
    Framework,
    LauncherName,
    Method,
    Objective,
    OffloadTarget,
    OptimizerName,
    Precision,
    QuantizationType,
    Sharding,
    Target,
)
from jobgen.spec.problem import SpecError

MODELS = (
    "Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B", "mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b",
    "meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
)  # fmt: skip
GPUS = ("h100-80gb", "a100-40gb", "v100-32gb", "l40s", "b200", "mi300x", "t4", "mi250x", "gaudi2")
RELEASES = {
    "transformers": ("4.44.2", "4.51.3", "4.57.6", "5.0.0", "5.12.1", "5.24.0", ">=4.40,<6"), "peft": ("0.13.0", "0.18.1", "0.21.2"),
    "deepspeed": ("0.14.0", "0.17.6", "0.19.8"), "accelerate": ("1.0.1", "1.12.0", "1.15.0"), "torch": ("2.5.1", "2.9.1"),
    "axolotl": ("0.13.1", "0.14.0", "0.20.0"), "llamafactory": ("0.9.2", "0.9.4", "0.9.5"), "unsloth": ("2026.2", "2026.8.1"),
    "trl": ("0.24.0", "1.12.0"), "bitsandbytes": ("0.42.0", "0.48.2"), "cuda": ("12.1", "12.8"), "torchtitan": ("0.2.2", "0.3.0"),
}  # fmt: skip
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("fsdp_config", {"cpu_ram_efficient_loading": True}), ("fsdp_config", {"use_orig_params": False, "sync_module_states": False}),
    ("fsdp_config", "none"), ("device_map", "auto"), ("device_map", 7), ("torch_dtype", "float16"), ("target_parameters", ["mlp.experts.down_proj"]),
    ("zero3_init_flag", False), ("optimizer", {"type": "OneBitAdam", "params": {"max_grad_norm": 1}}), ("optimizer", "adam"),
    ("resize_vocab", True), ("use_unsloth", True), ("model_init_kwargs", {"load_in_4bit": True}), ("load_best_model_at_end", True),
    ("save_total_limit", "x"), ("quantize_moe_experts", True), ("lora_target_linear", True), ("offload_optimizer", {"ratio": 0.3}),
    ("gradient_checkpointing_kwargs", {"use_reentrant": True}), ("gradient_checkpointing_kwargs", []), ("dataloader_num_workers", -1),
    ("adapter_name_or_path", ["a", "b"]), ("overwrite_output_dir", True), ("tf32", "yes"), ("compile", {"deepcompile": True}),
)  # fmt: skip


def one_of(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(typing.get_args(literal))


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "target": one_of(Target),
    "model.name": st.sampled_from(MODELS),
    "model.init": st.sampled_from(("pretrained", "random")),
    "training.objective": one_of(Objective),
    "training.method": one_of(Method),
    "training.framework": one_of(Framework),
    "training.precision": one_of(Precision),
    "training.optimizer.name": one_of(OptimizerName),
    "training.optimizer.in_backward": st.booleans(),
    "training.sequence_length": st.sampled_from((1, 512, 4095, 8192, 1_000_000)),
    "training.packing": st.sampled_from(("none", "packed", "padding_free")),
    "training.micro_batch_size": st.integers(1, 64),
    "training.gradient_accumulation_steps": st.integers(1, 64),
    "training.activation_checkpointing.mode": st.sampled_from(("none", "selective", "full")),
    "training.attention": one_of(Attention),
    "training.loss": st.sampled_from(("standard", "liger", "chunked", "vocab_parallel")),
    "training.compile": st.booleans(),
    "training.loading": st.sampled_from(("auto", "every_rank", "rank0_broadcast", "sharded")),
    "training.quantization": st.fixed_dictionaries(
        {"type": one_of(QuantizationType)},
        optional={"double_quant": st.booleans(), "storage_dtype": st.sampled_from(("bf16", "fp16", "fp32", "uint8")),
                  "moe_experts": st.sampled_from(("auto", True, False))},
    ),
    "training.lora": st.fixed_dictionaries(
        {"rank": st.integers(1, 256)},
        optional={"dropout": st.sampled_from((0.0, 0.1)), "use_dora": st.booleans(),
                  "target_modules": st.sampled_from(("all-linear", "q_proj", ".*proj", "[", ["q_proj", "gate_proj"], [])),
                  "modules_to_save": st.sampled_from(([], ["embed_tokens", "lm_head"], ["nothing"]))},
    ),
    "training.max_steps": st.integers(1, 10**6),
    "training.evaluation": st.fixed_dictionaries({}, optional={"every_steps": st.integers(1, 1000), "micro_batch_size": st.integers(1, 16)}),
    "training.rollout": st.fixed_dictionaries({"mode": st.sampled_from(("colocate", "server")), "num_generations": st.integers(1, 16)}),
    "training.options": st.lists(st.sampled_from(OPTIONS), max_size=4).map(dict),
    "training.versions": st.fixed_dictionaries({}, optional={name: st.sampled_from(given) for name, given in RELEASES.items()}),
    "parallelism.sharding": one_of(Sharding),
    "parallelism.replicate": st.sampled_from((1, 2, 4)),
    "parallelism.tensor": st.sampled_from((1, 2, 3, 8)),
    "parallelism.pipeline": st.sampled_from((1, 2, 4)),
    "parallelism.virtual_pipeline": st.sampled_from((1, 2)),
    "parallelism.context": st.sampled_from((1, 2)),
    "parallelism.context_method": st.sampled_from(("ring", "ulysses")),
    "parallelism.expert": st.sampled_from((1, 2, 8)),
    "parallelism.sequence_parallel": st.sampled_from(("auto", True, False)),
    "parallelism.device_map": st.sampled_from(("auto", "balanced", "cpu")),
    "offload.optimizer": one_of(OffloadTarget),
    "offload.parameters": one_of(OffloadTarget),
    "offload.activations": st.sampled_from(("none", "cpu")),
    "offload.nvme_path": st.just("/local"),
    "offload.pin_memory": st.booleans(),
    "resources.nodes": st.sampled_from((1, 2, 3, 64)),
    "resources.gpus_per_node": st.sampled_from((1, 2, 4, 8)),
    "resources.gpu": st.sampled_from(GPUS),
    "resources.memory_per_node": st.sampled_from(("16GiB", "960GB", "4TB")),
    "resources.cpus_per_node": st.sampled_from((1, 8, 96)),
    "resources.node_type": st.sampled_from(("p5.48xlarge", "p4de.24xlarge", "Standard_ND96isr_H100_v5")),
    "checkpoint.directory": st.sampled_from(("/checkpoints/x", "relative/dir")),
    "checkpoint.every_steps": st.integers(1, 10**6),
    "checkpoint.keep": st.integers(1, 100),
    "checkpoint.content": st.sampled_from(("sharded", "full", "adapter_only")),
    "checkpoint.optimizer_state": st.booleans(),
    "checkpoint.async": st.booleans(),
    "checkpoint.storage": st.sampled_from(("1GB", "100TB")),
    "checkpoint.resume": st.sampled_from(("auto", "never", "/checkpoints/x/checkpoint-100")),
    "launch.launcher": one_of(LauncherName),
    "launch.processes_per_node": st.sampled_from((1, 2, 8)),
    "launch.env": st.sampled_from(({}, {"OMP_NUM_THREADS": "8"}, {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true", "NCCL_DEBUG": "x"})),
    "launch.finish": st.sampled_from(([], ["python zero_to_fp32.py . out"])),
    "launch.args": st.sampled_from(([], ["--num-experts", "8", "--x"], ["--bf16", "--", "-"])),
    "launch.time_limit": st.sampled_from(("1s", "24h", "30d")),
    "launch.restarts": st.integers(0, 10),
    "volumes": st.just([{"mount": "/checkpoints", "claim": "c", "create": {"size": "1TiB"}}]),
}  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> str:
    """A base with some fields drawn anew, as text; it may contradict itself."""
    tree = copy.deepcopy(bases.base(draw(st.sampled_from(bases.names()))).tree)
    for path in draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=12, unique=True)):
        node: Any = tree
        *parts, last = path.split(".")
        for part in parts:
            node = node.setdefault(part, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict):
            node[last] = draw(FIELDS[path])
            if last == "max_steps":
                node.pop("data", None)
    return json.dumps(tree)


def checked(text: str) -> tuple[Finding, ...]:
    """All findings; none for a spec that is refused when it is read."""
    try:
        document = load_text(text, "drawn.yaml")
        return findings(document, facts(document), known(document))
    except SpecError:
        return ()


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs())
def test_no_rule_raises(text: str) -> None:
    found = checked(text)
    assert [finding.message for finding in found if finding.code == "JG999"] == []
    assert sum(finding.code == "JG600" for finding in found) <= 3
    assert verdict(found) in ("pass", "pass_with_warnings", "error")
    for finding in found:
        assert finding.message and finding.fix and finding.line >= 1
