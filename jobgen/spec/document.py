"""A spec that was read: the typed values, the plain tree, and where each value was written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

from jobgen.spec import merge, source
from jobgen.spec.merge import Layer, Mark
from jobgen.spec.problem import Origin, Path, Problem, SpecError, dotted
from jobgen.spec.read import read_text
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec
from jobgen.spec.validate import validate

__all__ = ["Document", "Origin", "Problem", "SpecError", "load", "load_text"]


class Document(NamedTuple):
    """A valid spec. ``tree`` is what was written, all layers merged and short forms made long; ``text`` is the spec
    file's own; ``sources`` holds the texts of all files that positions point into (``--set``: one line each)."""

    spec: Spec
    tree: dict[str, Any]
    file: str
    text: str | None
    sources: Mapping[str, str]
    marks: Mapping[Path, Mark]
    by_name: Mapping[str, Mark]

    def wrote(self, path: str) -> bool:
        """Whether the spec, the profile or the command line gives this value."""
        return path in self.by_name

    def locate(self, path: str) -> Origin:
        """The position the user wrote: the value's, else that of the nearest ancestor's key, else the file's start."""
        mark = self.by_name.get(path)
        if mark is not None:
            return mark.value if path else Origin("spec", self.file, 1, 1)
        while path:
            path = path.rpartition(".")[0]
            if path and (mark := self.by_name.get(path)) is not None:
                return mark.key
        return Origin("spec", self.file, 1, 1)

    def origin(self, path: str) -> Origin:
        """Where the value in effect comes from; a default has the position of its nearest ancestor."""
        found = self.locate(path)
        return found if self.wrote(path) else found._replace(layer="default")

    def edited(self, edits: Mapping[str, object], layer: str = "command line") -> Document:
        """The document with values replaced (``edit.DELETE`` removes one); raises SpecError if it is no longer valid."""
        from jobgen.spec.edit import edit_layer

        changed = edit_layer(Layer(self.tree, dict(self.marks)), edits, layer, self.file)
        return build(changed, self.file, self.text, self.sources)


def load(source_: str | os.PathLike[str], *, sets: Sequence[str] = (), stdin: IO[Any] | None = None) -> Document:
    """Read a spec from a file, or from standard input when the name is ``-``; raises SpecError."""
    shown = "<stdin>" if source_ == "-" else os.fspath(source_)
    text = source.read_stream(stdin, shown) if source_ == "-" else source.read_file(source_, shown)
    return load_text(text, shown, sets=sets)


def load_text(text: str, file: str = "<string>", *, sets: Sequence[str] = ()) -> Document:
    """Read a spec from its text; raises SpecError with every problem found."""
    sources = {file: text}
    if sets:
        sources[merge.SETS] = "\n".join(sets)
    try:
        layer, more = _merged(text, file, sets)
    except SpecError as error:
        raise SpecError(error.problems, sources | error.sources) from None
    return build(layer, file, text, sources | more)


def _merged(text: str, file: str, sets: Sequence[str]) -> tuple[Layer, dict[str, str]]:
    """The layers of a job in one."""
    spec = merge.layer_of(read_text(text.removeprefix("\ufeff"), file), "spec", file)
    changes = merge.read_sets(sets)
    cluster, mark = spec.tree.get("cluster"), spec.marks.get(("cluster",))
    for path, value, marks in changes:
        if path == ("cluster",):
            cluster, mark = value, marks[()]
    sources: dict[str, str] = {}
    result = spec
    if isinstance(cluster, str) and mark is not None:
        try:
            profile, name, profile_text = merge.read_profile(cluster, mark.value, file)
        except SpecError as error:
            raise SpecError([*spec.problems, *error.problems], error.sources) from None
        sources[name] = profile_text
        result = merge.overlay(profile, spec)
    for path, value, marks in changes:
        try:
            result = merge.assign(result, path, value, marks)
        except ValueError as reason:
            problem = Problem(*marks[()].key[1:], dotted(path), str(reason), "change the path", "JG002")
            raise SpecError([*result.problems, problem]) from None
    return result, sources


def build(layer: Layer, file: str, text: str | None, sources: Mapping[str, str]) -> Document:
    """A document from merged layers; raises SpecError."""
    spec, layer, problems = validate(layer, file)
    problems = [*layer.problems, *problems]
    if problems or spec is None:
        raise SpecError(sorted(dict.fromkeys(problems), key=lambda p: (p.file != file, p.file, p.line, p.column)), sources)
    by_name: dict[str, Mark] = {}
    for path, mark in layer.marks.items():
        by_name.setdefault(dotted(path), mark)
    return Document(spec, layer.tree, file, text, sources, layer.marks, by_name)
