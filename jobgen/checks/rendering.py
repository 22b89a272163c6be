"""What no script or manifest can carry, and what the cluster would refuse: said by ``check``, before anything is rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from jobgen.checks.case import Case
from jobgen.checks.forks import Memo, Shared
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.resolve import assumed, beside
from jobgen.effective.versions import Versions
from jobgen.launch.job import Unrenderable
from jobgen.spec.problem import SpecError
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.launch.job import Job
    from jobgen.targets.lifetime import Target

KUBERNETES: dict[str, Target] = {"k8s": "k8s", "trainjob": "trainjob", "jobset": "jobset"}


def wanted(case: Case) -> bool:
    """A target is named and the spec says what ``render`` needs (``check`` alone needs no launch section)."""
    return case.target is not None and case.spec.checkpoint.directory is not None and _program(case)


def _program(case: Case) -> bool:
    launch = case.spec.launch
    return bool(launch.entrypoint or launch.module or launch.command or case.framework.command or case.document.wrote("launch"))


def job_of(case: Case) -> Job:
    """The job as ``render`` makes it: the newest releases answer what versions leave open, as one job is written."""
    from jobgen.launch.build import build

    memo = case.effective.memo
    versions = Versions(memo.known, prefer=assumed(memo.facts, memo.known))
    return build(Shared(case.facts, versions, memo), case.target, beside(case.document, "."))


class Judged(NamedTuple):
    """What stands against an artifact."""

    unwritable: Outcome | None = None
    refused: tuple[Outcome, ...] = ()


_JUDGED: WeakKeyDictionary[Memo, Judged] = WeakKeyDictionary()


def judged(case: Case) -> Judged:
    """The artifact is made once for both rules."""
    memo = case.effective.memo
    found = _JUDGED.get(memo)
    if found is None:
        found = _JUDGED[memo] = _judge(case) if wanted(case) else Judged()
    return found


def _judge(case: Case) -> Judged:
    from jobgen.targets import render

    made = case.effective.memo.made
    try:
        if made is not None and made.job is None and made.error is not None:
            raise made.error
        job = job_of(case) if made is None or made.job is None else made.job
        refused = _refused(case, job)
        if not refused and made is None:
            render(case.target or "", job, case.spec)
        elif not refused and made is not None and made.error is not None:
            raise made.error
    except Unrenderable as error:
        return Judged(Outcome(error.path, error.why, error.fix))
    except SpecError as error:
        return Judged(Outcome("training.config", error.problems[0].message, error.problems[0].fix))
    return Judged(None, refused)


def _refused(case: Case, job: Job) -> tuple[Outcome, ...]:
    target = KUBERNETES.get(case.target or "")
    if target is None:
        return ()
    from jobgen.targets import admission

    return tuple(Outcome(trouble.path, trouble.message, trouble.fix) for trouble in admission.problems(job, case.spec, target))


@rule(
    "JG790", "error", "read", "artifact",
    bad=Example("full-32b-zero3", {"slurm.partition": "$PARTITION"}),
    good=Example("full-32b-zero3", {"slurm.partition": "gpu"}),
    because=("JG750",),
    fix="write a value that a script, a directive or a manifest can carry",
    sources=("Slurm 22.05 sbatch: no expansion in directives", "Linux execve: MAX_ARG_STRLEN", "pyxis and apptainer mount syntax"),
)  # fmt: skip
def not_writable(case: Case) -> Outcome | None:
    """The job cannot be written down for this target

    A value that a directive, an argument, a variable, a mount or a manifest cannot hold would arrive changed, or not at
    all. The same code writes the artifact, so what passes here is rendered.
    """
    return judged(case).unwritable


@rule(
    "JG791", "error", "init", "artifact",
    bad=Example("full-32b-zero3", {"target": "jobset", "launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "Lustre_1"}]}),
    good=Example("full-32b-zero3", {"target": "jobset", "launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "lustre"}]}),
    fix="write what Kubernetes takes",
    sources=("Kubernetes 1.34, training-operator 1.9.4, JobSet 0.12.0, Trainer 2.3.0 and Kueue 0.17.0, asked by tests/cluster/refusals.jsonl",),
)  # fmt: skip
def not_admitted(case: Case) -> list[Outcome]:
    """Kubernetes would refuse the objects, or take them and never run the job

    The API server, the operators' webhooks and Kueue each have their own grammar for names, labels, quantities and
    contexts. Each refusal was seen on a real server; some come only when the operator makes the pods, when nobody looks.
    """
    return list(judged(case).refused)
