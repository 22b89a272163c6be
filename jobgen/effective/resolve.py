"""From a document to the facts and the version knowledge that every later step stands on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jobgen import frameworks
from jobgen.catalog import gpus, models, nodes, releases
from jobgen.catalog.arch import Arch
from jobgen.catalog.gpus import Gpu, Peaks
from jobgen.catalog.nodes import Node
from jobgen.effective.libraries import canonical, interval_of, newest, pinned
from jobgen.effective.options import with_file
from jobgen.effective.quantization import requested
from jobgen.effective.setup import Effective, Facts
from jobgen.effective.versions import Interval, Version, Versions
from jobgen.frameworks.config import NONE, Config
from jobgen.spec.layout import layout
from jobgen.spec.problem import Problem, SpecError
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Quantization
from jobgen.spec.source import read_regular

if TYPE_CHECKING:
    from jobgen.spec.document import Document

UNRESERVED = 0.993
"""Share of the memory on the card that a process can take where only the label is known: on data-centre cards the
driver keeps 0.3-0.7 % (hardware facts, GPU table: torch total against nvidia-smi)."""


class Unknowable(NamedTuple):
    """A field that names something no catalogue holds."""

    path: str
    message: str
    fix: str


def facts(document: Document, *, any_gpu: bool = False) -> Facts:
    """What the spec names: architecture, GPU, node type, layout and framework; SpecError lists all that is unknown.

    ``any_gpu``: a GPU of which nothing is known is fine (what a job needs does not depend on it).
    """
    spec = document.spec
    found: list[Arch | Gpu | Node | None] = []
    unknown: list[Unknowable] = []
    for look in (_arch, _gpu, _node):
        thing = look(document)
        if any_gpu and look is _gpu and isinstance(thing, Unknowable):
            thing = _unlisted(spec.resources.gpu.name, 0)
        if isinstance(thing, Unknowable):
            unknown.append(thing)
            found.append(None)
        else:
            found.append(thing)
    if unknown:
        raise SpecError(
            (Problem(*document.locate(one.path)[1:], one.path, one.message, one.fix, "JG002") for one in unknown),
            document.sources,
        )
    arch, gpu, node = found
    assert isinstance(arch, Arch)
    assert isinstance(gpu, Gpu)
    table = frameworks.find(spec.training.framework, spec.training.backend)
    return Facts(spec, arch, gpu, node if isinstance(node, Node) else None, layout(spec), table)


def _arch(document: Document) -> Arch | Unknowable:
    model = document.spec.model
    try:
        if model.config is not None:
            return models.load(model.name, beside(document, model.config))
        return models.load(model.name)
    except models.UnknownModel as error:
        if error.candidates:
            return Unknowable("model.name", str(error), f"write one of {', '.join(error.candidates)}")
        near = _near(error)
        return Unknowable(
            "model.name", f"no model {error.name!r} in the catalogue (jobgen models lists it)",
            f"{near}for any other model set model.config to its config.json or the folder that holds it",
        )  # fmt: skip
    except models.UnknownArchitecture as error:
        path = "model.config" if model.config is not None else "model.name"
        return Unknowable(path, str(error), "use a model of a known type, or report the type so that it can be added")
    except models.BadConfig as error:
        path = "model.config" if model.config is not None else "model.name"
        return Unknowable(path, str(error), "give the config.json that lies beside the model's weights")


def _near(error: models.Unknown) -> str:
    """The nearest name, to begin a fix with; nothing where none is near."""
    return f"the nearest is {error.nearest[0]}; " if error.nearest else ""


def _gpu(document: Document) -> Gpu | Unknowable:
    wanted = document.spec.resources.gpu
    try:
        gpu = gpus.find(wanted.name, wanted.memory)
    except gpus.UnknownGpu as error:
        if wanted.memory is not None:
            return _unlisted(wanted.name, wanted.memory)
        if error.candidates:
            return Unknowable("resources.gpu", str(error), f"write one of {', '.join(error.candidates)}")
        near = _near(error)
        return Unknowable(
            "resources.gpu", f"no GPU {wanted.name!r} in the catalogue (jobgen gpus lists it)",
            f"{near}{'or ' if near else ''}give its memory: {{name: {wanted.name}, memory: 80GiB}}",
        )  # fmt: skip
    if wanted.memory is None or gpus.is_size_of(gpu, wanted.memory):
        return gpu
    usable = int(wanted.memory * UNRESERVED)
    return gpu._replace(memory_bytes=wanted.memory, usable_bytes=usable, usable_range=(usable, usable))


def _unlisted(name: str, memory_bytes: int) -> Gpu:
    """A GPU of which only the memory is known: no peaks, so no times."""
    usable = int(memory_bytes * UNRESERVED)
    return Gpu(
        name, (), "", "", None, "", memory_bytes / 1e9, memory_bytes, usable, (usable, usable), 0.0,
        Peaks(None, None, None, None, None, None), None, 0, "", True, False, True, False, True, "the spec", "given", "",
    )  # fmt: skip


def _node(document: Document) -> Node | Unknowable | None:
    name = document.spec.resources.node_type
    if name is None:
        return None
    try:
        return nodes.find(name)
    except nodes.UnknownNode as error:
        near = _near(error)
        return Unknowable(
            "resources.node_type", f"no node type {name!r} in the catalogue",
            f"{near}or leave it out and set memory_per_node and cpus_per_node",
        )  # fmt: skip


def beside(document: Document, path: str) -> Path:
    """A path the user wrote, relative to the file that holds the spec."""
    written = Path(path).expanduser()
    if written.is_absolute() or document.file in ("-", "<stdin>", "<string>"):
        return written
    return Path(document.file).parent / written


def framework_file(document: Document) -> Config:
    """``training.config`` as it is read; empty where there is none or it cannot be read (a rule says so)."""
    name = document.spec.training.config
    if name is None:
        return NONE
    path = beside(document, name)
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return NONE
    return _read(path, name, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, name: str, _changed: int, _size: int) -> Config:
    from jobgen.frameworks.config import read_config

    try:
        return read_config(read_regular(path), name)
    except (OSError, UnicodeDecodeError, SpecError):
        return NONE


def known(document: Document, environment: Mapping[str, str] | None = None) -> dict[str, Interval]:
    """What is known of each library: what the spec says, then the environment, then what framework releases pin.

    Keys are PyPI names in lower case with dashes. SpecError for a version that cannot be read.
    """
    spec = document.spec
    result: dict[str, Interval] = {}
    problems: list[Problem] = []
    for name, written in spec.training.versions.items():
        interval = interval_of(written)
        if interval is None:
            path = f"training.versions.{name}"
            problems.append(Problem(
                *document.locate(path)[1:], path, f"{written!r} is not a version",
                'write a release such as "4.57.1", a series such as "4.57", or bounds such as ">=4.51,<5"', "JG002",
            ))  # fmt: skip
        else:
            result[canonical(name)] = interval
    if problems:
        raise SpecError(problems, document.sources)
    for name, written in (environment or {}).items():
        interval = interval_of(written)
        if interval is not None:
            result.setdefault(canonical(name), interval)
    table = frameworks.find(spec.training.framework, spec.training.backend)
    for name, interval in pinned(table.library, result):
        result.setdefault(name, interval)
    first = models_first_release(document)
    if first:
        transformers = result.get("transformers", Interval())
        if transformers.low < first < transformers.high and "transformers" not in spec.training.versions:
            result["transformers"] = Interval(first, transformers.high)
    return result


def models_first_release(document: Document) -> Version | None:
    """The first transformers release with the model's type; None when unknown or older than all that matter."""
    arch = _arch(document)
    return arch.first_release if isinstance(arch, Arch) else None


def assumed(facts: Facts, known: Mapping[str, Interval]) -> Mapping[str, Version]:
    """The releases that an estimate assumes where nothing is known: the newest that the catalogue knows, but the newest
    transformers that still quantises routed experts where the spec asks for that (5.0 leaves them in 16 bit)."""
    chosen = {name: version for name, version in newest() if not known.get(name, Interval()).known}
    if _open_experts(facts, known) and (facts.arch.first_release or ()) < FUSED_EXPERTS:
        chosen["transformers"] = max(one for one in releases.versions("transformers") if one < FUSED_EXPERTS)
    return chosen


FUSED_EXPERTS: Version = (5,)
"""From this transformers release routed experts are 3-D parameters, which bitsandbytes leaves alone (QS01)."""


def _open_experts(facts: Facts, known: Mapping[str, Interval]) -> bool:
    """Quantised experts are asked for and no version says whether they will be."""
    interval = known.get("transformers", Interval())
    quant = requested(facts.spec)
    return (
        facts.arch.moe and quant is not None and quant.moe_experts == "auto" and not interval.known
        and not known.get(facts.framework.library, Interval()).known and interval.high > FUSED_EXPERTS
    )  # fmt: skip


class Assumed(NamedTuple):
    """An effective set-up under the assumed releases."""

    effective: Effective
    versions: Versions
    experts: bool
    """Quantised experts are assumed although only the framework's newest releases can, since no version is given."""

    def chosen(self) -> Iterator[tuple[str, str]]:
        """(library, what was assumed of it) for every question that knowledge left open, after the computation."""
        for name in dict.fromkeys(decision.library for decision in self.versions.asked):
            yield name, str(self.versions.interval(name))
        if self.experts:
            yield self.effective.framework.library or "framework", "quantises routed experts, as the spec asks"


def assume(document: Document, environment: Mapping[str, str] | None = None) -> Assumed:
    """The set-up of one estimate: open version questions are answered by the assumed releases."""
    intervals = known(document, environment)
    found = with_file(facts(document, any_gpu=True), framework_file(document).values)
    versions = Versions(intervals, prefer=assumed(found, intervals))
    experts = _open_experts(found, intervals) and (found.arch.first_release or ()) >= FUSED_EXPERTS
    if experts:
        training = found.spec.training
        quant = (requested(found.spec) or Quantization.model_construct()).model_copy(update={"moe_experts": True})
        training = training.model_copy(update={"quantization": quant})
        found = found._replace(spec=found.spec.model_copy(update={"training": training}))
    return Assumed(Effective(found, versions), versions, experts)


def capacity_bytes(gpu: Gpu) -> int:
    """What a process can take of the card (torch's total)."""
    return min(gpu.usable_bytes, math.floor(gpu.memory_bytes))
