"""Fields that contradict each other, whatever the model, the GPU or the framework. Each names all fields it weighs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from jobgen.spec.layout import LayoutError, layout
from jobgen.spec.merge import SETS, Layer
from jobgen.spec.paths import split
from jobgen.spec.problem import Problem, repr_plain
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec
from jobgen.spec.validate import problem, value_at


class Clash(NamedTuple):
    """A contradiction: where it is shown, what, what to write."""

    path: str
    message: str
    fix: str
    code: str = "JG003"


class Case(NamedTuple):
    """A spec and what its author wrote."""

    spec: Spec
    layer: Layer
    file: str

    def names(self, path: str) -> str:
        """A field with its value and place, for a message."""
        parts = split(path) or ()
        mark = self.layer.marks.get(parts)
        if mark is None:
            return f"`{path}` (not written)"
        value = value_at(self.layer.tree, parts)
        text = f"`{path}: {repr_plain(value)}`" if not isinstance(value, dict | list) else f"`{path}`"
        where = mark.key
        if where.file == SETS:
            return f"{text} (command line)"
        return f"{text} (line {where.line})" if where.file == self.file else f"{text} ({where.file}:{where.line})"

    def written(self, *paths: str) -> list[str]:
        """Those of the paths that hold something."""
        return [path for path in paths if value_at(self.layer.tree, split(path) or ()) is not None]


_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_QUANTITY = r"[0-9]+(?:\.[0-9]+)?(?:[kMGTPE]|[KMGTPE]i|m)?"
_HOST = r"[A-Za-z0-9_:][A-Za-z0-9_.:@-]*"
_NODE_RESOURCES = {
    "cpu": "resources.cpus_per_node", "memory": "resources.memory_per_node",
    "ephemeral-storage": "resources.local_disk_per_node", "nvidia.com/gpu": "resources.gpus_per_node",
    "amd.com/gpu": "resources.gpus_per_node",
}  # fmt: skip


def contradictions(spec: Spec, layer: Layer, file: str) -> Iterator[Problem]:
    """Every contradiction in a spec."""
    case = Case(spec, layer, file)
    for rule in RULES:
        for path, message, fix, code in rule(case):
            yield problem(layer, file, split(path) or tuple(path.split(".")), message, fix, code)


def _name(case: Case) -> Iterator[Clash]:
    if not re.fullmatch(_JOB_NAME, case.spec.name):
        yield Clash("name", f"`{case.spec.name}` cannot name a Slurm job, a Kubernetes object and a folder alike",
                    "use letters, digits, `.`, `_` and `-`, and start with a letter or digit", "JG002")  # fmt: skip


def _model(case: Case) -> Iterator[Clash]:
    if case.spec.model.name is None and case.spec.model.config is None:
        yield Clash("model", "neither `model.name` nor `model.config` is written",
                    "write name: with an id of `jobgen models`, or config: with a config.json")  # fmt: skip


def _amount(case: Case) -> Iterator[Clash]:
    given = case.written("training.max_steps", "training.data.tokens", "training.data.samples")
    if len(given) > 1:
        yield Clash(given[-1], f"{' and '.join(map(case.names, given))} each say how long to train", "keep one of them")
    data = case.spec.training.data
    if data is not None and data.tokens is not None and data.tokens_per_sample is not None:
        yield Clash("training.data.tokens_per_sample", f"{case.names('training.data.tokens')} is the amount already, so "
                    f"{case.names('training.data.tokens_per_sample')} has nothing to say",
                    "remove it, or give samples instead of tokens")  # fmt: skip


def _layout(case: Case) -> Iterator[Clash]:
    try:
        layout(case.spec)
    except LayoutError as error:
        involved = {
            "training.global_batch_size": ("training.global_batch_size", "training.micro_batch_size",
                                           "training.gradient_accumulation_steps"),
            "training.rollout.nodes": ("training.rollout.nodes", "resources.nodes"),
            "parallelism.replicate": ("parallelism.replicate", "parallelism.sharding"),
        }  # fmt: skip
        for fault in error.faults:
            paths = involved.get(fault.path, (fault.path, "resources.nodes", "resources.gpus_per_node",
                                              "launch.processes_per_node"))  # fmt: skip
            seen = ", ".join(map(case.names, case.written(*paths)))
            yield Clash(fault.path, f"{fault.message} ({seen})" if seen else fault.message, fault.fix)


def _processes(case: Case) -> Iterator[Clash]:
    launch, gpus = case.spec.launch, case.spec.resources.gpus_per_node
    count, path = launch.processes_per_node, "launch.processes_per_node"
    if count is not None and count > gpus:
        yield Clash(path, f"{case.names(path)} is more than {case.names('resources.gpus_per_node')}: a rank needs a GPU",
                    f"write processes_per_node: {gpus} or less")  # fmt: skip
    if count is not None and count > 1 and launch.launcher == "python":
        yield Clash(path, f"{case.names(path)} with {case.names('launch.launcher')}, which starts one process that sees all GPUs",
                    "remove processes_per_node, or write launcher: torchrun")  # fmt: skip


def _hosts(case: Case) -> Iterator[Clash]:
    hosts, nodes = case.spec.resources.hosts, case.spec.resources.nodes
    if hosts and len(hosts) != nodes:
        yield Clash("resources.hosts", f"`resources.hosts` lists {len(hosts)}, but the job has {nodes} nodes: "
                    f"{case.names('resources.nodes')}", f"write nodes: {len(hosts)}, or list {nodes} hosts")  # fmt: skip
    for host in _twice(hosts):
        yield Clash("resources.hosts", f"`{host}` is in `resources.hosts` twice", "list each machine once")
    for i, host in enumerate(hosts):
        if not re.fullmatch(_HOST, host):
            yield Clash(f"resources.hosts.{i}", f"`{host}` is not a host name or address", "write for example 10.1.1.1", "JG002")


def _twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _program(case: Case) -> Iterator[Clash]:
    given = case.written("launch.entrypoint", "launch.module", "launch.command")
    if len(given) > 1:
        yield Clash(given[-1], f"{' and '.join(map(case.names, given))} each name the program", "keep one of them")
    if case.spec.launch.command == []:
        yield Clash("launch.command", "`launch.command` is an empty list", "write the program and its arguments", "JG002")
    python = case.spec.launch.python
    if python is not None:
        given = case.written("launch.python.venv", "launch.python.conda", "launch.python.uv")
        if len(given) != 1:
            words = " and ".join(map(case.names, given)) + " each name an environment" if given else "no environment is named"
            yield Clash(given[-1] if given else "launch.python", words, "write one of venv, conda and uv")


def _environment(case: Case) -> Iterator[Clash]:
    launch = case.spec.launch
    for name in launch.env:
        if not re.fullmatch(_ENV_NAME, name):
            yield Clash(f"launch.env.{name}", f"`{name}` cannot name an environment variable",
                        "use letters, digits and `_`, and do not start with a digit", "JG002")  # fmt: skip
    for i, name in enumerate(launch.secrets):
        path = f"launch.secrets.{i}"
        if not re.fullmatch(_ENV_NAME, name):
            hint = "write the variable's name alone; its value stays outside the spec" if "=" in name else (
                "use letters, digits and `_`, and do not start with a digit")  # fmt: skip
            yield Clash(path, f"`{name.partition('=')[0]}` cannot name an environment variable" if "=" not in name else
                        "a secret is written with its value", hint, "JG002")  # fmt: skip
        elif name in launch.env:
            yield Clash(path, f"`{name}` is both a secret and {case.names(f'launch.env.{name}')}", "keep one of the two")
    for name in _twice(launch.secrets):
        yield Clash("launch.secrets", f"`{name}` is in `launch.secrets` twice", "list it once")


def _volumes(case: Case) -> Iterator[Clash]:
    first: dict[str, int] = {}
    for i, volume in enumerate(case.spec.volumes):
        path = f"volumes.{i}"
        given = case.written(f"{path}.claim", f"{path}.path") + ([f"{path}.scratch"] if volume.scratch else [])
        if volume.create is not None and volume.claim is None:
            yield Clash(f"{path}.create", f"`{path}.create` makes a claim, but `{path}.claim` does not name it", "write claim: NAME")
        elif len(given) != 1 and (volume.scratch or not given):  # a claim for Kubernetes and a path for Slurm go together
            words = " and ".join(map(case.names, given)) + " each say what is mounted" if given else (
                f"{case.names(f'{path}.mount')} has nothing to mount")  # fmt: skip
            yield Clash(given[-1] if given else path, words, "write claim (Kubernetes), path (Slurm) or both, or scratch: true")
        for name, value in (("mount", volume.mount), ("path", volume.path)):
            if value is not None and (not value.startswith("/") or ".." in value.split("/")):
                yield Clash(f"{path}.{name}", f"`{value}` is not an absolute path", "start it with `/`, without `..`", "JG002")
        mount = volume.mount.rstrip("/") or "/"
        if mount == "/":
            yield Clash(f"{path}.mount", "a volume cannot replace the whole file system", "mount it at a folder", "JG002")
        if mount in first:
            yield Clash(f"{path}.mount", f"{case.names(f'{path}.mount')} is taken by {case.names(f'volumes.{first[mount]}.mount')}",
                        "mount each volume at a folder of its own")  # fmt: skip
        first.setdefault(mount, i)


def _offload(case: Case) -> Iterator[Clash]:
    offload, sharding = case.spec.offload, case.spec.parallelism.sharding
    both = (offload.optimizer, offload.parameters)
    if sharding in ("fsdp1", "fsdp2") and both[0] != both[1]:
        lone = "offload.optimizer" if offload.optimizer != "none" else "offload.parameters"
        value = offload.optimizer if offload.optimizer != "none" else offload.parameters
        yield Clash(lone, f"{case.names('parallelism.sharding')} has one switch that moves parameters and optimizer together, but "
                    f"{case.names('offload.optimizer')} and {case.names('offload.parameters')} differ",
                    f"write {{optimizer: {value}, parameters: {value}}}, or neither")  # fmt: skip
    for name, target in zip(("optimizer", "parameters"), both, strict=True):
        if target == "nvme" and offload.nvme_path is None:
            yield Clash(f"offload.{name}", f"{case.names(f'offload.{name}')} needs `offload.nvme_path`, which is not written",
                        "write nvme_path: with a folder on a local disk")  # fmt: skip


def _method(case: Case) -> Iterator[Clash]:
    training = case.spec.training
    for name in ("lora", "quantization"):
        if not case.written(f"training.{name}") or (training.method, name) in (("lora", "lora"), ("qlora", "lora")):
            continue
        if training.method == "qlora":
            continue
        better = "qlora" if training.method == "lora" or name == "quantization" else "lora"
        yield Clash(f"training.{name}", f"{case.names(f'training.{name}')} has no effect with {case.names('training.method')}",
                    f"write method: {better}, or remove {name}")  # fmt: skip


def _pipeline(case: Case) -> Iterator[Clash]:
    split_ = case.spec.parallelism
    chunks = split_.pipeline * split_.virtual_pipeline
    if split_.virtual_pipeline > 1 and split_.pipeline == 1:
        yield Clash("parallelism.virtual_pipeline", f"{case.names('parallelism.virtual_pipeline')} splits the stages of a pipeline, "
                    f"but {case.names('parallelism.pipeline')}", "write pipeline: 2 or more, or remove virtual_pipeline")  # fmt: skip
    if split_.pipeline_layers is not None and len(split_.pipeline_layers) != chunks:
        yield Clash("parallelism.pipeline_layers", f"`parallelism.pipeline_layers` has {len(split_.pipeline_layers)} numbers, but "
                    f"pipeline ({split_.pipeline}) x virtual_pipeline ({split_.virtual_pipeline}) = {chunks}",
                    f"write {chunks} numbers")  # fmt: skip


def _kubernetes(case: Case) -> Iterator[Clash]:
    settings = case.spec.kubernetes
    for name, amount in settings.extra_resources.items():
        path = f"kubernetes.extra_resources.{name}"
        if (owner := _NODE_RESOURCES.get(name)) is not None:
            yield Clash(path, f"{case.names(path)} is what {case.names(owner)} asks for", f"remove it and write {owner}")
        elif not re.fullmatch(r"(?:[a-z0-9.-]+/)?[A-Za-z0-9._-]+", name):
            yield Clash(path, f"`{name}` cannot name a resource", "write for example vpc.amazonaws.com/efa", "JG002")
        if not re.fullmatch(_QUANTITY, str(amount)):
            yield Clash(path, f"`{amount}` is not a quantity", "write a number such as 4, or 2Gi", "JG002")
    elastic = settings.elastic
    if elastic is not None and not elastic.min_nodes <= case.spec.resources.nodes <= elastic.max_nodes:
        yield Clash("kubernetes.elastic", f"{case.names('resources.nodes')} is not between "
                    f"{case.names('kubernetes.elastic.min_nodes')} and {case.names('kubernetes.elastic.max_nodes')}",
                    "widen the bounds or change nodes")  # fmt: skip


def _after(case: Case) -> Iterator[Clash]:
    for i, dependency in enumerate(case.spec.after):
        if not dependency.job.strip():
            yield Clash(f"after.{i}.job", "the handle is empty", "write the handle that `jobgen submit` printed", "JG002")


def _ignore(case: Case) -> Iterator[Clash]:
    for code in _twice([each.code for each in case.spec.ignore]):
        yield Clash("ignore", f"`{code}` is in `ignore` twice", "list it once")


def _points(case: Case) -> Iterator[Clash]:
    if case.spec.sweep is not None or case.spec.plan is not None:
        from jobgen.spec.sweep import faults

        for path, message, fix in faults(case.spec, case.layer, case.file):
            yield Clash(path, message, fix, "JG002")


RULES: tuple[Callable[[Case], Iterator[Clash]], ...] = (
    _name, _model, _amount, _layout, _processes, _hosts, _program, _environment, _volumes, _offload, _method, _pipeline,
    _kubernetes, _after, _ignore, _points,
)  # fmt: skip
