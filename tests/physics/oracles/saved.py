"""Bytes that autograd really keeps in transformers' modules, without a GPU and without real memory.

A model of a few layers at its real widths is built on the meta device, turned into fake tensors and run forwards and
backwards. Saved tensors are counted by storage (``torch.autograd.graph.saved_tensors_hooks``, inputs of checkpointed
layers beside them); a dispatch mode follows the birth and death of every other storage, from which the peaks come.
Gradients of weights are left out by their shape. The attention kernels that a CPU cannot pick are called explicitly.

    python saved.py [--only TEXT] [--missing]      rewrites saved.jsonl by cases.py (needs torch, transformers, peft)
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import gc
import json
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers.masking_utils as masking
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

TABLE = Path(__file__).with_name("saved.jsonl")
SEQUENCE = 1664
"""Tokens: equal to no width of any model, so that weights' gradients are known by their shape."""
NAMES = {"flash": "oracle_fa", "efficient": "oracle_eff", "sdpa": "oracle_sdpa"}
"""Registered names (transformers asks for the flash-attn package where a name contains "flash")."""
DROPPED = ("quantization_config", "auto_map", "_name_or_path", "transformers_version", "torch_dtype", "dtype")


def attention(kind: str) -> Any:
    """An attention function that calls one kernel, with the copies that F.scaled_dot_product_attention makes.

    ``sdpa``: the kernel that CUDA would pick (flash without a mask and with equal widths, else memory-efficient).
    """
    asked = kind

    def function(
        module: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, scaling: Any = None, **_: Any
    ) -> Any:
        kind = asked
        if asked == "sdpa":
            kind = "flash" if mask is None and query.shape[-1] == value.shape[-1] else "efficient"
        if torch.is_autocast_enabled("cpu"):  # sdpa is on autocast's list, the kernels below are not
            query, key, value = (each.to(torch.bfloat16) for each in (query, key, value))
        if mask is not None and kind == "efficient":
            if mask.dtype == torch.bool:
                zero = torch.zeros((), dtype=query.dtype, device=query.device)
                mask = torch.where(mask, zero, torch.full_like(zero, float("-inf")))
            mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        if key.shape[1] != query.shape[1] and kind == "efficient":
            groups = query.shape[1] // key.shape[1]
            key, value = (repeated(each, groups) for each in (key, value))
        if kind == "flash":
            kernel = torch.ops.aten._scaled_dot_product_flash_attention
            out = kernel(query, key, value, dropout, True, False, scale=scaling)[0]
        else:
            kernel = torch.ops.aten._scaled_dot_product_efficient_attention
            out = kernel(query, key, value, mask, True, dropout, mask is None, scale=scaling)[0]
        return out.transpose(1, 2).contiguous(), None

    return function


def repeated(x: Any, groups: int) -> Any:
    """Key or value heads copied to the number of query heads."""
    shape = (x.shape[0], x.shape[1] * groups, x.shape[2], x.shape[3])
    return x[:, :, None].expand(-1, -1, groups, -1, -1).reshape(shape)


def prepare() -> None:
    """Registers the kernels; makes fake tensors follow the path of real ones (no mask for an unpadded causal batch)."""
    for kind, name in NAMES.items():
        AttentionInterface.register(name, attention(kind))
        masking.ALL_MASK_ATTENTION_FUNCTIONS.register(name, masking.sdpa_mask)
    masking.find_packed_sequence_indices = lambda *_, **__: None
    torch.nn.functional.softmax = softmax
    torch.nn.functional.dropout = dropped


def softmax(x: Any, dim: int = -1, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """As on CUDA, where one kernel reads 16 bit and writes fp32 (a CPU makes an fp32 copy first)."""
    if dtype == torch.float32 and x.dtype != dtype:
        return torch.ops.aten._softmax(x, dim, True)
    return torch.softmax(x, dim) if dtype is None else torch.softmax(x, dim, dtype=dtype)


def dropped(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """As on CUDA, where one kernel keeps a mask of one byte (a CPU keeps the factors)."""
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def key_of(tensor: Any) -> int:
    """The identity of a tensor's storage."""
    return int(tensor.untyped_storage()._cdata)


def tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors in nested arguments of a checkpointed call."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, functools.partial):
        yield from tensors_in((value.args, value.keywords), depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, depth + 1)


class Live(TorchDispatchMode):
    """Live and peak bytes of the storages made under the mode."""

    def __init__(self, ignored_shapes: set[tuple[int, ...]]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.seen: dict[int, int] = {}
        self.ignored_shapes = ignored_shapes
        self.peaks: dict[str, int] = {}

    def mark(self, name: str) -> None:
        """Ends a phase: its peak is noted under ``name`` and the next one starts."""
        self.peaks[name] = max(self.peaks.get(name, 0), self.peak)
        self.peak = self.live

    def ignore(self, tensors: Any) -> None:
        """Storages that exist already."""
        for tensor in tensors:
            self.seen.setdefault(key_of(tensor), 0)

    def _add(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.seen:
            return
        size = 0 if tuple(tensor.shape) in self.ignored_shapes else int(storage.nbytes())
        self.seen[key] = size
        self.live += size
        self.peak = max(self.peak, self.live)

        def dead(key: int = key) -> None:
            self.live -= self.seen.pop(key, 0)

        weakref.finalize(storage, dead)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor)
        return result


def configuration(config: dict[str, Any], layers: int) -> Any:
    """The configuration with fewer layers."""
    config = {name: value for name, value in copy.deepcopy(config).items() if name not in DROPPED}
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if name in text:
            text[name] = layers
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if isinstance(text.get(name), list):
            text[name] = text[name][:layers]
    text.pop("max_window_layers", None)
    return AutoConfig.for_model(config.pop("model_type"), **config)


def build(config: Any, dtype: Any, implementation: str) -> Any:
    """The model on the meta device."""
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        with contextlib.suppress(ValueError), torch.device("meta"):
            model = auto.from_config(config, dtype=dtype, attn_implementation=implementation)
            model.tie_weights()
            return model
    raise ValueError(f"no model class for {type(config).__name__}")


def to_fake(model: Any, device: str = "cpu") -> None:
    """Replaces meta parameters and buffers by fake tensors, ties kept; inside FakeTensorMode."""
    made: dict[int, Any] = {}
    for module in model.modules():
        for held, parameter in ((module._parameters, True), (module._buffers, False)):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
                    made[id(tensor)] = (
                        torch.nn.Parameter(new, requires_grad=tensor.requires_grad) if parameter else new,
                        tensor,
                    )
                held[name] = made[id(tensor)][0]


def decoder_layers(model: Any) -> Any:
    """The text model's list of layers."""
    best: tuple[int, Any] = (-1, None)
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList) or not name.endswith(("layers", ".h", "blocks")):
            continue
        size = sum(parameter.numel() for parameter in module.parameters())
        if "vis" not in name and size > best[0]:
            best = (size, module)
    return best[1]


def adapters(model: Any, rank: int, dtype: str, dropout: float, checkpointing: bool) -> Any:
    """The model with LoRA on all linear layers; adapters fp32 (peft's default) or in the model's type."""
    from peft import LoraConfig, get_peft_model

    if checkpointing:
        model.enable_input_require_grads()
    lora = LoraConfig(r=rank, target_modules="all-linear", lora_dropout=dropout, task_type="CAUSAL_LM")
    model = get_peft_model(model, lora, autocast_adapter_dtype=dtype == "fp32", low_cpu_mem_usage=True)
    if dtype != "fp32":
        for name, module in model.named_modules():
            if "lora_" in name and isinstance(module, torch.nn.Linear):
                module.to(torch.bfloat16)
    return model


def measure(
    config: dict[str, Any],
    kernel: str = "sdpa",
    checkpointing: bool = False,
    layers: int = 2,
    micro: int = 1,
    sequence: int = SEQUENCE,
    weights: str = "bf16",
    autocast: bool = False,
    rank: int = 0,
    adapter_dtype: str = "fp32",
    adapter_dropout: float = 0.0,
    masked: bool = False,
    experts: str | None = None,
    detail: bool = False,
) -> dict[str, Any]:
    """Saved bytes by layer and outside, and peaks of forward, loss and the layers' backward."""
    prepare()
    full = configuration(config, layers)
    if experts:
        full._experts_implementation = experts
    model = build(full, {"bf16": torch.bfloat16, "fp32": torch.float32}[weights], NAMES.get(kernel, kernel))
    if rank:
        model = adapters(model, rank, adapter_dtype, adapter_dropout, checkpointing)
    model.train()
    with FakeTensorMode():
        to_fake(model)
        return _run(model, checkpointing, micro, sequence, autocast, masked, detail)


def _run(
    model: Any, checkpointing: bool, micro: int, sequence: int, autocast: bool, masked: bool, detail: bool
) -> dict[str, Any]:
    stack = decoder_layers(model)
    scope = ["embedding"]
    saved: dict[int, tuple[int, str, str]] = {}
    forward = [True]
    held = {key_of(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def note(tensor: Any) -> Any:
        key = key_of(tensor)
        if key not in held and key not in saved:
            shape = f"{tuple(tensor.shape)}:{str(tensor.dtype)[6:]}"
            storage = tensor.untyped_storage()
            saved[key] = (int(storage.nbytes()), scope[0], shape)
            weakref.finalize(storage, lambda: saved.pop(key, None) if forward else None)  # a graph that was dropped
        return tensor

    shapes = {tuple(parameter.shape) for parameter in model.parameters() if parameter.dim() > 1}
    live = Live(shapes | {shape[::-1] for shape in shapes})

    def enter(name: str) -> Any:
        def hook(*_: Any) -> None:
            scope[0] = name

        return hook

    def head(_: Any, arguments: Any) -> None:
        scope[0] = "head"
        live.mark("forward")
        if arguments[0].requires_grad:
            arguments[0].register_hook(lambda _: live.mark("loss"))

    for index, layer in enumerate(stack):
        layer.register_forward_pre_hook(enter(f"layer {index}"))
        layer.register_forward_hook(enter("final norm" if index == len(stack) - 1 else f"layer {index}"))
    for name, module in model.named_modules():
        if name.endswith(("lm_head", "embed_out")):
            module.register_forward_pre_hook(head)
            module.register_forward_hook(enter("loss"))
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            function = getattr(module, "_gradient_checkpointing_func", None)
            if function is not None:

                def wrapped(call: Any, *args: Any, _f: Any = function, _m: Any = module, **kwargs: Any) -> Any:
                    for index, layer in enumerate(stack):
                        if layer is _m:
                            scope[0] = f"layer {index}"
                    for tensor in tensors_in((call, args, kwargs)):
                        note(tensor)
                    return _f(call, *args, **kwargs)

                module._gradient_checkpointing_func = wrapped
    ids, labels = (torch.zeros((micro, sequence), dtype=torch.long) for _ in range(2))
    held |= {key_of(ids), key_of(labels)}
    given = {"input_ids": ids, "labels": labels, "use_cache": False}
    if masked:
        given["attention_mask"] = torch.ones((micro, sequence), dtype=torch.long)
    with live:
        live.ignore([*model.parameters(), *model.buffers(), ids, labels])
        casts = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), casts:
            output = model(**given)
        loss = output.loss
        del output, given
        gc.collect()
        forward.clear()
        after_forward = live.live
        loss.backward()
        del loss
        live.mark("backward")
    groups: dict[str, int] = {}
    for size, where, _ in saved.values():
        groups[where] = groups.get(where, 0) + size
    result = {
        "layers": [groups.pop(f"layer {index}", 0) for index in range(len(stack))],
        "outside": groups,
        "after_forward": after_forward,
        "peaks": live.peaks,
    }
    if detail:
        result["detail"] = [item for item in saved.values() if item[1] in ("layer 1", "final norm", "head", "loss", "embedding")]
    return result


def main() -> int:
    """Measures all cases whose text contains ``--only`` and merges them into the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="only the cases that the table lacks")
    options = parser.parse_args()
    from cases import cases

    from jobgen.catalog import models

    table = {json.dumps(row["case"]): row for row in map(json.loads, TABLE.read_text().splitlines())} if TABLE.exists() else {}
    for case in cases():
        label = json.dumps(case)
        if options.only not in label or (options.missing and label in table):
            continue
        arguments = {name: value for name, value in case.items() if name != "model"}
        try:
            table[label] = {"case": case, **measure(models.find(case["model"]), **arguments)}
        except Exception as error:
            sys.stderr.write(f"{label} {type(error).__name__} {str(error)[:200]}\n")
            continue
        order = [json.dumps(each) for each in cases()]
        fresh = TABLE.with_suffix(".new")
        fresh.write_text("".join(json.dumps(table[each]) + "\n" for each in order if each in table))
        fresh.replace(TABLE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
