"""Scores estimates against published measurements, in process and in seconds (a tool for development, not a test).

    python tests/physics/score.py ROWS.csv MODELS.json EVALUATE.py [--worst N] [--source ID] [--out CSV] [--terms ROW]

ROWS: measurements; MODELS: architectures by name; EVALUATE: the script whose ``Models`` and ``spec_of`` make the specs
(the acceptance check runs the command line with the same ones).
"""

from __future__ import annotations

import argparse
import collections
import csv
import importlib.util
import json
import pathlib
import statistics
import sys
import tempfile
import traceback
from typing import Any

from jobgen import api
from jobgen.physics.estimate import estimate_json
from jobgen.spec import document

GIB = 2**30


def evaluator(path: str) -> Any:
    """The evaluation script as a module."""
    spec = importlib.util.spec_from_file_location("evaluate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def breakdown(estimate: Any) -> str:
    """All terms of the worst stage."""
    lines = []
    for term in estimate.gpu.terms:
        lines.append(f"    {term.id:22s} {term.component:16s} {term.level:9s} {term.phases:08b} {term.bytes / GIB:9.3f}  {term.words}")
    phases = "  ".join(f"{name} {size / GIB:.2f}" for name, size in estimate.gpu.phases.items())
    return "\n".join(lines) + f"\n    device by phase: {phases}"


def tolerate_missing_frameworks() -> None:
    """A framework whose table is not written yet counts as one without defaults."""
    from jobgen import frameworks
    from jobgen.effective import resolve

    find = frameworks.find

    def lenient(name: str, backend: str | None = None) -> Any:
        try:
            return find(name, backend)
        except ModuleNotFoundError:
            return find("custom")._replace(name=name)

    resolve.frameworks.find = lenient  # type: ignore[attr-defined]


def assume(choices: list[str]) -> None:
    """Assumes releases where nothing is known."""
    from jobgen.effective import resolve

    chosen = {name: tuple(map(int, version.split("."))) for name, _, version in (one.partition("=") for one in choices)}
    before = resolve.assumed
    resolve.assumed = lambda facts, known: {**before(facts, known), **{k: v for k, v in chosen.items() if not known.get(k) or not known[k].known}}


def known_gpu(name: str) -> bool:
    """The catalogue has it (an unknown one needs its memory, which rows without a card do not have)."""
    from jobgen.catalog import gpus

    try:
        gpus.find(name)
    except gpus.UnknownGpu:
        return False
    return True


def main() -> int:
    """Prints the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("models")
    parser.add_argument("evaluate")
    parser.add_argument("--worst", type=int, default=25)
    parser.add_argument("--source")
    parser.add_argument("--terms", action="append", default=[])
    parser.add_argument("--out")
    parser.add_argument("--assume", action="append", default=[], metavar="LIBRARY=VERSION", help="assume this release where unknown")
    options = parser.parse_args()
    tolerate_missing_frameworks()
    assume(options.assume)
    evaluate = evaluator(options.evaluate)
    models = evaluate.Models(options.models)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="score-"))
    errors: dict[str, list[float]] = collections.defaultdict(list)
    table: list[tuple[Any, ...]] = []
    failed: list[tuple[str, str]] = []
    skipped: collections.Counter[str] = collections.Counter()
    oom: list[tuple[str, str]] = []
    ran: list[tuple[str, str]] = []
    with pathlib.Path(options.rows).open(newline="") as source:
        rows = list(csv.DictReader(source))
    for row in rows:
        if options.source and row["source_id"] != options.source:
            continue
        if options.terms and row["id"] not in options.terms:
            continue
        if row["outcome"] == "ok" and (row["complete"] != "yes" or not row["value_gib"]):
            skipped["incomplete"] += 1
            continue
        spec, why = evaluate.spec_of(row, models, folder)
        if spec is None:
            skipped[why] += 1
            continue
        gpu = spec["resources"]["gpu"]
        if "memory" not in gpu and not known_gpu(gpu["name"]):
            gpu["memory"] = "80GiB"
        try:
            estimate = api.estimate(document.load_text(json.dumps(spec), str(folder / f"{row['id']}.yaml")))
            answer = estimate_json(estimate, row["id"])
        except Exception as error:
            failed.append((row["id"], f"{type(error).__name__}: {error}"))
            if options.terms:
                traceback.print_exc()
            continue
        if row["outcome"] == "oom":
            oom.append((row["id"], answer["verdict"]))
            if options.terms:
                print(row["id"], "out of memory, verdict", answer["verdict"], json.dumps(spec), "\n" + breakdown(estimate))
            continue
        section, field = evaluate.METRIC.get(row["metric"] or "unspecified", evaluate.METRIC["unspecified"])
        measured, predicted = float(row["value_gib"]), answer[section][field]
        if predicted is None:
            failed.append((row["id"], f"{section}.{field} is null"))
            continue
        error_ = (predicted - measured) / measured
        errors[row["source_id"]].append(error_)
        table.append((row["id"], row["source_id"], row["model"].split("/")[-1][:24], row["method"], row["parallel"][:9], row["seq_len"], row["micro_batch_size"],
                      row["checkpointing"], row["metric"][:9], measured, round(predicted, 2), round(100 * error_, 1), answer["gpu"]["phase"], answer["verdict"]))  # fmt: skip
        if row["gpu_mem_gb"] and section == "gpu":
            ran.append((row["id"], answer["verdict"]))
        if options.terms:
            print(row["id"], "measured", measured, "predicted", predicted, row["metric"], json.dumps(spec["training"]))
            print(breakdown(estimate))
    report(errors, table, failed, skipped, oom, ran, options.worst)
    if options.out:
        with pathlib.Path(options.out).open("w", newline="") as sink:
            csv.writer(sink).writerows(table)
    return 0


def report(
    errors: dict[str, list[float]], table: list[tuple[Any, ...]], failed: list[tuple[str, str]],
    skipped: collections.Counter[str], oom: list[tuple[str, str]], ran: list[tuple[str, str]], worst: int,
) -> None:  # fmt: skip
    """The tables."""
    print(f"estimated {len(table)}, not expressible {dict(skipped)}, failed {len(failed)}")
    for item in failed[:40]:
        print("  failed", *item)
    for line in sorted(table, key=lambda one: -abs(one[11]))[:worst]:
        print("  ", *line)
    everything = [abs(e) for values in errors.values() for e in values]
    if everything:
        medians = {name: statistics.median(map(abs, values)) for name, values in errors.items()}
        for name, value in sorted(medians.items(), key=lambda one: -one[1]):
            inside = sum(abs(e) <= 0.2 for e in errors[name]) / len(errors[name])
            print(f"  {name:40s} n={len(errors[name]):3d}  median |error| {100 * value:5.1f} %  bias {100 * statistics.median(errors[name]):+6.1f} %  within 20 %: {inside:.0%}")
        print(f"macro median {100 * statistics.mean(medians.values()):.1f} %   all rows median {100 * statistics.median(everything):.1f} %   "
              f"within 20 %: {sum(e <= 0.2 for e in everything) / len(everything):.1%}   within 10 %: {sum(e <= 0.1 for e in everything) / len(everything):.1%}")  # fmt: skip
    if oom:
        missed = [name for name, verdict in oom if verdict == "fits"]
        print(f"OOM rows {len(oom)}, called fits {len(missed)}: {' '.join(missed)}")
    if ran:
        refused = [name for name, verdict in ran if verdict == "does_not_fit"]
        print(f"rows that ran {len(ran)}, called does_not_fit {len(refused)} ({len(refused) / len(ran):.1%}): {' '.join(refused[:30])}")


if __name__ == "__main__":
    sys.exit(main())
