"""The command line: thin, one function a command, each importing only what it needs.

Results go to standard output, all else to standard error. Exit status: 0 done; 1 refused; 2 the spec or the call
cannot be read; 3 the scheduler said no or could not be reached; 4 the job failed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jobgen import __version__

if TYPE_CHECKING:
    from jobgen.api import Document, Report

DONE, REFUSED, UNREADABLE, SCHEDULER, FAILED = range(5)
TARGETS = ("slurm", "k8s", "trainjob", "jobset", "hosts", "local")


class Unusable(Exception):
    """A call that cannot be carried out as written (exit status 2)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] | None = getattr(options, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return UNREADABLE
    if sys.stdout is None:
        _say("jobgen: standard output is closed")
        return UNREADABLE
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # artifacts and JSON, whatever the locale
    try:
        status = command(options)
        _flush()
        return status
    except BrokenPipeError:  # only a log that is followed: what else is printed has a status of its own
        _drop_output()
        return DONE
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except Exception as error:
        return _explained(error)


def _flush() -> None:
    """A reader that has gone (``| head``) changes nothing about what the command found."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def _drop_output() -> None:
    """What is still buffered goes nowhere, so that Python's own flush at exit has nothing to fail on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> int:
    """The message and exit status of what a command raises on purpose; anything else is a bug and is shown whole."""
    from jobgen.api import Refused, SpecError

    if isinstance(error, SpecError):
        from jobgen.show.findings import problems

        _say(problems(error.problems, error.sources))
        return UNREADABLE
    if isinstance(error, Refused):
        from jobgen.show.findings import text

        _say(text(error.report))
        return REFUSED
    if isinstance(error, Unusable):
        _say(f"jobgen: {error}")
        return UNREADABLE
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF) and error.filename is None:
        _say(f"jobgen: cannot write the output: {error.strerror}")
        _drop_output()
        return UNREADABLE
    status = getattr(error, "exit_status", None)
    if isinstance(status, int):
        _say(f"jobgen: {error}")
        return status
    raise error


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _print(message: str) -> None:
    try:
        sys.stdout.write(message if message.endswith("\n") else message + "\n")
    except BrokenPipeError:
        _drop_output()


def _load(options: argparse.Namespace) -> Document:
    return _read(options, options.spec)


def _read(options: argparse.Namespace, spec: str) -> Document:
    from jobgen.api import read

    if spec == "-" and sys.stdin is None:
        raise Unusable("standard input is closed")
    return read(spec, options.set, sys.stdin.buffer if spec == "-" else None)


def _environment(options: argparse.Namespace) -> dict[str, str] | None:
    if options.env is None:
        return None
    from jobgen.effective.environment import UnreadableEnvironment, read_environment

    try:
        return read_environment(options.env)
    except UnreadableEnvironment as error:
        raise Unusable(str(error)) from None


def _check(options: argparse.Namespace) -> int:
    from jobgen.api import SpecError, check, unreadable
    from jobgen.show import findings

    environment = _environment(options)
    selected, ignored = _codes(options.select), _codes(options.ignore)
    reports: list[Report] = []
    status = DONE
    for spec in options.spec:
        try:
            report = check(
                _read(options, spec), target=options.target, environment=environment,
                select=selected, ignore=ignored,
            )  # fmt: skip
        except SpecError as error:
            report = unreadable(spec, error)
            if options.format == "text":
                _say(findings.problems(error.problems, error.sources))
            status = UNREADABLE
        else:
            if options.format == "text":
                _print(findings.text(report))
            if status == DONE and (report.refused or (options.strict and report.warned)):
                status = REFUSED
        reports.append(report)
        if options.format == "json":
            _print(findings.as_json(report))
        elif options.format == "github" and report.findings:
            _print(findings.github(report))
    if options.format == "sarif":
        _print(findings.sarif(reports))
    return status


def _codes(written: Sequence[str]) -> tuple[str, ...]:
    """Codes or their beginnings; one that no rule has would select nothing without a word."""
    found = tuple(code.strip().upper() for item in written for code in item.split(",") if code.strip())
    if found:
        from jobgen.checks.registry import rules

        for code in found:
            if not any(known.startswith(code) for known in rules()):
                raise Unusable(f"no rule has a code that begins with {code!r} (jobgen explain --all lists them)")
    return found


def _show(options: argparse.Namespace) -> int:
    from jobgen.show.spec import as_json, text

    document = _load(options)
    _print(as_json(document) if options.format == "json" else text(document))
    return DONE


def _estimate(options: argparse.Namespace) -> int:
    from jobgen.api import largest, levers

    if options.plot:
        from jobgen.show.plot import ready

        ready(options.plot)  # what cannot be drawn is said before anything is printed
    written, environment = _load(options), _environment(options)
    document, result = largest(written, environment=environment)
    if written.spec.sweep is not None:
        _say(f"jobgen: a sweep; this is {document.spec.name}, which needs most GPU memory")
    if result.gpu.capacity == float("inf"):
        _say(f"jobgen: no GPU {document.spec.resources.gpu.name!r} in the catalogue and no memory given, so there is no verdict (jobgen gpus lists them)")
    if options.format == "json":
        import json

        from jobgen.physics.estimate import estimate_json

        _print(json.dumps(estimate_json(result, options.spec), ensure_ascii=False))
    else:
        from jobgen.show.estimate import text

        _print(text(result, levers(document, result, environment=environment)))
    if options.plot:
        from jobgen.show.plot import write

        write(result, options.plot)
    return DONE


def _judge_node_rank(document: Document, options: argparse.Namespace) -> None:
    """``--node-rank`` names one of the hosts of target hosts."""
    if options.node_rank is None:
        return
    nodes = document.spec.resources.nodes
    if (options.target or document.spec.target) != "hosts":
        raise Unusable("--node-rank belongs to --target hosts: elsewhere the scheduler numbers the nodes")
    if not 0 <= options.node_rank < nodes:
        raise Unusable(f"--node-rank {options.node_rank}: resources.nodes is {nodes}, so ranks go from 0 to {nodes - 1}")


def _render(options: argparse.Namespace) -> int:
    from jobgen.api import points, render, target_of

    document = _load(options)
    if document.spec.sweep is not None and target_of(document, options.target) in ("k8s", "trainjob", "jobset") and not options.explain:
        every = [render(point, target=options.target) for point in points(document)]
        artifact = every[0]._replace(text="".join(one.text for one in every))
    else:
        _judge_node_rank(document, options)
        artifact = render(document, target=options.target, node_rank=options.node_rank)
    if options.explain:
        from jobgen.show.explain import artifact as explained

        _print(explained(artifact))
        return DONE
    if options.output in (None, "-"):
        _print(artifact.text)
        return DONE
    _write(options.output, artifact.text, executable=artifact.text.startswith("#!"))
    _say(f"wrote {options.output}")
    return DONE


def _write(path: str, text: str, *, executable: bool) -> None:
    """Replace a file at once, so that it is never half-written; a link keeps pointing to it. A pipe or a device is
    written to: replacing /dev/null would take it from the whole machine."""
    import tempfile

    real = os.path.realpath(path) if path else path
    try:
        if path.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8", newline="\n") as sink:
                sink.write(text)
            return
        if os.path.exists(real) and not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(real)), prefix=".jobgen-")
    except OSError as error:
        raise Unusable(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as sink:
            sink.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, (0o777 if executable else 0o666) & ~mask)
        os.replace(temporary, real)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise Unusable(f"cannot write {path}: {error.strerror}") from None
        raise


def _submit(options: argparse.Namespace) -> int:
    from jobgen.api import points, submission, submit, target_of
    from jobgen.schedulers.submit import scheduler

    document = _load(options)
    if options.dry_run:
        service = scheduler(target_of(document, options.target))
        for point in points(document):
            wanted = submission(point, target=options.target, new=options.new)
            if options.dry_run == "client":
                _say(f"would run: {service.command(wanted)}")
                _print(wanted.artifact.text)
            else:
                _say(service.try_out(wanted, _say))
        return DONE
    sent = submit(document, target=options.target, new=options.new, say=_say)
    for receipt in sent:
        _print(receipt.handle)
    _flush()
    if not options.watch:
        return DONE
    from jobgen.schedulers.follow import watch

    ends = [watch(receipt, out=sys.stderr, say=_say) for receipt in sent]
    return DONE if all(end.phase == "succeeded" for end in ends) else FAILED


def _status(options: argparse.Namespace) -> int:
    from jobgen.schedulers import follow
    from jobgen.show import jobs

    receipt, found = follow.status(options.handle)
    _print(jobs.as_json(receipt, found) if options.format == "json" else jobs.text(receipt, found))
    return FAILED if found.phase in ("failed", "cancelled") else DONE


def _logs(options: argparse.Namespace) -> int:
    from jobgen.schedulers import follow

    follow.logs(options.handle, follow=options.follow, rank=options.rank, out=sys.stdout, say=_say)
    return DONE


def _cancel(options: argparse.Namespace) -> int:
    from jobgen.schedulers import follow

    _say(follow.cancel(options.handle, _say))
    return DONE


def _list(options: argparse.Namespace) -> int:
    from jobgen.schedulers import follow, receipts
    from jobgen.show import jobs

    found = follow.listing()
    for reason in receipts.broken():
        _say(f"jobgen: {reason}")
    if options.format == "json":
        for receipt, status in found:
            _print(jobs.as_json(receipt, status))
    else:
        _print(jobs.listing(found))
    return DONE


def _schema(options: argparse.Namespace) -> int:
    import json

    from jobgen.spec.schema import schema

    _print(json.dumps(schema(), indent=2, ensure_ascii=False))
    return DONE


def _models(options: argparse.Namespace) -> int:
    from jobgen.show import catalog

    _print(catalog.models(options.model, as_json=options.format == "json"))
    return DONE


def _gpus(options: argparse.Namespace) -> int:
    from jobgen.show import catalog

    _print(catalog.gpus(as_json=options.format == "json"))
    return DONE


def _versions(options: argparse.Namespace) -> int:
    from jobgen.show import catalog

    _print(catalog.versions(as_json=options.format == "json"))
    return DONE


def _explain(options: argparse.Namespace) -> int:
    from jobgen.show import explain

    if options.all:
        import json

        _print(json.dumps(explain.all_rules(), ensure_ascii=False) if options.format == "json" else explain.index())
        return DONE
    if not options.code:
        raise Unusable("name a code such as JG101, 'fabric NAME', or pass --all")
    if options.code[0] == "fabric":
        from jobgen.catalog import fabrics

        if len(options.code) != 2:
            raise Unusable("write: jobgen explain fabric NAME")
        try:
            _print(fabrics.explain(options.code[1]))
        except LookupError as error:
            raise Unusable(str(error)) from None
        return DONE
    try:
        for code in options.code:
            _print(explain.page(code))
    except LookupError as error:
        raise Unusable(str(error)) from None
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jobgen", allow_abbrev=False,
        description="Check, estimate, render and submit distributed language-model training from one YAML file.",
        epilog="exit status: 0 done, 1 refused, 2 the spec or the call cannot be read, 3 the scheduler said no or could not be reached, 4 the job failed",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"jobgen {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str, *, formats: Sequence[str] = ()) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.set_defaults(command=command)
        if formats:
            one.add_argument("--format", choices=formats, default="text", help="form of the output [text]")
        return one

    def spec(one: argparse.ArgumentParser, **more: Any) -> None:
        one.add_argument("spec", metavar="SPEC", help="a YAML file, or - for standard input", **more)
        one.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="set one field, such as training.micro_batch_size=2; may be repeated")

    def target(one: argparse.ArgumentParser) -> None:
        one.add_argument("--target", choices=TARGETS, help="where the job is to run [the spec's target]")

    def environment(one: argparse.ArgumentParser) -> None:
        one.add_argument("--env", metavar="FILE", help="installed versions: pip freeze, uv.lock, or conda list")

    one = add("check", _check, "report everything that would stop or spoil the job", formats=("text", "json", "github", "sarif"))
    spec(one, nargs="+")
    target(one)
    environment(one)
    one.add_argument("--strict", action="store_true", help="warnings refuse too")
    one.add_argument("--select", action="append", default=[], metavar="CODES", help="only these codes or beginnings of codes")
    one.add_argument("--ignore", action="append", default=[], metavar="CODES", help="not these codes or beginnings of codes")

    one = add("show", _show, "print the effective spec, each value with its origin", formats=("text", "json"))
    spec(one)

    one = add("estimate", _estimate, "estimate memory, host RAM, checkpoint storage, tokens and time", formats=("text", "json"))
    spec(one)
    environment(one)
    one.add_argument("--plot", metavar="FILE", help="draw the breakdown (.svg or .html)")

    one = add("render", _render, "print the script or the manifests, after checking")
    spec(one)
    target(one)
    one.add_argument("-o", "--output", metavar="PATH", help="write to a file instead of standard output")
    one.add_argument("--explain", action="store_true", help="print each line with the field that made it")
    one.add_argument("--node-rank", type=int, metavar="N", help="target hosts: the script of one host, to be started there by hand")

    one = add("submit", _submit, "check, render and submit; prints the handle")
    spec(one)
    target(one)
    one.add_argument("--dry-run", choices=("client", "server"), help="client: print what would be sent; server: let the scheduler judge it")
    one.add_argument("--new", action="store_true", help="start a new run even when the same one is live")
    one.add_argument("--watch", action="store_true", help="follow the job to its end; exit status 4 when it fails")

    for name, command, text in (("status", _status, "what a submitted job is doing"), ("logs", _logs, "print a job's output"), ("cancel", _cancel, "stop a job")):
        one = add(name, command, text, formats=("text", "json") if name == "status" else ())
        one.add_argument("handle", nargs=None if name == "cancel" else "?", metavar="HANDLE", help="as submit printed it, or the job's name" + ("" if name == "cancel" else " [the newest]"))
        if name == "logs":
            one.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
            one.add_argument("--rank", type=int, metavar="N", help="one node's or rank's output only")
    add("list", _list, "all submitted jobs", formats=("text", "json"))
    add("schema", _schema, "print the JSON Schema of a spec")
    one = add("models", _models, "list the models, or count one's parameters", formats=("text", "json"))
    one.add_argument("model", nargs="?", metavar="ID|config.json", help="a model of the catalogue or a config.json")
    add("gpus", _gpus, "list the GPUs", formats=("text", "json"))
    add("versions", _versions, "print the installed libraries in a spec's form", formats=("text", "json"))
    one = add("explain", _explain, "explain a finding's code, or a fabric profile", formats=("text", "json"))
    one.add_argument("code", nargs="*", metavar="CODE", help="a code such as JG101, or: fabric NAME")
    one.add_argument("--all", action="store_true", help="all rules")
    return parser


if __name__ == "__main__":
    sys.exit(main())
