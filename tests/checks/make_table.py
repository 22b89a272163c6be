"""Writes docs/rules.md: every researched fact of rules.csv, and the rule that carries it or why none does.

    python tests/checks/make_table.py
"""

from __future__ import annotations

import csv
from pathlib import Path

from jobgen.checks.registry import rules

HERE = Path(__file__).parent
TABLE = HERE.parent.parent / "docs" / "rules.md"

READ = "refused when the spec is read (JG003): "
RENDERED = "cannot happen in what is rendered: "
UNKNOWN = "not decidable from a spec: "
ELSEWHERE: dict[str, str] = {
    "QS19": READ + "quantization with method full",
    "PR02": READ + "precision is one field; a second one among the options is JG703",
    "PR03": RENDERED + "the DeepSpeed JSON takes its precision from the spec",
    "OP08": RENDERED + "the DeepSpeed JSON that goes with accelerate has no optimizer section",
    "PD01": READ + "data = world / (tensor x pipeline x context) must be whole",
    "PD07": READ + "expert x expert_tensor must divide world / pipeline",
    "PD11": RENDERED + "torchtitan's degrees are written from a layout that multiplies out (JG003 otherwise)",
    "PD14": RENDERED + "accelerate's sizes are written from a layout that multiplies out (JG003 otherwise)",
    "BA01": READ + "global_batch_size must be micro_batch_size x accumulation x data",
    "BA04": READ + "global_batch_size must be a multiple of micro_batch_size x data",
    "BA08": RENDERED + "num_processes is nodes x processes_per_node",
    "LA02": READ + "processes_per_node above gpus_per_node",
}
"""Facts that hold without a rule: counted as carried."""
WHY_NOT: dict[str, str] = {
    "CK19": UNKNOWN + "whether a program's own loop calls no_sync under DeepSpeed",
    "QS24": UNKNOWN + "it needs the model compiled before the Trainer is made; training.compile compiles inside it",
    "QS25": UNKNOWN + "whether a program passes an id or a model object to SFTTrainer",
    "OF04": UNKNOWN + "compilers inside the image",
    "PR11": UNKNOWN + "data types of single parameters inside an FSDP unit",
}  # fmt: skip
"""Facts that no spec can say."""


def facts() -> list[dict[str, str]]:
    """The researched facts."""
    with (HERE / "rules.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def carriers() -> dict[str, list[str]]:
    """Codes by fact."""
    found: dict[str, list[str]] = {}
    for rule in rules().values():
        for fact in rule.facts:
            found.setdefault(fact, []).append(rule.code)
    return found


def table() -> str:
    """docs/rules.md."""
    known, carried = facts(), carriers()
    done = sum(row["id"] in carried or row["id"] in ELSEWHERE for row in known)
    lines = [
        "# Rules and the facts behind them", "",
        "`jobgen explain CODE` prints a rule's page, `jobgen explain --all` lists them. Written by tests/checks/make_table.py.", "",
        f"{len(rules())} rules. Of {len(known)} researched facts {done} are carried, {len(known) - done} are not.", "",
        "| fact | about | holds when | rule |", "|---|---|---|---|",
    ]  # fmt: skip
    for row in known:
        name = row["id"]
        where = ", ".join(carried.get(name, ())) or ELSEWHERE.get(name) or WHY_NOT.get(name) or "missing"
        condition = " ".join(row["condition"].split()).replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {name} | {row['category'].replace('×', ' x ')} | {condition} | {where} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
