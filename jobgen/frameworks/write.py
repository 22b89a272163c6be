"""From the spec to a framework's own configuration: files, arguments, environment and default command.

The user's file (``training.config``) is the base, ``training.options`` lies over it, and what the spec owns lies over
both; ``conflicts`` lists the owned keys that the user wrote too. Values that only the running job knows are
``Slot``s inside words; files hold none, so that their text is the same on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from jobgen.frameworks import formats, module_name
from jobgen.frameworks.config import NONE, Config
from jobgen.frameworks.table import Framework, Known, Nothing, Option, Slot, Text
from jobgen.frameworks.view import View
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec

CONFIG = "{config}"
"""In commands and arguments: the path of the framework's file."""


class Configured(NamedTuple):
    """What a framework needs to run this spec."""

    files: tuple[tuple[str, str], ...] = ()
    """(name, content) of files shipped in CONFIG_DIR."""
    args: tuple[Text, ...] = ()
    """Arguments of the program, before the user's ``launch.args``."""
    env: tuple[tuple[str, Text], ...] = ()
    command: tuple[Text, ...] | None = None
    """The program (with a launcher: what follows it, ``-m`` and a module or a script); the user's ``launch.command``
    with ``{config}`` filled in, else the framework's default; None when ``launch.entrypoint`` or ``module`` is the
    program or nothing is known."""
    launcher_args: tuple[Text, ...] = ()
    """Arguments of ``accelerate launch``, before the program."""
    resume_args: tuple[Text, ...] = ()
    """Further program arguments for an attempt that found a checkpoint (they hold ``Slot.RESUME_FROM``); left out
    when there is none."""
    config_file: str = ""
    """Name of the file that ``{config}`` stands for ('' without one)."""
    notes: tuple[str, ...] = ()
    """What a person should know: names chosen although the version is not known, keys left to the framework."""


class Conflict(NamedTuple):
    """A key that the spec owns and that the user wrote in the framework's words too."""

    path: str
    """The spec field."""
    key: str
    """The framework's key, as the user wrote it."""
    file: str
    """The configuration file; '' for ``training.options`` (its position is that of ``training.options.KEY``)."""
    line: int
    column: int
    ours: Any
    """The framework value that the spec makes; None when the spec leaves the field unset."""
    theirs: Any
    meant: Any
    """Their value in the spec's words (for the fix); None when this key alone does not say it."""
    agrees: bool
    """Both say the same; such a key keeps the user's spelling."""


def configure(
    spec: Spec,
    table: Framework,
    resolved: Mapping[str, Any] | None = None,
    versions: Mapping[str, Known] | None = None,
    config: Config = NONE,
) -> Configured:
    """The framework's configuration for a spec.

    ``resolved``: values that were decided elsewhere, by spec path (they win over the spec's), besides
    ``parallel.world|data|shard|nodes``, ``model.arch|hidden_size|layers|layer_class`` of the model and ``training.steps``, the
    estimate's number of them.
    ``versions``: what is known of each library. ``config``: ``training.config`` as ``read_config`` gave it.
    """
    view = View(spec, table, resolved or {}, versions or {})
    write: Callable[[View, Config], Configured] = getattr(_module(table), "configure", _nothing)
    done = write(view, config)
    command = done.command or _command(view)
    args = done.args or (() if command else _place_of_config(view, done))
    return done._replace(
        args=fill(args, done.config_file),
        command=None if command is None else fill(command, done.config_file),
        env=(*((name, (value,)) for name, value in table.environment), *done.env),
        notes=(*done.notes, *view.notes),
    )


def _module(table: Framework) -> Any:
    return import_module(f"jobgen.frameworks.{module_name(table.name)}")


def _nothing(view: View, config: Config) -> Configured:
    """A framework configured in Python only."""
    view.note(
        f"{view.table.name} is configured in Python: jobgen writes no file for it, the program must follow the spec"
    )
    return Configured()


def _command(view: View) -> tuple[Text, ...] | None:
    launch = view.spec.launch
    if launch.command is not None:
        return words(*launch.command)
    if launch.entrypoint is not None or launch.module is not None or not view.table.command:
        return None
    return words(*view.table.command)


def _place_of_config(view: View, done: Configured) -> tuple[Text, ...]:
    """The file as the framework's own program takes it, for the user's program in its place; nothing where the user
    passes ``{config}`` or a file of their own."""
    launch, usual = view.spec.launch, view.table.command
    own = any(word.endswith((".yaml", ".yml", ".json")) for word in launch.args)
    if not done.config_file or own or asks_for_config(view.spec) or CONFIG not in usual:
        return ()
    at = usual.index(CONFIG)
    return words(*usual[at - 1 if usual[at - 1].startswith("--") else at : at + 1])


def user_values(view: View, config: Config) -> dict[str, Any]:
    """The user's file with ``training.options`` over it."""
    return formats.merged(config.values, view.spec.training.options)


def laid_over(view: View, values: Mapping[str, Any], *files: str) -> dict[str, Any]:
    """The rows' values over the user's."""
    return formats.merged(values, view.values(*files, written=values))


def words(*given: str) -> tuple[Text, ...]:
    """Literal words."""
    return tuple((one,) for one in given)


def in_config_dir(name: str) -> Text:
    """The path of a shipped file."""
    return (Slot.CONFIG_DIR, "/" + name)


def fill(given: Sequence[Text], config_file: str) -> tuple[Text, ...]:
    """Words with ``{config}`` replaced by the path of the framework's file (as it is without one)."""
    if not config_file:
        return tuple(given)
    return tuple(_fill(word, config_file) for word in given)


def _fill(word: Text, config_file: str) -> Text:
    result: list[str | Slot] = []
    for part in word:
        if isinstance(part, Slot) or CONFIG not in part:
            result.append(part)
            continue
        first, *rest = part.split(CONFIG)
        result.append(first)
        for after in rest:
            result += [*in_config_dir(config_file), after]
    return tuple(part for part in result if part != "") or ("",)


def asks_for_config(spec: Spec) -> bool:
    """The user's command or arguments name ``{config}``."""
    launch = spec.launch
    return any(CONFIG in word for word in (*launch.args, *(launch.command or ())))


def conflicts(
    spec: Spec,
    table: Framework,
    resolved: Mapping[str, Any] | None = None,
    versions: Mapping[str, Known] | None = None,
    config: Config = NONE,
) -> Iterator[Conflict]:
    """Every owned key in ``training.options`` or the configuration file, whether it agrees with the spec or not."""
    view = View(spec, table, resolved or {}, versions or {})
    seen: set[tuple[str, str]] = set()
    for option in table.options:
        if option.objectives and spec.training.objective not in option.objectives:
            continue
        if option.file in ("env", "python"):
            continue
        for where, values in (("", spec.training.options), (config.file, config.values)):
            for key in _spellings(option):
                theirs = formats.at(values, key)
                if theirs is None or (where, key) in seen:
                    continue
                seen.add((where, key))
                yield _conflict(view, option, key, where, theirs, config)


def _spellings(option: Option) -> tuple[str, ...]:
    """Command-line options are written with or without dashes in front, with dashes or underscores inside."""
    if option.file != "cli" or "." in option.key:
        return (option.key,)
    bare = option.key.lstrip("-")
    return tuple(dict.fromkeys((option.key, bare, bare.replace("-", "_"), "--" + bare, "--" + bare.replace("-", "_"))))


def _conflict(view: View, option: Option, key: str, where: str, theirs: Any, config: Config) -> Conflict:
    ours = view.encoded(option)
    meant = option.codec.decode(theirs)
    line, column = config.place(key) if where else (0, 0)
    return Conflict(
        option.field, key, where, line, column, None if ours is Nothing.ABSENT else ours, theirs,
        None if isinstance(meant, Nothing) else meant, view[option.field] is not None and view.means(option, theirs),
    )  # fmt: skip
