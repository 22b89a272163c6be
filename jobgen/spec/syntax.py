"""The YAML parser's complaints in plain words."""

from __future__ import annotations

from typing import Any

_WORDS = (
    ("mapping values are not allowed", "a second `: ` on this line, or a line indented deeper than its key",
     "start a new line for the key, or quote a text that holds `: `"),
    ("could not find expected ':'", "this line has no `: ` after its key", "write `key: value`"),
    ("expected <block end>", "the indentation does not match the lines above", "indent it like the keys beside it"),
    ("expected ',' or ']'", "a `[` list is not closed or a comma is missing", "write the comma or the closing `]`"),
    ("expected ',' or '}'", "a `{` map is not closed or a comma is missing", "write the comma or the closing `}`"),
    ("unexpected end of stream", "a quoted text is not closed", "add the closing quote"),
    ("document separator", "a quoted text is not closed before `---` or `...`", "add the closing quote"),
    ("sequence entries are not allowed", "a `- ` entry cannot stand here", "put the list on its own lines under the key"),
    ("unknown escape character", "a backslash in double quotes that stands for no character",
     "use single quotes, or write two backslashes"),
    ("cannot start any token", "a value cannot start with this character", "quote the value"),
    ("expected the node content", "a value is missing or starts with a character that means something to YAML",
     "write the value, or quote it"),
    ("undefined tag handle", "a tag is not allowed: a spec is plain data", "remove the tag, or quote the text"),
    ("non-comment content after document end", "text after the end of the document", "remove `...`"),
    ("expected '<document start>'", "text where the document has ended", "indent it as part of the spec, or remove it"),
    ("expected a comment or a line break", "text after the `|` or `>` of a block", "start the block's text on the next line"),
    ("incompatible YAML document", "this file asks for another YAML version", "remove the %YAML line"),
)  # fmt: skip


def explain(error: Exception, text: str, reached: tuple[int, int]) -> tuple[int, int, str, str]:
    """Line, column, message and fix of an exception of the parser."""
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else reached
    lines = text.split("\n")
    line = min(max(line, 1), len(lines))
    column = max(column, 1)
    content = lines[line - 1]
    indent = content[: len(content) - len(content.lstrip())]
    if "\t" in indent:
        return (line, indent.index("\t") + 1, "a tab indents this line; YAML allows spaces only",
                "replace the tab with spaces")  # fmt: skip
    if content[column - 1 : column] == "\t":
        return line, column, "a tab stands where YAML allows spaces only", "replace the tab with a space"
    problem = " ".join(str(getattr(error, "problem", None) or "").split())
    for words, message, fix in _WORDS:
        if words in problem:
            opened = getattr(error, "context_mark", None)
            if opened is not None and "not closed" in message:
                if not any(lines[mark.line :]):  # the end of the text shows nothing
                    return opened.line + 1, opened.column + 1, message, fix
                if opened.line + 1 != line:
                    message += f"; it opens at line {opened.line + 1}"
            return line, column, message, fix
    return line, column, f"this is not YAML{': ' + problem if problem else ''}", "correct the text around this place"
