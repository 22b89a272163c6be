"""Write jobgen/catalog/data/families.jsonl: facts of the described model types from releases of transformers.

usage: make_defaults.py TRANSFORMERS_FOLDER LISTS_FOLDER OUTPUT

TRANSFORMERS_FOLDER: an unpacked release, of which only the syntax tree is read. LISTS_FOLDER: a text file for each
older release, named by it (``4.51.3.txt``), with the folders of its ``models`` that have a configuration.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from jobgen.catalog import families
from jobgen.catalog.families import multimodal

SKIP = (
    "token_id", "token_index", "initializer", "_eps", "use_cache", "rope_theta", "rope_type", "classifier", "summary",
    "pretraining_tp", "router_aux", "output_router", "jitter", "logits_scaling", "_multiplier", "scaling_factor",
)  # fmt: skip


def literal(node: ast.expr) -> object:
    """The value of a constant expression (``4096 * 32`` too), or Ellipsis."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = literal(node.left), literal(node.right)
        return left * right if isinstance(left, int) and isinstance(right, int) else ...
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ...
    return value if isinstance(value, bool | int | float | str | type(None)) else ...


def classes(path: Path) -> dict[str, dict[str, object]]:
    """model_type -> defaults of every configuration class in a file."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        kind: object = None
        fields: dict[str, object] = {}
        for item in node.body:
            if isinstance(item, ast.Assign) and getattr(item.targets[0], "id", "") == "model_type":
                kind = literal(item.value)
            elif isinstance(item, ast.AnnAssign) and item.value is not None and isinstance(item.target, ast.Name):
                name, value = item.target.id, literal(item.value)
                if value is not ... and value is not None and not any(word in name for word in SKIP):
                    fields[name] = value
        if isinstance(kind, str):
            found[kind] = fields
    return found


def release(path: Path) -> tuple[int, ...]:
    """``4.51.3.txt`` -> (4, 51)."""
    return tuple(int(part) for part in path.stem.split(".")[:2])


def main(newest: Path, lists: Path, output: Path) -> None:
    """Write one line for each described model type and vision tower."""
    wanted = {*families.known(), *(tower for tower, _ in multimodal.TOWERS.values())}
    older = sorted(((release(path), set(path.read_text().split())) for path in lists.glob("*.txt")), reverse=True)
    lines = []
    for path in sorted((newest / "models").glob("*/configuration_*.py")):
        for kind, fields in classes(path).items():
            if kind not in wanted:
                continue
            since: tuple[int, ...] | None = (5, 24)
            for number, held in older:
                if path.parent.name not in held:
                    break
                since = number
            else:
                since = None
            lines.append({"model_type": kind, "since": since, "defaults": fields})
    output.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
