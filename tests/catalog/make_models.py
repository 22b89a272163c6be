"""Write jobgen/catalog/data/models.jsonl and tests/catalog/oracle.jsonl from the collected catalogue.

usage: make_models.py CATALOGUE.json FAMILIES.jsonl MODELS.jsonl ORACLE.jsonl

CATALOGUE: id -> configuration fields plus ``source`` and ``oracle`` (counts of the modules that transformers builds
on the meta device). FAMILIES: default field values by model type, for an entry that holds nothing but its type.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ABOUT = {
    "source", "source_conflicts", "published_params", "published_active", "published_source", "published_match",
    "published_delta_pct", "published_minus_oracle_explained", "hub_safetensors_total_incl_extras", "oracle", "note",
    "oracle_surrogate_model_type", "same_architecture_as",
}  # fmt: skip
NOISE = {
    "use_cache", "initializer_range", "torch_dtype", "dtype", "transformers_version", "architectures", "_name_or_path",
    "bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id", "rope_scaling", "rope_theta",
    "rope_parameters", "problem_type", "return_dict", "output_attentions", "output_hidden_states",
    "chunk_size_feed_forward", "is_encoder_decoder", "output_router_logits", "router_aux_loss_coef", "seq_aux",
    "aux_loss_alpha", "pretraining_tp", "ep_size",
}  # fmt: skip


def line(fields: dict[str, object]) -> str:
    """One compact line of JSON."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n"


def trim(config: dict[str, object]) -> dict[str, object]:
    """The fields that say something about shapes, sections included."""
    kept = {}
    for key, value in config.items():
        if key in ABOUT or key in NOISE or key.endswith(("_token_id", "_token_index")) or value == {}:
            continue
        kept[key] = trim(value) if isinstance(value, dict) else value
    return kept


def main(catalogue: Path, families: Path, models: Path, oracle: Path) -> None:
    """Write both files."""
    defaults = {item["model_type"]: item["defaults"] for item in map(json.loads, families.read_text().splitlines())}
    shipped, truth = [], []
    for name, entry in json.loads(catalogue.read_text()).items():
        config, source = trim(entry), entry["source"]
        if config == {"model_type": entry["model_type"]}:
            config.update(defaults[entry["model_type"]])
            source = ["defaults of the model type's configuration class in transformers 5.24.0"]
        sources = [source] if isinstance(source, str) else source
        shipped.append(line({"name": name, "source": "; ".join(sources[:2]), "config": config}))
        measured = entry["oracle"]
        kept = {
            key: measured[key]
            for key in (
                "total_params", "active_params", "split", "lora", "nf4", "router_bias_buffers", "fp32_params",
                "bf16_bytes", "num_experts", "top_k", "tied_embeddings",
            )
            if key in measured
        }  # fmt: skip
        truth.append(line({"name": name, **kept}))
    models.write_text("".join(shipped))
    oracle.write_text("".join(truth))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:5]))
