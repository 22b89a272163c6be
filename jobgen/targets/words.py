"""Text to shell: one function per language that quotes, and a type that proves it was called.

A template may print nothing but ``Shell``; ``template`` refuses everything else. Only this module makes one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from jobgen.launch.job import RunTime, Unrenderable, Word
from jobgen.spec.record import NamedTuple

LONGEST = 131_071
"""Bytes of one argument or ``NAME=value`` that Linux hands to a program (MAX_ARG_STRLEN less the final NUL)."""

NAMES = {
    RunTime.MASTER_ADDR: "MASTER_ADDR",
    RunTime.MASTER_PORT: "MASTER_PORT",
    RunTime.NODE_RANK: "NODE_RANK",
    RunTime.RANK: "RANK",
    RunTime.LOCAL_RANK: "LOCAL_RANK",
    RunTime.JOB_ID: "JOBGEN_JOB_ID",
    RunTime.ATTEMPT: "JOBGEN_ATTEMPT",
    RunTime.HOST_ADDR: "JOBGEN_HOST_ADDR",
    RunTime.CONFIG_DIR: "JOBGEN_CONFIG_DIR",
    RunTime.RESUME_FROM: "JOBGEN_RESUME_FROM",
}
"""The shell variable of each run-time value."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+:./-]+|-[A-Za-z0-9_@%+:./=-]+", re.ASCII)
"""Text that bash and sbatch take as it is, in any place; ``=`` only in options, since ``A=b`` first is an assignment."""
_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
    "function", "time", "coproc", "{", "}", "!", "[[", "]]",
})  # fmt: skip
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


class Shell(NamedTuple):
    """Text that bash reads as what was meant, and the spec field that made it. Made by this module only."""

    text: str
    origin: str = ""

    def by(self, origin: str) -> Shell:
        """The same text, made by another field."""
        return Shell(self.text, origin)


class Unquotable(ValueError):
    """Text that no argument or variable can hold."""


def quote(text: str, origin: str = "") -> Shell:
    """One word that bash reads back as exactly this text. It never spans lines: control characters are escaped."""
    if _IMPOSSIBLE.search(text):
        raise Unquotable("holds a NUL or half of a surrogate pair, which no argument or variable can carry")
    if _PLAIN.fullmatch(text):
        return Shell(text, origin)
    if _CONTROL.search(text):
        return Shell("$'" + re.sub(r"[\x01-\x1f\x7f'\\]", _escaped, text) + "'", origin)
    return Shell("'" + text.replace("'", "'\\''") + "'", origin)


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    return _ESCAPES.get(char) or f"\\{ord(char):03o}"


def shell(word: Word) -> Shell:
    """A typed word: literals quoted, run-time values as ``"$NAME"``."""
    check_length(word)
    parts, literal = list[str](), ""
    try:
        for part in (*word.parts, None):
            if isinstance(part, str) and not isinstance(part, RunTime):
                literal += part
                continue
            parts += [quote(literal).text] if literal else []
            parts += [f'"${NAMES[part]}"'] if part is not None else []
            literal = ""
    except Unquotable as reason:
        raise Unrenderable(word.origin, f"the value {reason}", "remove that character") from None
    return Shell("".join(parts) or "''", word.origin)


def check_length(word: Word, name: str = "") -> None:
    """Refuse what the kernel would refuse at the start of the program."""
    size = len(name) + 1 + sum(len(part.encode("utf-8", "surrogatepass")) for part in word.parts)
    if size > LONGEST:
        raise Unrenderable(
            word.origin, f"{size} bytes are more than one argument or variable may hold ({LONGEST})",
            "put it in a file (launch.code: {files: [...]}) and pass the file's name",
        )  # fmt: skip


def program(words: Iterable[Word]) -> tuple[Shell, ...]:
    """The words of a command; the first is never read as a keyword or an assignment."""
    first, *rest = map(shell, words)
    if first.text in _KEYWORDS:
        first = Shell(f"'{first.text}'", first.origin)
    return (first, *rest)


def assignment(name: str, value: Word) -> Shell:
    """``NAME=value``; the name was checked to be one."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise Unrenderable(value.origin, f"{name!r} is not the name of a variable", "use letters, digits and _ only")
    check_length(value, name)
    return Shell(f"{name}={shell(value).text}", value.origin)


def joined(words: Iterable[Shell], origin: str = "") -> Shell:
    """Words on one line."""
    words = tuple(words)
    return Shell(" ".join(word.text for word in words), origin or next((w.origin for w in words if w.origin), ""))


def constant(text: str, origin: str = "") -> Shell:
    """Shell text written in jobgen's own source (``"$JOB_DIR"/program.sh``): never a user's value."""
    return Shell(text, origin)


def lines(texts: Iterable[str], origin: str) -> tuple[Shell, ...]:
    """The user's own shell lines, as they are where the rest of the script survives them, else as one ``eval``."""
    texts = tuple(texts)
    whole = "\n".join(texts)
    try:
        evaluated = quote(whole).text
    except Unquotable as reason:
        raise Unrenderable(origin, f"the lines hold what {reason}", "remove that character") from None
    if not texts:
        return ()
    if _stands_alone(whole):
        return tuple(Shell(text, f"{origin}.{index}") for index, text in enumerate(texts))
    return (Shell(f"eval {evaluated}", origin),)


def _stands_alone(text: str) -> bool:
    """Whether these lines can't swallow what follows them: quotes, brackets and compound commands closed, no
    here-document, no operator at the end that waits for another command."""
    if "<<" in text or "\r" in text or text.endswith("\\") or _CONTROL.search(text.replace("\n", "").replace("\t", "")):
        return False
    quoted, depth, index, bare = "", 0, 0, list[str]()
    while index < len(text):
        char = text[index]
        if char == "\\" and quoted != "'":
            index += 1
            bare.append("x")
        elif quoted:
            if char == quoted:
                quoted = ""
            elif char == "`" or text.startswith("$(", index):
                return False
        elif char in "'\"":
            quoted = char
            bare.append("x")
        elif char == "`":
            return False
        elif char == "#" and (index == 0 or text[index - 1] in " \t\n;"):
            index = text.find("\n", index) if "\n" in text[index:] else len(text)
            continue
        elif char in "({":
            depth += 1
            bare.append(char)
        elif char in ")}":
            depth -= 1
            if depth < 0:
                return False
            bare.append(char)
        else:
            bare.append(char)
        index += 1
    return not quoted and depth == 0 and _complete("".join(bare))


def _complete(bare: str) -> bool:
    """Every compound command is closed, and nothing waits for a command. ``bare``: without quoted texts and comments."""
    words = Counter(re.findall(r"[^\s;&|()]+", bare))
    pairs = (("if", "fi"), ("case", "esac"), ("do", "done"), ("[[", "]]"))
    loops = words["for"] + words["while"] + words["until"]
    if any(words[opened] != words[closed] for opened, closed in pairs) or loops != words["do"]:
        return False
    if words.keys() & {"function", "coproc", "select"}:
        return False
    if re.search(r"(?:^|\n)\s*[|&;]|;[;&]", bare):
        return False  # no command where one is due: alone it is the user's mistake, among other lines everyone's
    return not bare.rstrip().endswith(("|", "&&", "|&", "()"))
