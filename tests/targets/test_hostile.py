"""No value of any text field changes on its way, or adds a directive, a YAML key or a command: it arrives or is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import hostile
import sandbox
from hostile import CONTEXTS, KUBERNETES, SLOTS, TARGETS, Slot

from jobgen.spec.fields import ROOT, Kind, fields, options
from jobgen.spec.models import Model

MANY = os.environ.get("JOBGEN_CLUSTER") == "1"
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
TEXT = st.one_of(st.sampled_from(hostile.TEXTS), ANY, st.tuples(st.sampled_from(hostile.TEXTS), ANY).map("".join))


# Completeness --------------------------------------------------------------------------------------------------------


def text_fields(kind: Kind, prefix: str) -> Iterator[str]:
    """Every place of a spec that holds text; ``*`` is a map's value, KEY its key, ``-`` a list's entry."""
    for branch in options(kind):
        annotation, origin = branch.annotation, typing.get_origin(branch.annotation)
        if isinstance(annotation, type) and issubclass(annotation, Model):
            for name, info in fields(annotation).items():
                yield from text_fields(Kind(info.annotation, tuple(info.metadata)), f"{prefix}.{name}")
        elif origin is list:
            yield from text_fields(Kind(typing.get_args(annotation)[0]), f"{prefix}.-")
        elif origin is dict:
            yield f"{prefix}.KEY"
            yield from text_fields(Kind(typing.get_args(annotation)[1]), f"{prefix}.*")
        elif annotation in (str, typing.Any):
            yield prefix


def shape(slot: Slot) -> str:
    """A slot's path as ``text_fields`` writes it."""
    found, maps = "", {"options", "versions", "env", "extra", "node_selector", "labels", "annotations", "extra_resources", "security_context", "grid", "zip", "vary"}
    above = hostile.parts(slot.path)
    for index, part in enumerate(above):
        before = above[index - 1] if index else ""
        in_map = before in maps or (before == "0" and above[index - 2] in ("tolerations", "list"))
        if in_map and slot.key and "{}" in part:
            return f"{found}.KEY"
        found += ".*" if in_map else ".-" if part.isdecimal() else f".{part}"
    return found


def test_every_text_field_has_a_slot() -> None:
    assert set(text_fields(ROOT, "")) - {shape(slot) for slot in SLOTS} == set()


# One field at a time -------------------------------------------------------------------------------------------------


def slots(target: str, context: str) -> list[tuple[int, Slot]]:
    return [(number, slot) for number, slot in enumerate(SLOTS) if target in slot.targets and (not slot.contexts or context in slot.contexts)]


def spec(target: str, context: str, place: Path, texts: dict[int, str]) -> dict[str, Any]:
    made = hostile.base(target, context, place)
    for number, text in texts.items():
        hostile.put(made, SLOTS[number], text, place)
    return made


def harmless(place: Path, target: str, context: str) -> dict[int, str]:
    """As many slots as go together, with their tokens."""
    found: dict[int, str] = {}
    for number, slot in slots(target, context):
        sandbox.provide(slot, hostile.token(number), place)
        more = {**found, number: hostile.token(number)}
        if isinstance(hostile.render(spec(target, context, place, more), target, place), str):
            found = more
    return found


def changed_on_purpose(slot: Slot, text: str, target: str) -> bool:
    """What the documentation says is written in another way."""
    match slot.path:
        case "training.options.[{}]":  # dots are maps in maps; a command line's option is written with - or _, with or without --
            return text.startswith("-") or "." in text or "_" in text
        case "launch.code.files.0":  # a ConfigMap has another key for it and mounts it under its name
            return not re.fullmatch(r"[\w.-]+", text, re.ASCII)
        case "volumes.2.path":  # what may be a file is not asked to be a folder
            return target in KUBERNETES and Path(hostile.one_name(text)).suffix != ""
        case "name":  # objects are called by the lower case of it
            return target in KUBERNETES and not re.fullmatch("[a-z0-9]+", text, re.ASCII)
    return slot.path.startswith(("launch.args.", "launch.command.")) and "{config}" in text  # the framework's file


def taken(place: Path, target: str, context: str, texts: dict[int, str]) -> dict[int, str]:
    """Slots that take their text alone; the others are refused with a reason."""
    found = {}
    for number, text in texts.items():
        if changed_on_purpose(SLOTS[number], text, target):
            continue
        try:
            sandbox.provide(SLOTS[number], text, place)
        except (OSError, ValueError):
            continue  # no such folder can be, whatever jobgen says
        made = hostile.render(spec(target, context, place, {number: text}), target, place)
        if isinstance(made, str):
            found[number] = text
        else:
            assert made and all(len(reason) > 10 for reason in made), (SLOTS[number].path, text)
    return found


# All fields together -------------------------------------------------------------------------------------------------


def substituted(node: Any, texts: dict[int, str]) -> Any:
    """A tree with the tokens replaced by the texts, keys too."""
    if isinstance(node, str):
        for number, text in texts.items():
            if SLOTS[number].one_name:
                text = hostile.one_name(text)
            node = node.replace(hostile.token(number), text)
        return node
    if isinstance(node, dict):
        return {substituted(key, texts): substituted(value, texts) for key, value in node.items()}
    return [substituted(value, texts) for value in node] if isinstance(node, list | tuple) else node


def objects(manifest: str) -> Any:
    """The objects as Kubernetes has them after expansion, and files as what they say; scripts are judged by running them."""
    found = sandbox.documents(manifest)
    for template in sandbox.templates(found):
        one = template["spec"]["containers"][0]
        one["command"][2] = "script"
        seen: dict[str, str] = {}
        for entry in one["env"]:
            if "value" in entry:
                entry["value"] = seen[entry["name"]] = sandbox.expand(entry["value"], seen)
    for item in found:
        if item["kind"] == "ConfigMap":
            item["data"] = sandbox.parsed(item["data"])
    return found


def directives(script: str) -> list[tuple[str, str | None]]:
    """The directives as sbatch reads them."""
    import shlex

    found: list[tuple[str, str | None]] = []
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            (word,) = shlex.split(line[len("#SBATCH") :])
            name, equals, value = word.removeprefix("--").partition("=")
            if name == "output":  # %% is a percent sign in a log's name
                folder, slash, pattern = value.rpartition("/")
                value = folder.replace("%%", "%") + slash + pattern
            found.append((name, value if equals else None))
        elif line and not line.startswith("#"):
            break
    assert sum(line.startswith("#SBATCH") for line in script.split("\n")) >= len(found)
    return found


def compare(target: str, context: str, place: Path, texts: dict[int, str]) -> int:
    """Render and run with tokens and with texts: the same but for the texts. The number of texts that arrived."""
    plain, nasty = (spec(target, context, place, chosen) for chosen in ({number: hostile.token(number) for number in texts}, texts))
    expected, made = hostile.render(plain, target, place), hostile.render(nasty, target, place)
    assert isinstance(expected, str), expected
    if not isinstance(made, str):
        assert made
        return 0  # each alone is taken, together they are too long
    if target in KUBERNETES:
        same(objects(made), substituted(objects(expected), texts))
    if target == "slurm":
        same(directives(made), substituted(directives(expected), texts))
    before = sandbox.run(target, expected, place, secrets(plain))
    assert before.status == 0, before.said
    after = sandbox.run(target, made, place, secrets(nasty))
    assert list(place.rglob("pwned")) == []
    assert after.status == 0, after.said
    same(after.calls, substituted(before.calls, texts))
    same(sandbox.parsed(after.files), substituted(sandbox.parsed(before.files), texts))
    return len(texts)


def same(found: Any, wanted: Any) -> None:
    """Equal, or the first difference is the message."""
    if wrong := sandbox.difference(found, wanted):
        raise AssertionError(wrong)


def secrets(made: dict[str, Any]) -> tuple[str, ...]:
    """Names of a spec's secrets."""
    return tuple(made["launch"].get("secrets", ()))


class Place(NamedTuple):
    """A sandbox, and the slots that go together in one spec of a target and context."""

    folder: Path
    tokens: dict[int, str]


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Place]:
    @cache
    def find(target: str, context: str) -> Place:
        folder = sandbox.sandbox(tmp_path_factory.mktemp("hostile") / "s")
        return Place(folder, harmless(folder, target, context))

    return find


def together(places: Callable[[str, str], Place], target: str, context: str, texts: Callable[[int], str]) -> tuple[int, int]:
    """One spec with a text in each slot that takes it: numbers of values tried and arrived; the others were refused."""
    place = places(target, context)
    chosen = {number: texts(number) for number in place.tokens}
    return len(chosen), compare(target, context, place.folder, taken(place.folder, target, context, chosen))


PAIRS = [(target, context) for target in TARGETS for context in CONTEXTS if context not in hostile.SWEEPS]
QUICK = PAIRS[::7]
"""Every target and most contexts; all of them where the clusters are tested."""


@pytest.mark.parametrize(("target", "context"), PAIRS if MANY else QUICK)
def test_values_arrive_as_they_are_or_are_refused(places: Callable[[str, str], Place], target: str, context: str) -> None:
    """The written texts, each in another field every time."""
    count, tried, arrived = len(hostile.TEXTS), 0, 0
    first = PAIRS.index((target, context))
    for start in range(first, first + count, 50 if MANY else 60):
        more = together(places, target, context, lambda number, start=start: hostile.TEXTS[(start + number * 7) % count])  # type: ignore[misc]
        tried, arrived = tried + more[0], arrived + more[1]
    say(f"hostile values, {target} {context}: {tried} tried, {arrived} arrived byte for byte, {tried - arrived} refused with a reason")
    assert arrived


@settings(max_examples=60 if MANY else 3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], derandomize=True)
@given(pair=st.sampled_from(PAIRS), texts=st.lists(TEXT, min_size=8, max_size=8))
def test_any_value_arrives_as_it_is_or_is_refused(places: Callable[[str, str], Place], pair: tuple[str, str], texts: list[str]) -> None:
    together(places, *pair, lambda number: texts[number % len(texts)])


@pytest.mark.parametrize("target", ["slurm", "k8s", "local"])
def test_values_of_64_kib_arrive(places: Callable[[str, str], Place], target: str) -> None:
    paths = ("launch.args.0", "launch.args.1", "launch.env.FIRST")
    place = places(target, "script")
    chosen = {number: hostile.LONG for number in place.tokens if SLOTS[number].path in paths[: 1 if target in KUBERNETES else 3]}
    assert compare(target, "script", place.folder, chosen) == len(chosen) > 0


@pytest.mark.parametrize("context", hostile.SWEEPS)
@pytest.mark.parametrize("target", ["slurm", "jobset", "local"])
def test_values_of_a_sweep_arrive(target: str, context: str, tmp_path: Path) -> None:
    """Names and folders of the points are made from them, in words that every target takes."""
    place = sandbox.sandbox(tmp_path / "s")
    number = next(n for n, slot in slots(target, context) if slot.path.endswith(("[launch.env.SWEPT].0", "[launch.env.SWEPT]")))
    for text in hostile.TEXTS[:: 3 if MANY else 25]:
        made = hostile.render(spec(target, context, place, {number: text}), target, place)
        if not isinstance(made, str):
            assert made
            continue
        done = sandbox.run(target, made, place)
        assert (done.status, list(place.rglob("pwned"))) == (0, []), done.said
        assert [call[2]["SWEPT"] for call in done.calls if "SWEPT" in call[2]] == [text]


def say(line: str) -> None:
    """Figures go to the report even when tests pass."""
    print(line)
    if path := os.environ.get("JOBGEN_FIGURES"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


REFUSED = {
    "an entrypoint that python reads as an option": ("script", "slurm", {"launch": {"entrypoint": "-c"}}, "launch.entrypoint"),
    "a module that is an option": ("module", "local", {"launch": {"module": "-h"}}, "launch.module"),
    "a command that exec reads as an option": ("command", "k8s", {"launch": {"command": ["-a", "x"]}}, "launch.command.0"),
    "an environment that conda reads as an option": ("script", "slurm", {"launch": {"python": {"conda": "-n"}}}, "launch.python.conda"),
    "a colon in PATH": ("script", "jobset", {"launch": {"python": {"venv": "/a:/b"}}}, "launch.python.venv"),
    "an image that apptainer reads as an option": ("command", "slurm", {"launch": {"image": "--writable"}}, "launch.image"),
    "a program for srun": ("script", "slurm", {"slurm": {"srun_args": ["touch"]}}, "slurm.srun_args.0"),
    "more named nodes than the job has": ("script", "slurm", {"slurm": {"extra": {"nodelist": "node[1-4]"}}}, "slurm.extra.nodelist"),
    "a directive that would be expanded": ("script", "slurm", {"slurm": {"partition": "$HOME"}}, "slurm.partition"),
    "a directive of two lines": ("script", "slurm", {"slurm": {"qos": "a\n#SBATCH --nodes=9"}}, "slurm.qos"),
    "an argument of 128 KiB": ("script", "slurm", {"launch": {"args": ["a" * 131_072]}}, "launch.args.0"),
    "a variable of 128 KiB": ("script", "k8s", {"launch": {"env": {"A": "a" * 131_072}}}, "launch.env.A"),
    "a label's value": ("script", "trainjob", {"kubernetes": {"labels": {"a": "b c"}}}, "kubernetes.labels.a"),
    "a NUL": ("script", "slurm", {"launch": {"args": ["a\0b"]}}, "launch.args.0"),
    "half of a surrogate pair": ("script", "k8s", {"launch": {"args": ["a\ud800b"]}}, "launch.args.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_command_line_refuses_with_the_reason(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``jobgen check --target T`` ends with 1 or 2 and names the field; no traceback."""
    import json

    from jobgen.cli import main

    context, target, edits, path = REFUSED[name]
    made = hostile.base(target, context, tmp_path)
    for section, values in edits.items():
        made[section] |= values
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(made), encoding="utf-8")
    status = main(["check", str(file), "--target", target])
    said = "".join(capfd.readouterr())
    assert status in (1, 2), said
    assert path in said and "Traceback" not in said and "JG999" not in said


LINES = st.lists(st.one_of(TEXT, st.sampled_from(["true &&", "x ||", "cat |", "if true; then", "fi", "for x in a; do", "f()", "case x in", "! ", "done &&  # why"])), min_size=1, max_size=3)  # fmt: skip


@settings(max_examples=200 if MANY else 40, deadline=None)
@given(texts=LINES)
def test_shell_lines_cannot_take_what_follows(texts: list[str]) -> None:
    """Whatever a user's lines hold, jobgen's next command is still a command of its own."""
    from jobgen.launch.job import Unrenderable
    from jobgen.targets.words import lines

    try:
        made = lines(texts, "launch.setup")
    except Unrenderable as refused:
        assert refused.why
        return
    mine = "".join(f"{one.text}\n" for one in made)
    if not mine.startswith("eval "):  # they stand as they are: then bash takes them alone, and what follows after them
        script = "f() {\nfalse\n" + mine + "}\n"
        alone, followed = (subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False).returncode for text in (script, script + "echo\n"))
        assert alone == followed  # a mistake of their own stops the whole script, whatever comes after
        return
    done = subprocess.run(["bash", "--restricted", "-c", f"f() {{\n:\n}}\n{'true ' + mine}\necho END"], capture_output=True, check=False)
    assert done.stdout.endswith(b"END\n"), done


@pytest.mark.parametrize(("names", "count"), [("node1", 1), ("a,b", 2), ("node[1-4]", 4), ("a[1-2,5]-ib,b", 4), ("r[1-2]n[001-003]", 6), ("n[x]", 0)])
def test_node_lists_are_counted(names: str, count: int) -> None:
    """sbatch: "invalid number of nodes (-N 4-1)" for a list longer than the job."""
    from jobgen.targets.directives import hosts

    assert hosts(names) == count


def test_the_api_server_which_reads_yaml_reads_what_was_sent() -> None:
    """An applied object is parsed as YAML there, which has no surrogate pairs: an emoji in an argument was refused."""
    import yaml

    from jobgen.schedulers.kube_api import encoded

    body = {"texts": hostile.TEXTS, "keys": dict.fromkeys(hostile.TEXTS, 1)}
    assert yaml.load(encoded(body).decode(), yaml.CSafeLoader) == body
