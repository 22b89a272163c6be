"""Write gpus.jsonl, nodes.jsonl, links.jsonl and releases.jsonl from the collected tables.

usage: make_tables.py FOLDER_OF_CSV OUTPUT_FOLDER

Every column is kept; empty cells are left out; numbers become numbers. Releases are grouped: one line for each
framework and version, its requirements by library as [specifier, marker, how it was read].
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

TEXT = {"name", "aliases", "link", "version", "compute_capability", "latency_us"}


def value(column: str, cell: str) -> object:
    """A number where the cell is one, else the text."""
    if column in TEXT:
        return cell
    try:
        number = float(cell)
    except ValueError:
        return cell
    return int(number) if number == int(number) else number


def rows(path: Path) -> list[dict[str, object]]:
    """The table without its empty cells."""
    with path.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    return [{key: value(key, cell.strip()) for key, cell in row.items() if cell.strip()} for row in table]


def write(path: Path, items: list[dict[str, object]]) -> None:
    """One compact line for each item."""
    text = "".join(json.dumps(item, separators=(",", ":"), ensure_ascii=False) + "\n" for item in items)
    path.write_text(text, encoding="utf-8")


def releases(path: Path) -> list[dict[str, object]]:
    """Requirements grouped by framework and version; the order of the table is kept."""
    groups: dict[tuple[str, str], dict[str, list[list[str]]]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            specifier, _, marker = (part.strip() for part in row["specifier"].partition(";"))
            source = row["source"].removeprefix(f"{row['framework']} {row['version']}").strip()
            source = source.removeprefix("(").removesuffix(")")
            if "METADATA" in source and "wheel" in source:
                source = "wheel"
            libraries = groups.setdefault((row["framework"], row["version"]), {})
            libraries.setdefault(row["library"], []).append([specifier, marker.replace("'", '"'), source])
    return [
        {"framework": name, "version": version, "requires": libraries} for (name, version), libraries in groups.items()
    ]


def main(tables: Path, output: Path) -> None:
    """Write all four files."""
    for name in ("gpus", "nodes", "links"):
        write(output / f"{name}.jsonl", rows(tables / f"{name}.csv"))
    write(output / "releases.jsonl", releases(tables / "framework_pins.csv"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
