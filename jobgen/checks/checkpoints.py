"""Checkpoints: what is written, and what can be made of it."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule

ZERO = ("zero1", "zero2", "zero3")


@rule(
    "JG814", "warning", "checkpoint", "spec",
    bad=Example("qlora-235b-zero3", {"launch.finish": ["python /checkpoints/qlora-235b/zero_to_fp32.py /checkpoints/qlora-235b out"]}),
    good=Example("qlora-235b-zero3", {"launch.finish": ["python /checkpoints/qlora-235b/zero_to_fp32.py --exclude_frozen_parameters /checkpoints/qlora-235b out"]}),
    fix="zero_to_fp32.py --exclude_frozen_parameters",
    sources=("transformers 4.57.6 trainer.py:3453-3460", "DeepSpeed utils/zero_to_fp32.py, PR #4979 (v0.13.2)"),
    facts=("CK14",),
    versions="DeepSpeed >= 0.13.2 has the flag",
)  # fmt: skip
def frozen_not_saved(case: Case) -> Outcome | None:
    """Adapter checkpoints of ZeRO hold no frozen weights

    transformers saves them without, so zero_to_fp32.py must be told: --exclude_frozen_parameters.
    """
    spec = case.spec
    if spec.parallelism.sharding not in ZERO or spec.training.method == "full":
        return None
    lines = [(i, line) for i, line in enumerate(spec.launch.finish) if "zero_to_fp32" in line and "exclude_frozen_parameters" not in line]
    if not lines:
        return None
    index, line = lines[0]
    mended = line.replace("zero_to_fp32.py", "zero_to_fp32.py --exclude_frozen_parameters", 1)
    return Outcome(
        f"launch.finish.{index}", "zero_to_fp32.py looks for frozen weights that adapter checkpoints do not hold",
        f"write {mended}", {f"launch.finish.{index}": mended} if mended != line else None,
    )  # fmt: skip
