"""Write jobgen/catalog/data/families.jsonl: the default field values of transformers' configuration classes.

usage: make_defaults.py TRANSFORMERS_FOLDER OUTPUT OLDER_FOLDER...

Only the syntax tree is read, nothing is imported. OLDER_FOLDER: unpacked older releases, named by their version
(``4.57.6``); they say since when a model type exists.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

SKIP = (
    "token_id",
    "token_index",
    "initializer",
    "_eps",
    "use_cache",
    "rope_theta",
    "rope_type",
    "classifier",
    "summary",
    "pretraining_tp",
)


def literal(node: ast.expr) -> object:
    """The value of a constant expression (``4096 * 32`` too), or Ellipsis."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        try:
            value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
        except Exception:
            return ...
    return value if isinstance(value, bool | int | float | str | type(None)) else ...


def classes(path: Path) -> dict[str, dict[str, object]]:
    """model_type -> defaults of every configuration class in a file."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        kind, fields = None, {}
        for item in node.body:
            if isinstance(item, ast.Assign) and getattr(item.targets[0], "id", "") == "model_type":
                kind = literal(item.value)
            elif isinstance(item, ast.AnnAssign) and item.value is not None:
                name = item.target.id
                value = literal(item.value)
                if value is not ... and value is not None and not any(word in name for word in SKIP):
                    fields[name] = value
        if isinstance(kind, str):
            found[kind] = fields
    return found


def main(newest: Path, output: Path, older: list[Path]) -> None:
    """Write one line for each model_type."""
    lines = []
    for path in sorted((newest / "models").glob("*/configuration_*.py")):
        for kind, fields in classes(path).items():
            lines.append({"model_type": kind, "defaults": fields})
    output.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(item) for item in sys.argv[3:]])
