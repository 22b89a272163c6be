"""How the ranks of a job are laid out: one type that only `layout` makes, and only when the arithmetic holds."""

from __future__ import annotations

from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec


class Fault(NamedTuple):
    """An equation that does not hold, at the field that most likely causes it."""

    path: str
    message: str
    fix: str


class LayoutError(ValueError):
    """The sizes do not fit together."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.path}: {fault.message}; {fault.fix}" for fault in faults))


class Layout(NamedTuple):
    """Sizes of the groups that ranks belong to, and the batch. A rank is one process.

    ``world = nodes x processes_per_node = data x tensor x pipeline x context``; ``data = replicate x shard`` where
    model states are sharded. ``nodes`` are those that train: a rollout server's are taken off.
    """

    world: int
    nodes: int
    processes_per_node: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    expert_tensor: int
    data: int
    replicate: int
    shard: int
    micro_batch: int
    accumulation: int
    global_batch: int

    @property
    def model_parallel(self) -> int:
        """Ranks that hold one copy of the model before sharding, context ranks included."""
        return self.tensor * self.pipeline * self.context

    @property
    def shard_group(self) -> int:
        """Ranks over which FSDP and Megatron's distributed optimizer spread states: context ranks take part."""
        return self.shard * self.context if self.shard > 1 else self.shard

    @property
    def expert_data(self) -> int:
        """Ranks with the same experts."""
        return self.world // (self.pipeline * self.expert * self.expert_tensor)


def processes_per_node(spec: Spec) -> int:
    """Ranks on each node: as written, one where a single process sees all GPUs, else one per GPU."""
    if spec.launch.processes_per_node is not None:
        return spec.launch.processes_per_node
    if spec.launch.launcher == "python" or spec.parallelism.device_map is not None:
        return 1
    return spec.resources.gpus_per_node


def training_nodes(spec: Spec) -> int:
    """Nodes less those of a rollout server."""
    rollout = spec.training.rollout
    return spec.resources.nodes - (rollout.nodes if rollout is not None and rollout.mode == "server" else 0)


def layout(spec: Spec) -> Layout:
    """The layout of a spec; raises LayoutError with every equation that does not hold."""
    split, faults = spec.parallelism, list[Fault]()
    nodes, per_node = training_nodes(spec), processes_per_node(spec)
    if nodes < 1:
        faults.append(_no_nodes(spec))
        nodes = 1
    world = nodes * per_node
    divisor = split.tensor * split.pipeline * split.context
    if world % divisor:
        faults.append(_world(spec, nodes, per_node))
    elif (world // split.pipeline) % (split.expert * split.expert_tensor):
        faults.append(_experts(spec, world))
    data = max(1, world // divisor)
    if split.replicate > 1 and split.sharding in ("none", "zero1", "zero2"):
        faults.append(Fault("parallelism.replicate", f"replicate = {split.replicate} needs shard groups, but sharding = "
                            f"{split.sharding} has none", "write sharding: fsdp1, fsdp2 or zero3, or remove replicate"))  # fmt: skip
    elif data % split.replicate and not faults:
        faults.append(Fault("parallelism.replicate", f"shard = data / replicate = {data} / {split.replicate} is not whole",
                            f"replicate must divide {data}: {_divisors(data)}"))  # fmt: skip
    if faults:
        raise LayoutError(faults)
    shard = 1 if split.sharding == "none" else data // split.replicate
    micro, accumulation, whole = _batch(spec, data)
    return Layout(world, nodes, per_node, split.tensor, split.pipeline, split.context, split.expert, split.expert_tensor,
                  data, split.replicate, shard, micro, accumulation, whole)  # fmt: skip


def _no_nodes(spec: Spec) -> Fault:
    rollout = spec.training.rollout
    assert rollout is not None
    return Fault("training.rollout.nodes", f"training nodes = resources.nodes - rollout.nodes = {spec.resources.nodes} - "
                 f"{rollout.nodes} leaves none to train on",
                 f"write resources.nodes: {rollout.nodes + 1} or more, or mode: colocate")  # fmt: skip


def _world(spec: Spec, nodes: int, per_node: int) -> Fault:
    split, world = spec.parallelism, nodes * per_node
    sizes = {"tensor": split.tensor, "pipeline": split.pipeline, "context": split.context}
    name = next((n for n, size in sizes.items() if world % size), next(n for n, size in sizes.items() if size > 1))
    terms = " x ".join(f"{n} ({size})" for n, size in sizes.items())
    divisor = split.tensor * split.pipeline * split.context
    message = (f"data = nodes ({nodes}) x processes_per_node ({per_node}) / ({terms}) = {world} / {divisor}, "
               "which is not a whole number")  # fmt: skip
    fix = f"their product must divide {world}: {_divisors(world)}"
    if divisor > world and divisor % per_node == 0:
        fix += f"; or ask for a multiple of {divisor // per_node} nodes"
    return Fault(f"parallelism.{name}", message, fix)


def _experts(spec: Spec, world: int) -> Fault:
    split = spec.parallelism
    ranks = world // split.pipeline
    return Fault("parallelism.expert", f"world / pipeline / (expert x expert_tensor) = {world} / {split.pipeline} / "
                 f"({split.expert} x {split.expert_tensor}) is not a whole number",
                 f"expert x expert_tensor must divide {ranks}: {_divisors(ranks)}")  # fmt: skip


def _batch(spec: Spec, data: int) -> tuple[int, int, int]:
    """Micro batch, accumulation and samples per optimizer step."""
    training = spec.training
    micro, steps, whole = training.micro_batch_size, training.gradient_accumulation_steps, training.global_batch_size
    if whole is None:
        return micro, steps or 1, micro * (steps or 1) * data
    path = "training.global_batch_size"
    if steps is not None:
        made = micro * steps * data
        if made != whole:
            raise LayoutError([Fault(path, f"micro_batch_size ({micro}) x gradient_accumulation_steps ({steps}) x data ({data}) "
                                     f"= {made}, not global_batch_size ({whole})",
                                     f"write global_batch_size: {made}, or remove one of the two")])  # fmt: skip
        return micro, steps, whole
    step = micro * data
    if whole % step:
        low, high = whole // step * step, (whole // step + 1) * step
        near = f"{low} or {high}" if low else str(high)
        raise LayoutError([Fault(path, f"global_batch_size ({whole}) / (micro_batch_size ({micro}) x data ({data})) = "
                                 f"{whole} / {step} is not a whole number of accumulation steps",
                                 f"write global_batch_size: {near}")])  # fmt: skip
    return micro, whole // step, whole


def _divisors(number: int) -> str:
    if number > 10**6:
        return f"the divisors of {number}"
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)
