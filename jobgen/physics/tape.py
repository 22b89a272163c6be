"""A record of a layer's forward pass as autograd sees it, from which saved, forward and backward bytes follow.

Blocks (attention, MLP, norms ...) write operations onto a ``Tape``: which values each saves for backward, which it
makes, which temporaries it needs. ``profile`` then plays it: forwards with and without gradients, and backwards in
reverse order, releasing what each operation saved and passing gradients on (the rules of torch's autograd engine:
torch/csrc/autograd/engine.cpp and input_buffer.cpp, PyTorch 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jobgen.physics import cost
from jobgen.physics.cost import ZERO, Cost, Unit
from jobgen.spec.record import NamedTuple

Kind = Literal["op", "matmul", "addmm", "attention", "reduce"]
"""What a policy can ask about an operation: matmul is torch's ``mm``, addmm one with a bias, a grouped one or a bmm."""


class Value:
    """A tensor. ``storage`` is what it occupies: views share their base's."""

    __slots__ = ("bytes", "cost", "grad", "storage", "unit", "width")

    def __init__(self, width: float, size: float, unit: Unit, grad: bool, storage: Value | None = None) -> None:
        self.width, self.bytes, self.unit, self.grad = width, size, unit, grad
        self.cost: Cost = cost.cost(unit, width * size)
        self.storage: Value = storage or self


class Op(NamedTuple):
    """One operation."""

    inputs: tuple[Value, ...]
    """Values that receive a gradient from it or are read by it."""
    saved: tuple[Value, ...]
    outputs: tuple[Value, ...]
    aliases: bool
    """Gradients of the inputs are the output's gradient itself (add, views)."""
    forward: Cost
    """Temporaries inside the forward kernel."""
    backward: Cost
    """Temporaries inside the backward kernel, gradients of the inputs apart."""
    kind: Kind
    held: tuple[Value, ...] = ()
    """Values that a local variable still refers to."""


class Profile(NamedTuple):
    """What a recorded piece of the model needs, as coefficients."""

    saved: Cost
    """Kept for backward when nothing is recomputed, the piece's own input included if an operation saves it."""
    input: Cost
    """The piece's input."""
    input_saved: bool
    forward: tuple[Cost, ...]
    """Peaks of a forward pass without gradients, input apart."""
    again: tuple[Cost, ...]
    """Peaks of a forward pass with everything saved, made again in backward: input and incoming gradient included."""
    backward: tuple[Cost, ...]
    """Peaks of the backward pass, input and incoming gradient included."""
    policy: Cost
    """Outputs that torchtitan's operator policy keeps (every second matmul, attention, reduce-scatter), input apart."""
    compiled: Cost
    """Kept when torch.compile fuses elementwise chains: their inputs, which matmuls and attention made, and the input
    (functorch/_aot_autograd min-cut partitioner: what is cheap to fuse is made again)."""
    compiled_training: tuple[Cost, ...]
    """Peaks of a compiled backward: what is kept, and a matmul's two gradients or a fused chain's ends."""
    squares: Cost
    """Saved by core attention alone (scores and the like), which Megatron's selective recomputation leaves out."""


class Tape:
    """Records operations. ``weights_grad``: the base weights are trained (matmuls save their inputs for it)."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.core: set[Value] = set()
        self._in_core = False

    def value(self, width: float, size: float, unit: Unit, grad: bool = True) -> Value:
        """A value that no recorded operation makes (an input, a weight's copy)."""
        return Value(width, size, unit, grad)

    def op(
        self,
        inputs: Sequence[Value],
        width: float,
        size: float,
        unit: Unit,
        saved: Sequence[Value] = (),
        save_output: bool = False,
        aliases: bool = False,
        forward: Cost = ZERO,
        backward: Cost = ZERO,
        kind: Kind = "op",
        extra: Sequence[Value] = (),
        held: Sequence[Value] = (),
    ) -> Value:
        """An operation with one output that later operations use; ``extra``: outputs only kept for backward (lse)."""
        grad = any(value.grad for value in inputs)
        out = Value(width, size, unit, grad)
        kept = (*saved, *((out,) if save_output else ()), *extra) if grad else ()
        if self._in_core:
            self.core.update(value.storage for value in kept)
        self.ops.append(Op(tuple(inputs), kept, (out, *extra), aliases, forward, backward, kind, tuple(held)))
        return out

    def view(self, source: Value, width: float | None = None, unit: Unit | None = None) -> Value:
        """The same storage seen otherwise; its gradient is a view of the view's gradient."""
        width, unit = source.width if width is None else width, source.unit if unit is None else unit
        out = Value(width, source.bytes, unit, source.grad, source.storage)
        self.ops.append(Op((source,), (), (out,), True, ZERO, ZERO, "op"))
        return out

    def core_attention(self, inside: bool) -> None:
        """Marks the beginning and the end of core attention."""
        self._in_core = inside


def profile(tape: Tape, start: Value, end: Value, outer: frozenset[Value] = frozenset()) -> Profile:
    """Plays a tape. ``outer``: values that live outside anyway (parameters' casts counted elsewhere)."""
    storages: dict[Value, int] = {}
    for op in tape.ops:
        for value in op.saved:
            if value.storage not in outer:
                storages[value.storage] = storages.get(value.storage, 0) + 1
    saved = cost.add(ZERO, *(storage.cost for storage in storages))
    compiled = _sources(tape, start)
    core = [value for value in tape.core if value in storages and value is not start]
    outside_core = {v.storage for op in tape.ops for v in op.saved} - tape.core
    made_in_core = [value for value in core if value not in outside_core]
    return Profile(
        saved=saved,
        input=start.cost,
        input_saved=start.storage in storages,
        forward=cost.frontier(_forward(tape, start, end)),
        again=cost.frontier(_again(tape, start, end)),
        backward=cost.frontier(_backward(tape, start, end, dict(storages))),
        policy=_policy(tape, start),
        compiled=cost.add(ZERO, *(value.cost for value in compiled)),
        compiled_training=cost.frontier(_compiled_training(tape, start, end, compiled)),
        squares=cost.add(ZERO, *(value.cost for value in made_in_core if value.unit in ("square", "mask"))),
    )


def _last_uses(tape: Tape, end: Value) -> dict[Value, int]:
    last: dict[Value, int] = {end.storage: len(tape.ops)}
    for index, op in enumerate(tape.ops):
        for value in (*op.inputs, *op.outputs, *op.held):
            if value is not end and last.get(value.storage, -1) != len(tape.ops):
                last[value.storage] = index
    return last


def _forward(tape: Tape, start: Value, end: Value) -> list[Cost]:
    """Live bytes after each operation without gradients, the input apart."""
    last = _last_uses(tape, end)
    live: set[Value] = {start.storage}
    peaks = []
    for index, op in enumerate(tape.ops):
        live.update(value.storage for value in op.outputs)
        held = cost.add(op.forward, *(value.cost for value in live if value is not start.storage))
        peaks.append(held)
        live = {value for value in live if last.get(value, -1) > index}
    return peaks


def _again(tape: Tape, start: Value, end: Value) -> list[Cost]:
    """Live bytes after each operation made again before its backward: what it saved, and the incoming gradient."""
    last = _last_uses(tape, end)
    live: set[Value] = {start.storage}
    kept: set[Value] = {start.storage}
    peaks = []
    for index, op in enumerate(tape.ops):
        kept.update(value.storage for value in op.saved)
        live.update(value.storage for value in op.outputs)
        peaks.append(cost.add(end.cost, op.forward, *(value.cost for value in live | kept)))
        live = {value for value in live if last.get(value, -1) > index}
    return peaks


class _Buffer:
    """A gradient and how many values it belongs to (views and sums pass the same tensor on)."""

    __slots__ = ("cost", "users")

    def __init__(self, given: Cost, users: int = 1) -> None:
        self.cost, self.users = given, users

    def release(self) -> Cost:
        """Bytes that become free."""
        self.users -= 1
        return ZERO if self.users else self.cost


def _backward(tape: Tape, start: Value, end: Value, references: dict[Value, int]) -> list[Cost]:
    """Live bytes in each operation's backward: what is still saved, and gradients."""
    gradients: dict[Value, _Buffer] = {end: _Buffer(end.cost)}
    references[start.storage] = references.get(start.storage, 0) + 1
    live = cost.add(end.cost, *(storage.cost for storage in references))
    peaks = [live]
    for op in reversed(tape.ops):
        given = gradients.pop(op.outputs[0], None)
        if given is None:
            continue
        receivers = [value for value in op.inputs if value.grad]
        if op.aliases:
            given.users += len(receivers)
            made = [given] * len(receivers)
        else:
            made = [_Buffer(value.cost) for value in receivers]
            live = cost.add(live, *(buffer.cost for buffer in made))
        peaks.append(cost.add(live, op.backward))
        live = cost.less(live, given.release())
        for value in op.saved:
            if value.storage in references:
                references[value.storage] -= 1
                if not references[value.storage]:
                    live = cost.less(live, value.storage.cost)
        for value, buffer in zip(receivers, made, strict=True):
            old = gradients.get(value)
            if old is None:
                gradients[value] = buffer
            elif old.users == 1:  # added in place (input_buffer.cpp, can_accumulate_inplace)
                live = cost.less(live, buffer.release())
            elif buffer.users == 1:
                live = cost.less(live, old.release())
                gradients[value] = buffer
            else:
                total = _Buffer(value.cost)
                live = cost.add(live, total.cost)
                peaks.append(live)
                live = cost.less(live, cost.add(old.release(), buffer.release()))
                gradients[value] = total
    return peaks


def _policy(tape: Tape, start: Value) -> Cost:
    """Outputs kept by torchtitan's operator policy: every second ``mm``, attention, reduce-scatter."""
    kept: list[Value] = []
    matmuls = 0
    for op in tape.ops:
        if op.kind == "matmul":
            matmuls += 1
            if matmuls % 2:
                kept.append(op.outputs[0].storage)
        elif op.kind in ("attention", "reduce"):
            kept.extend(value.storage for value in op.outputs)
    return cost.add(ZERO, *(value.cost for value in dict.fromkeys(kept) if value is not start.storage))


def _sources(tape: Tape, start: Value) -> tuple[Value, ...]:
    """Storages from which elementwise operations can make again everything that backward reads.

    Operands of backward's matmuls are kept themselves: the partitioner does not make again what must lie in memory
    in backward anyway (torch/_functorch/partitioners.py should_ban_recomputation, ban_recompute_materialized_backward).
    Of the others the value is kept, or what it is made of, whichever is less (the cut of a value from its sources).
    """
    maker = {value.storage: op for op in reversed(tape.ops) for value in op.outputs if value.storage is value}
    kept = dict.fromkeys(value.storage for op in tape.ops if op.kind != "op" for value in op.saved)

    def missing(value: Value) -> dict[Value, None]:
        op = maker.get(value)
        if value in kept:
            return {}
        if op is None or op.kind != "op":
            return {value: None}
        found = {source: None for each in op.inputs for source in missing(each.storage)}
        return found if sum(sum(source.cost) for source in found) <= sum(value.cost) else {value: None}

    for op in tape.ops:
        for value in op.saved:
            kept.update(missing(value.storage))
    return tuple(kept)


def _compiled_training(tape: Tape, start: Value, end: Value, kept: tuple[Value, ...]) -> list[Cost]:
    """Live bytes at each matmul's backward: what is kept of earlier operations, its operands made again, gradients."""
    base = cost.add(ZERO, end.cost, *(value.cost for value in kept))
    if start not in kept:
        base = cost.add(base, start.cost)
    peaks = [base]
    for op in reversed(tape.ops):
        made = [value for value in op.outputs if value.storage in kept]
        if op.kind != "op":
            again = [value.cost for value in op.saved if value.storage not in kept]
            peaks.append(cost.add(base, op.outputs[0].cost, *again, *(value.cost for value in op.inputs if value.grad)))
            base = cost.less(base, cost.add(ZERO, *(value.cost for value in made)))
    return peaks
