"""Text to a plain tree with the position of every key and value; YAML 1.2 core schema, strict and bounded.

Driven from the parser's events with a stack, so that nesting costs no recursion; anchors are expanded under a bound.
"""

from __future__ import annotations

from typing import Any

from jobgen.spec import scalars
from jobgen.spec.problem import Path, Problem, SpecError, dotted
from jobgen.spec.record import NamedTuple
from jobgen.spec.syntax import explain

MAX_DEPTH = 32
MAX_NODES = 20_000


class Place(NamedTuple):
    """Where a value and its key stand (1-based); ``raw`` is the text of a plain scalar that is not a string;
    ``start`` and ``end`` are offsets of a scalar's text, -1 where there is none of its own."""

    line: int
    column: int
    key_line: int
    key_column: int
    raw: str | None = None
    start: int = -1
    end: int = -1


class Reading(NamedTuple):
    """A text as read. ``problems`` are traps that leave a tree to validate further."""

    tree: Any
    places: dict[Path, Place]
    problems: tuple[Problem, ...]


class _Node:
    """A scalar, list (``items``) or map (``pairs``) before anchors are expanded."""

    __slots__ = ("alias", "end", "items", "mark", "pairs", "plain", "start", "text")

    def __init__(self, mark: Any) -> None:
        self.mark: tuple[int, int] = (mark.line + 1, mark.column + 1)
        self.text = ""
        self.plain = False
        self.start = self.end = -1
        self.items: list[_Node] | None = None
        self.pairs: list[tuple[_Node, _Node]] | None = None
        self.alias: _Node | None = None


def read_text(text: str, file: str) -> Reading:
    """The tree and positions of one YAML document; raises SpecError when there is none."""
    scalars.refuse_characters(text, file)
    return _Expansion(file).run(_parse(text, file))


def _stop(file: str, mark: tuple[int, int], message: str, fix: str, path: Path = ()) -> SpecError:
    return SpecError([Problem(file, *mark, dotted(path), message, fix, "JG001")])


def _parse(text: str, file: str) -> _Node:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="safe", pure=True)
    try:
        return _assemble(yaml.parse(text), file)
    except SpecError:
        raise
    except (YAMLError, ValueError, IndexError, TypeError, AttributeError, AssertionError, KeyError) as error:
        line, column, message, fix = explain(error, text, (yaml.reader.line + 1, yaml.reader.column + 1))
        raise _stop(file, (line, column), message, fix) from None


def _assemble(events: Any, file: str) -> _Node:
    """One document's events as nodes."""
    root: _Node | None = None
    open_: list[tuple[_Node, _Node | None]] = []  # collection, and the key that waits for its value
    anchors: dict[str, _Node] = {}
    pending: list[str | None] = []  # anchors of open collections: known only when closed
    count = 0
    for event in events:
        kind = type(event).__name__
        if kind in ("StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"):
            continue
        mark = event.start_mark
        here = (mark.line + 1, mark.column + 1)
        if kind == "DocumentStartEvent":
            if root is not None:
                raise _stop(file, here, "a second document starts here", "keep one spec in a file: remove `---`")
            if event.version not in (None, (1, 2), [1, 2]):
                raise _stop(file, here, "this file asks for another YAML version",
                            "remove the %YAML line; jobgen reads YAML 1.2")  # fmt: skip
            continue
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            node, _ = open_.pop()
            if anchor := pending.pop():
                anchors[anchor] = node
        else:
            count += 1
            if count > MAX_NODES:
                raise _stop(file, here, f"more than {MAX_NODES} values", "a spec describes one job; split the file")
            node = _Node(mark)
            if kind == "AliasEvent":
                node.alias = anchors.get(event.anchor)
                if node.alias is None:
                    raise _stop(file, here, f"`*{event.anchor}` stands for nothing: no finished `&{event.anchor}` is "
                                "above it", f"define `&{event.anchor}` first, outside of itself")  # fmt: skip
            elif kind == "ScalarEvent":
                tag = _tag(event, file, here)
                node.text, node.plain = event.value, event.style in (None, "") and tag is None
                node.start, node.end = mark.index, event.end_mark.index
                if event.anchor:
                    anchors[event.anchor] = node
            else:
                _tag(event, file, here)
                if len(open_) >= MAX_DEPTH:
                    raise _stop(file, here, f"nested more than {MAX_DEPTH} deep", "a spec needs far less: flatten it")
                if kind == "MappingStartEvent":
                    node.pairs = []
                else:
                    node.items = []
                pending.append(event.anchor)
                open_.append((node, None))
                continue
        if not open_:
            root = node
            continue
        parent, key = open_[-1]
        if parent.items is not None:
            parent.items.append(node)
        elif key is None:
            open_[-1] = (parent, node)
        else:
            parent.pairs.append((key, node))  # type: ignore[union-attr]
            open_[-1] = (parent, None)
    if root is None:
        raise _stop(file, (1, 1), "the file is empty", "write at least name, model, training and resources")
    return root


def _tag(event: Any, file: str, here: tuple[int, int]) -> str | None:
    tag = event.tag
    if tag is None:
        return None
    if str(tag) == "tag:yaml.org,2002:str" and type(event).__name__ == "ScalarEvent":
        return "str"
    shown = str(tag).replace("tag:yaml.org,2002:", "!!")
    raise _stop(file, here, f"the tag `{shown}` is not allowed: a spec is plain data", "remove the tag")


class _Expansion:
    """Nodes to a plain tree: aliases and merge keys expanded, scalars resolved, traps collected."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self.left = MAX_NODES

    def run(self, root: _Node) -> Reading:
        return Reading(self.value(root, (), root.mark, 0), self.places, tuple(self.problems))

    def trap(self, mark: tuple[int, int], path: Path, message: str, fix: str) -> None:
        problem = Problem(self.file, *mark, dotted(path), message, fix, "JG001")
        if problem not in self.problems:
            self.problems.append(problem)

    def value(self, node: _Node, path: Path, key: tuple[int, int], depth: int) -> Any:
        own = node.alias is None
        mark = key if own and node.plain and node.text == "" and node.start == node.end else node.mark
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH:
            raise _stop(self.file, mark, f"anchors and aliases expand to more than {MAX_NODES} values or "
                        f"{MAX_DEPTH} levels", "write the values out, or use fewer aliases", path)  # fmt: skip
        while node.alias is not None:
            node = node.alias
        if node.pairs is not None:
            self.places[path] = Place(*mark, *key)
            return self.mapping(node.pairs, path, depth)
        if node.items is not None:
            self.places[path] = Place(*mark, *key)
            return [self.value(item, (*path, i), item.mark, depth + 1) for i, item in enumerate(node.items)]
        if node.plain:
            value, trap = scalars.resolve(node.text)
            if trap is not None:
                self.trap(mark, path, *trap)
        else:
            value, trap = node.text, scalars.text_trap(node.text)
            if trap is not None:
                self.trap(mark, path, *trap)
        raw = node.text if node.plain and not isinstance(value, str) else None
        self.places[path] = Place(*mark, *key, raw, node.start if own else -1, node.end if own else -1)
        return value

    def mapping(self, pairs: list[tuple[_Node, _Node]], path: Path, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[_Node] = []
        first: dict[str, tuple[int, int]] = {}
        for key_node, value_node in pairs:
            name = self.key(key_node, path)
            if name is None:
                continue
            if name == "<<" and key_node.plain:
                merged.append(value_node)
                continue
            if name in first:
                self.trap(key_node.mark, (*path, name), f"`{name}` is written twice; the first is at line "
                          f"{first[name][0]}", "keep one of the two")  # fmt: skip
                continue
            first[name] = key_node.mark
            result[name] = self.value(value_node, (*path, name), key_node.mark, depth + 1)
        for node in merged:
            self.merge(node, path, result, depth)
        return result

    def key(self, node: _Node, path: Path) -> str | None:
        mark = node.mark
        while node.alias is not None:
            node = node.alias
        if node.items is not None or node.pairs is not None:
            self.trap(mark, path, "a key is a list or a map", "write a plain word as the key; quote text with braces")
            return None
        if node.plain and not isinstance(scalars.resolve(node.text)[0], str):
            what = "the key is empty" if node.text == "" else f"the key `{node.text}` is not text"
            self.trap(mark, path, what, "write a name before the colon" if node.text == "" else f'quote it: "{node.text}"')
            return None
        if trap := scalars.text_trap(node.text):
            self.trap(mark, path, *trap)
            return None
        return node.text

    def merge(self, node: _Node, path: Path, result: dict[str, Any], depth: int) -> None:
        """``<<``: keys that the map itself does not have; of several maps the first wins."""
        mark = node.mark
        while node.alias is not None:
            node = node.alias
        if depth > MAX_DEPTH:
            raise _stop(self.file, mark, f"`<<` nested more than {MAX_DEPTH} deep", "write the values out", path)
        if node.items is not None:
            for item in node.items:
                self.left -= 1
                self.merge(item, path, result, depth + 1)
            return
        if node.pairs is None:
            self.trap(mark, path, "`<<` takes a map or a list of maps", "write `<<: *name` of an anchored map")
            return
        wanted = [pair for pair in node.pairs if not (pair[0].text in result and pair[0].text != "<<")]
        for name, value in self.mapping(wanted, path, depth + 1).items():
            result.setdefault(name, value)
