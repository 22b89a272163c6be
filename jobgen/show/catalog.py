"""The reference commands: models, GPUs and the installed versions."""

from __future__ import annotations

import json
import os
from typing import Any

from jobgen.catalog import counts, errors
from jobgen.catalog import gpus as gpu_table
from jobgen.catalog import models as model_table
from jobgen.catalog.arch import Arch
from jobgen.show.table import table

LIBRARIES = (
    "torch", "transformers", "accelerate", "deepspeed", "peft", "trl", "bitsandbytes", "flash-attn", "liger-kernel",
    "axolotl", "llamafactory", "unsloth", "unsloth-zoo", "torchtune", "torchtitan", "torchao", "megatron-core",
    "nemo-toolkit", "ms-swift", "litgpt", "lightning", "verl", "vllm", "datasets", "safetensors",
)  # fmt: skip
"""Libraries that decide what a configuration does."""


class UnknownReference(LookupError):
    """A model that the command was asked for and no catalogue holds."""

    exit_status = 2


def _load(model: str) -> Arch:
    try:
        if model.endswith(".json") or os.path.isdir(model) or os.path.exists(model):
            return model_table.load(None, model)
        return model_table.load(model)
    except model_table.UnknownModel as error:
        raise UnknownReference(f"{error}; a config.json of its own can be given instead") from None
    except (errors.BadConfig, errors.UnknownArchitecture) as error:
        raise UnknownReference(str(error)) from None


def _record(arch: Arch) -> dict[str, Any]:
    return {
        "schema": "jobgen.model/1", "name": arch.name, "model_type": arch.model_type,
        "parameters": counts.total(arch), "active_parameters": counts.active(arch), "groups": counts.groups(arch),
    }  # fmt: skip


def models(model: str | None, *, as_json: bool) -> str:
    """One model's parameters by group, or every model of the catalogue (JSON: one object a line)."""
    if model is not None:
        record = _record(_load(model))
        if as_json:
            return json.dumps(record, ensure_ascii=False)
        lines = [f"{record['name']} ({record['model_type']})"]
        rows = [("total", f"{record['parameters']:,}"), ("active per token", f"{record['active_parameters']:,}")]
        rows += [(f"  {group}", f"{count:,}") for group, count in record["groups"].items() if count]
        lines.append(table(("parameters", ""), rows, right=(1,)))
        return "\n".join(lines)
    records = (_record(model_table.load(name)) for name in model_table.names())
    if as_json:
        return "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    summary = [(r["name"], r["model_type"], f"{r['parameters'] / 1e9:.2f} B", f"{r['active_parameters'] / 1e9:.2f} B") for r in records]
    return table(("model", "type", "parameters", "active"), summary, right=(2, 3))


def gpus(*, as_json: bool) -> str:
    """Every GPU of the catalogue (JSON: one object a line)."""
    if as_json:
        return "\n".join(json.dumps(gpu._asdict() | {"peaks": gpu.peaks._asdict()}, ensure_ascii=False) for gpu in gpu_table.every())
    rows = [
        (
            gpu.name, gpu.vendor, gpu.architecture, f"{gpu.usable_bytes / 2**30:.1f}", f"{gpu.bandwidth / 1e9:.0f}",
            "-" if gpu.peaks.bf16 is None else f"{gpu.peaks.bf16:.0f}", gpu.confidence,
        )
        for gpu in gpu_table.every()
    ]  # fmt: skip
    return table(("gpu", "vendor", "architecture", "usable GiB", "GB/s", "bf16 TFLOPS", "confidence"), rows, right=(3, 4, 5))


def versions(*, as_json: bool) -> str:
    """The installed libraries that decide what a configuration does, as a spec's ``training.versions``."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if as_json:
        return json.dumps(found)
    if not found:
        return "# none of the training libraries is installed here\nversions: {}"
    return "versions:\n" + "\n".join(f'  {name}: "{release}"' for name, release in found.items())
