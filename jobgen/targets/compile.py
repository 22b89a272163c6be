"""The shell templates as plain functions, ``compiled.py``:  python -m jobgen.targets.compile

jinja2 reads the templates, here; filling them needs no jinja2, whose import takes a sixth of a render. The grammar is
what templates may hold: text, names, ``section()``, if, for and include. Anything else is refused.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, nodes

from jobgen.targets.template import checksum, folder

FILE = Path(__file__).with_name("compiled.py")


def names() -> tuple[str, ...]:
    """All templates."""
    root = folder()
    return tuple(sorted(path.relative_to(root).as_posix() for path in root.glob("*/*.j2")))


def text() -> str:
    """The module that holds a function a template."""
    found = names()
    functions = "".join(f"\n\n{function((folder() / name).read_text(encoding='utf-8'), name)}\n" for name in found)
    table = "".join(f'    "{name}": {_identifier(name)},\n' for name in found)
    return (
        '"""Generated from templates/ by `python -m jobgen.targets.compile`; do not edit."""\n\n'
        "# mypy: ignore-errors\n\n"
        f"CHECKSUM = {checksum(found)}\n"
        '"""Of the templates this was made from."""\n'
        f"{functions}\n\nTEMPLATES = {{\n{table}}}\n"
    )


def environment() -> Environment:
    """How the templates are read."""
    return Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        comment_start_string="{*", comment_end_string="*}",  # ``${#array[@]}`` is shell
    )  # fmt: skip


def function(source: str, name: str) -> str:
    """A template as a generator of its pieces: ``v`` holds the values, ``p`` prints one, ``s`` is ``section``."""
    return "\n".join([f"def {_identifier(name)}(v, p, s):", *_body(environment().parse(source, name).body, frozenset(), 1)])


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)


def _body(found: list[nodes.Node], loops: frozenset[str], depth: int) -> list[str]:
    """Statements; an empty body stays one."""
    return [line for node in found for line in _statement(node, loops, depth)] or ["    " * depth + "yield ''"]


def _statement(node: nodes.Node, loops: frozenset[str], depth: int) -> list[str]:
    pad = "    " * depth
    if isinstance(node, nodes.Output):
        return [
            f"{pad}yield {piece.data!r}" if isinstance(piece, nodes.TemplateData) else f"{pad}yield p({_expression(piece, loops)})"
            for piece in node.nodes
        ]
    if isinstance(node, nodes.If):
        lines = [f"{pad}if {_expression(node.test, loops)}:", *_body(node.body, loops, depth + 1)]
        for branch in node.elif_:
            lines += [f"{pad}elif {_expression(branch.test, loops)}:", *_body(branch.body, loops, depth + 1)]
        return [*lines, f"{pad}else:", *_body(node.else_, loops, depth + 1)] if node.else_ else lines
    if isinstance(node, nodes.For) and isinstance(node.target, nodes.Name) and not (node.else_ or node.test or node.recursive):
        head = f"{pad}for l_{node.target.name} in {_expression(node.iter, loops)}:"
        return [head, *_body(node.body, loops | {node.target.name}, depth + 1)]
    if isinstance(node, nodes.Include) and isinstance(node.template, nodes.Const) and not loops:
        return [f"{pad}yield from {_identifier(node.template.value)}(v, p, s)"]
    raise TypeError(f"line {node.lineno}: a template may not hold {type(node).__name__}")


def _expression(node: nodes.Node | None, loops: frozenset[str]) -> str:
    match node:
        case nodes.Name():
            return f"l_{node.name}" if node.name in loops else f"v[{node.name!r}]"
        case nodes.Getattr():
            return f"{_expression(node.node, loops)}.{node.attr}"
        case nodes.Const():
            return repr(node.value)
        case nodes.Not():
            return f"(not {_expression(node.node, loops)})"
        case nodes.And() | nodes.Or():
            word = "and" if isinstance(node, nodes.And) else "or"
            return f"({_expression(node.left, loops)} {word} {_expression(node.right, loops)})"
        case nodes.Compare(ops=[nodes.Operand(op="gt")]):
            return f"({_expression(node.expr, loops)} > {_expression(node.ops[0].expr, loops)})"
        case nodes.Call(node=nodes.Name(name="section"), kwargs=[], dyn_args=None, dyn_kwargs=None):
            return f"s({', '.join(_expression(each, loops) for each in node.args)})"
    raise TypeError(f"a template may not hold {type(node).__name__}")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
