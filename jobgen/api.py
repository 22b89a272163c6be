"""The Python API: load, check, estimate, render and submit. The only place that refuses a job.

>>> document = load("spec.yaml")
>>> check(document).verdict
'pass'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import IO, TYPE_CHECKING

from jobgen.spec.document import Document
from jobgen.spec.document import load as load
from jobgen.spec.problem import Problem
from jobgen.spec.problem import SpecError as SpecError
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.checks.forks import Made
    from jobgen.checks.registry import Finding, Severity
    from jobgen.physics.estimate import Estimate
    from jobgen.physics.levers import Lever
    from jobgen.schedulers.receipts import Receipt
    from jobgen.schedulers.submit import Request
    from jobgen.targets.artifact import Artifact

__all__ = ["Document", "Refused", "Report", "SpecError", "check", "estimate", "levers", "load", "points", "render", "submission", "submit", "target_of"]


class Report(NamedTuple):
    """What ``check`` found in one spec."""

    file: str
    sources: Mapping[str, str]
    """The texts of the files that positions point into."""
    verdict: str
    """``pass``, ``pass_with_warnings``, ``error``, or ``unreadable``."""
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        """Some error-severity finding is not named by ``ignore``."""
        return any(finding.severity == "error" and finding.ignored is None for finding in self.findings)

    @property
    def warned(self) -> bool:
        """Some warning is not named by ``ignore``."""
        return any(finding.severity == "warning" and finding.ignored is None for finding in self.findings)


class Refused(Exception):
    """The job would not run; ``report`` says why."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(f"{report.file}: refused by {', '.join(sorted({f.code for f in report.findings if f.severity == 'error'}))}")


def check(
    document: Document,
    *,
    target: str | None = None,
    environment: Mapping[str, str] | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Report:
    """Every finding of a spec. ``environment``: installed versions by PyPI name; ``select`` and ``ignore``: codes or
    their beginnings. SpecError when the spec names what no catalogue holds. Of a sweep its points are checked, for
    they are what runs."""
    from jobgen.checks.run import findings, verdict
    from jobgen.effective.resolve import facts, known

    jobs = points(document)
    each = [findings(job, facts(job), known(job, environment), target=target, select=select, ignore=ignore) for job in jobs]
    found = each[0] if len(each) == 1 else _together(each, [job.spec.name for job in jobs])
    return Report(document.file, document.sources, verdict(found), found)


def _together(each: Sequence[tuple[Finding, ...]], names: Sequence[str]) -> tuple[Finding, ...]:
    """The findings of a sweep's points, each once, with the points that have it where not all do."""
    where: dict[tuple[str, Severity, str], list[int]] = {}
    first: dict[tuple[str, Severity, str], Finding] = {}
    for index, found in enumerate(each):
        for finding in found:
            key = (finding.code, finding.severity, finding.path)
            first.setdefault(key, finding)
            where.setdefault(key, []).append(index)
    rank = {"error": 0, "warning": 1, "info": 2}
    merged = []
    for key, finding in first.items():
        count = len(set(where[key]))
        if count < len(each):
            others = f" and {count - 1} more of {len(each)}" if count > 1 else f", 1 of {len(each)}"
            finding = finding._replace(message=f"{finding.message} (in {names[where[key][0]]}{others})")
        merged.append(finding)
    return tuple(sorted(merged, key=lambda finding: rank[finding.severity]))


def unreadable(file: str, error: SpecError) -> Report:
    """The report of a spec that cannot be read: its problems as findings."""
    from jobgen.checks.registry import Finding

    found = tuple(Finding(p.code, "error", p.path, p.line, p.column, p.message, p.fix, "", file="" if p.file == file else p.file) for p in error.problems)
    return Report(file, error.sources, "unreadable", found)


def estimate(document: Document, *, environment: Mapping[str, str] | None = None) -> Estimate:
    """Memory, storage and time of what will really run; open version questions are answered by the newest releases."""
    from jobgen.effective.resolve import assume
    from jobgen.physics.estimate import estimate as physics

    assumed = assume(document, environment)
    return physics(assumed.effective)._replace(assumed_versions=dict(assumed.chosen()))


def largest(document: Document, *, environment: Mapping[str, str] | None = None) -> tuple[Document, Estimate]:
    """The job of a spec that needs most GPU memory, and its estimate (of a sweep the largest point, else the job)."""
    every = [(point, estimate(point, environment=environment)) for point in points(document)]
    return max(every, key=lambda each: each[1].gpu.device)


def levers(document: Document, now: Estimate, *, environment: Mapping[str, str] | None = None) -> tuple[Lever, ...]:
    """The changes that would save most GPU memory against the estimate ``now``, largest first."""
    from jobgen.effective.resolve import assume
    from jobgen.physics.levers import levers as physics

    def again(path: str, value: object) -> Estimate | None:
        try:
            return estimate(document.edited({path: value}), environment=environment)
        except SpecError:
            return None

    return physics(assume(document, environment).effective, now, again)


def target_of(document: Document, target: str | None) -> str:
    """The target asked for, else the spec's, else SpecError."""
    chosen = target or document.spec.target
    if chosen is None:
        raise SpecError([Problem(document.file, 1, 1, "target", "no target was named", "pass --target slurm (or k8s, trainjob, jobset, hosts, local), or write target: in the spec", "JG003")])
    return chosen


def render(document: Document, *, target: str | None = None, node_rank: int | None = None) -> Artifact:
    """The artifact of a checked spec; Refused on an error-severity finding that ``ignore`` does not name."""
    from jobgen.checks.run import findings, verdict
    from jobgen.effective.resolve import facts, known
    from jobgen.launch.job import Unrenderable

    chosen = target_of(document, target)
    if document.spec.sweep is not None:
        place, count = document.locate("sweep"), len(points(document))
        fix = "submit it, see them all with submit --dry-run=client, or render the job without it: --set sweep=null"
        raise SpecError([Problem(place.file, place.line, place.column, "sweep", f"a sweep is {count} jobs, and this would be the script of one", fix, "JG003")], document.sources)
    made = _made(document, chosen, node_rank)
    found = findings(document, facts(document), known(document), target=chosen, made=made)
    report = Report(document.file, document.sources, verdict(found), found)
    if report.refused:
        raise Refused(report)
    if isinstance(made.error, Unrenderable):
        place = document.locate(made.error.path)
        raise SpecError(
            [Problem(place.file, place.line, place.column, made.error.path, made.error.why, made.error.fix, "JG003")], document.sources
        ) from None
    if made.artifact is None:
        raise made.error or AssertionError("neither an artifact nor a reason")
    return made.artifact


def _made(document: Document, target: str, node_rank: int | None) -> Made:
    """The job written once, for the rules that judge it and for the answer; what stands against it waits until they spoke."""
    from jobgen.checks.forks import Made
    from jobgen.effective.resolve import assume, beside
    from jobgen.launch.build import build
    from jobgen.targets import render as write

    job = None
    try:
        job = build(assume(document).effective, target, beside(document, "."))
        if node_rank is not None:
            job = job._replace(only_node=node_rank)
        return Made(job, write(target, job, document.spec))
    except Exception as error:  # of a spec that is refused anyway, or said after the check
        return Made(job, None, error)


def read(source: str, sets: Sequence[str], stdin: IO[bytes] | None = None) -> Document:
    """A spec from a path or ``-``."""
    return load(source, sets=sets, stdin=stdin)


def submission(document: Document, *, target: str | None = None, new: bool = False, wait: str = "") -> Request:
    """What ``submit`` would send for one job. Refused when it would not run. ``wait``: a Slurm dependency to add."""
    from jobgen.schedulers.after import dependency
    from jobgen.schedulers.submit import Request

    chosen = target_of(document, target)
    spec = document.spec
    artifact = render(document, target=chosen)
    details = {"namespace": spec.kubernetes.namespace, "context": spec.kubernetes.context} if chosen in ("k8s", "trainjob", "jobset") else {}
    waits = dependency([(after.job, after.on) for after in spec.after], chosen, wait)

    @cache
    def rename(name: str) -> Artifact:
        return render(document.edited({"name": name}), target=chosen)

    return Request(
        spec.name, chosen, artifact, document.text or "", tuple(spec.launch.secrets), details,
        waits, new, rename,
    )  # fmt: skip


def points(document: Document) -> list[Document]:
    """The jobs of a spec: one, or one a point of its sweep."""
    if document.spec.sweep is None:
        return [document]
    from jobgen.spec.sweep import expand

    return [point for _, point in expand(document)]


def submit(document: Document, *, target: str | None = None, new: bool = False, say: Callable[[str], None] = lambda _: None) -> list[Receipt]:
    """Check, render and send every job of a spec; a live job with the same content is returned instead of sent again.

    At most ``sweep.max_parallel`` points run at once (on Slurm by dependencies; on this machine the call waits).
    """
    from jobgen.schedulers.follow import wait_for_room
    from jobgen.schedulers.submit import scheduler, send

    jobs = points(document)
    limit = document.spec.sweep.max_parallel if document.spec.sweep else None
    chosen = target_of(document, target)
    if len(jobs) > 1:  # none is sent where one is refused
        for point in jobs:
            render(point, target=chosen)
    service = scheduler(chosen)
    sent: list[Receipt] = []
    for index, point in enumerate(jobs):
        if limit and chosen == "local":
            wait_for_room(sent, limit, say)
        wait = f"afterany:{sent[index - limit].job_id}" if limit and index >= limit and chosen == "slurm" else ""
        sent.append(send(submission(point, target=chosen, new=new, wait=wait), service, new=new, say=say))
    return sent
