"""The breakdown as a chart (Altair): one stacked bar a phase, a line at the card's capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobgen.physics.estimate import Estimate

GIB = 2**30


class NoChart(Exception):
    """The chart cannot be drawn here or under that name."""

    exit_status = 2


def ready(path: str) -> tuple[str, Any]:
    """The format that a file's ending asks for, and the library that draws it; NoChart without either."""
    kind = path.rpartition(".")[2].lower()
    if kind not in ("svg", "html", "png"):
        raise NoChart(f"--plot {path}: write a name that ends in .svg, .html or .png")
    try:
        import altair
        import vl_convert  # noqa: F401  what turns a chart into a file
    except ImportError:
        raise NoChart("--plot needs Altair and vl-convert: pip install 'jobgen[plot]' (in a clone: pip install '.[plot]')") from None
    return kind, altair


def write(estimate: Estimate, path: str) -> None:
    """Draw to a file; its ending says the format (.svg, .html or .png)."""
    kind, altair = ready(path)
    figure = chart(estimate, altair)
    try:
        if kind == "html":
            figure.save(path, inline=True)
        else:
            figure.save(path)
    except OSError as error:
        raise NoChart(f"cannot write {path}: {error.strerror}") from None


def chart(estimate: Estimate, altair: Any) -> Any:
    """The chart object."""
    from jobgen.physics.ledger import COMPONENTS, PHASES

    gpu = estimate.gpu
    rows = []
    for bit, phase in PHASES:
        if phase not in gpu.phases:
            continue
        for component in COMPONENTS:
            size = sum(term.bytes for term in gpu.terms if term.component == component and term.phases & bit)
            if size:
                rows.append({"phase": phase, "component": component, "GiB": float(size) / GIB})
    bars = (
        altair.Chart(altair.Data(values=rows))
        .mark_bar()
        .encode(
            x=altair.X("GiB:Q", title="GiB on the worst rank"),
            y=altair.Y("phase:N", sort=[name for _, name in PHASES], title=None),
            color=altair.Color("component:N", sort=list(COMPONENTS), title=None),
            tooltip=["phase:N", "component:N", altair.Tooltip("GiB:Q", format=".2f")],
        )
    )
    title = f"{estimate.model}: {gpu.device / GIB:.1f} GiB"
    if math.isinf(gpu.capacity):
        return bars.properties(title=title, width=640)
    line = altair.Chart(altair.Data(values=[{"GiB": gpu.capacity / GIB}])).mark_rule(strokeDash=[4, 4]).encode(x="GiB:Q")
    return (bars + line).properties(title=f"{title} of {gpu.capacity / GIB:.1f}", width=640)
