"""The pieces that every layer is made of, written onto a tape: matrices with adapters, norms, rotary positions, MLPs."""

from __future__ import annotations

from jobgen.catalog.arch import Layer, Matrix
from jobgen.physics import cost
from jobgen.physics.cost import Unit
from jobgen.physics.modules import HF, Module, Norm, Style
from jobgen.physics.tape import Kind, Tape, Value
from jobgen.spec.record import NamedTuple


class Build(NamedTuple):
    """The categories that decide a layer's structure. Bytes are per element."""

    compute: float
    """Matmul inputs and outputs."""
    residual: float
    """The stream between layers."""
    weights: float
    """The weights as forward sees them: where they differ from ``compute``, autocast copies them per use."""
    trained: bool
    """The base weights get gradients."""
    autocast: bool
    kernel: str
    """eager, math, efficient or flash."""
    masked: bool = False
    """A padding mask reaches the kernel."""
    rank: int = 0
    targets: frozenset[str] = frozenset()
    adapters: float = 0.0
    """Adapter weights as stored."""
    adapter_dropout: bool = False
    expert_adapters: bool = False
    """Adapters on fused experts: base and low-rank product are added into a whole matrix per use (peft >= 0.19)."""
    quantized: bool = False
    quantized_experts: bool = False
    quantized_keeps_input: bool = False
    """The 4-bit matmul keeps its input although the weight is frozen (bitsandbytes before 0.43.2, MatMul4Bit)."""
    module: Module = Module()
    style: Style = HF
    compiled: bool = False
    gathers: bool = False
    """Under sequence parallelism the whole sequence is gathered before column-cut matrices and kept for their
    gradients (DTensor's redistribution); Megatron keeps the cut one and gathers again in backward."""


def gather(tape: Tape, build: Build, x: Value) -> Value:
    """The whole sequence where the rank holds a part of it."""
    return tape.op([x], x.width, x.bytes, "token") if build.gathers and x.unit == "sequence" else x


def cast(tape: Tape, x: Value, size: float) -> Value:
    """A copy in another type (nothing where it has it already)."""
    return x if x.bytes == size else tape.op([x], x.width, size, x.unit)


def linear(tape: Tape, build: Build, x: Value, matrix: Matrix, unit: Unit, width: float | None = None, size: float = 0) -> Value:
    """``x @ W``: saves its input for the weight's gradient, and under autocast the weight's copy for the input's.

    An adapter adds ``B(A(dropout(x)))``: peft casts the input to the adapter's type (tuners/lora/layer.py, peft 0.21),
    and autocast back to the compute type.
    """
    width = matrix.outputs if width is None else width
    size = size or build.compute
    given = cast(tape, x, size)
    saved: list[Value] = [given] if build.trained or (build.quantized_keeps_input and not matrix.keep) else []
    if build.autocast and build.weights != build.compute and not build.quantized:
        fixed: Unit = "fixed" if matrix.split == "none" else "fixed_tensor"
        saved.append(tape.value(matrix.inputs * matrix.outputs, size, fixed, grad=False))
    kind: Kind = "addmm" if matrix.bias or build.quantized else "matmul"
    scattered = build.gathers and matrix.split == "row"  # each rank's sum of products, then one part of the sequence
    out = tape.op([given], width, size, "token" if scattered else unit, saved, kind=kind)
    if scattered:
        out = tape.op([out], width, size, unit, kind="reduce")
    if build.rank and matrix.name in build.targets:
        out = adapter(tape, build, x, out, matrix, unit)
    return out


def adapter(tape: Tape, build: Build, x: Value, out: Value, matrix: Matrix, unit: Unit) -> Value:
    """The low-rank branch beside a matrix and its sum with the matrix's output."""
    size = build.compute if build.autocast else build.adapters
    branch = local = cast(tape, x, build.adapters)
    if build.adapter_dropout:
        branch = tape.op([branch], branch.width, branch.bytes, branch.unit, extra=[tape.value(branch.width, 1, branch.unit)])
    branch = cast(tape, branch, size)
    copies: list[Value] = []
    if build.autocast and build.adapters != size:
        copies = [tape.value(build.rank * width, size, "fixed", grad=False) for width in (matrix.inputs, matrix.outputs)]
    inner_unit: Unit = branch.unit if matrix.split != "row" else "token"
    inner = tape.op([branch], build.rank, size, inner_unit, [branch, *copies[:1]], kind="matmul")
    inner.grad = True
    outer = tape.op([inner], out.width, size, unit, [inner, *copies[1:]], kind="matmul")
    scaled = tape.op([outer], out.width, size, unit, held=[local, x])
    total = tape.op([out, scaled], out.width, max(out.bytes, size), unit, aliases=out.bytes == size)
    return cast(tape, total, out.bytes)


def add(tape: Tape, left: Value, right: Value) -> Value:
    """A residual sum; the gradient goes to both unchanged (cast where the types differ)."""
    size = max(left.bytes, right.bytes)
    if right.bytes != size:
        right = tape.op([right], right.width, size, right.unit)
    return tape.op([left, right], left.width, size, left.unit, aliases=True)


def norm(tape: Tape, build: Build, x: Value, groups: float = 1, kind: Norm | None = None) -> Value:
    """A norm over the last dimension; ``groups``: rows per token (heads)."""
    kind = kind or build.style.norm or build.module.norm
    unit, width, size = x.unit, x.width, x.bytes
    if kind.startswith("fused"):
        given = cast(tape, x, 4) if kind == "fused_float32" else x
        row = tape.value(groups, 4, unit, grad=False)
        out = tape.op([given], width, given.bytes, unit, [given], extra=[row])
        return cast(tape, out, size)
    if kind in ("layer", "layer_cast"):
        given = cast(tape, x, 4) if kind == "layer_cast" or build.autocast else x
        rows = [tape.value(groups, 4, unit, grad=False) for _ in range(2)]
        out = tape.op([given], width, given.bytes, unit, [given], extra=rows)
        return cast(tape, out, size) if kind == "layer_cast" else out
    given = cast(tape, x, 4)
    full = cost.cost(unit, 4 * width)
    if kind == "layer_float32":
        mean = tape.op([given], groups, 4, unit)
        centred = tape.op([given, mean], width, 4, unit)
        square = tape.op([centred], width, 4, unit, [centred], backward=cost.scale(2, full))
        given = tape.op([given, mean], width, 4, unit)
    else:
        square = tape.op([given], width, 4, unit, [given], backward=cost.scale(2, full))
    variance = tape.op([square], groups, 4, unit)
    root = tape.op([variance], groups, 4, unit, save_output=True)
    normed = tape.op([given, root], width, 4, unit, [given, root], backward=full)
    reduced = full if build.trained else cost.ZERO  # product with the normed values before it is summed
    if kind == "rms":
        normed = cast(tape, normed, size)
        wide = max(size, build.weights)
        saved = [normed] if build.trained else []
        return tape.op([normed], width, wide, unit, saved, backward=cost.scale(wide / 4, reduced))
    out = tape.op([normed], width, 4, unit, [normed] if build.trained else [], backward=reduced)
    return cast(tape, out, size)


def rotary(tape: Tape, build: Build, x: Value) -> Value:
    """Rotary positions: products with cosine and sine, which need no gradient, so nothing is saved."""
    size = max(x.bytes, build.residual) if build.style.norm is None else x.bytes
    temporary = cost.cost(x.unit, 2 * x.width * size)
    return tape.op([x], x.width, size, x.unit, forward=temporary, backward=temporary)


OUTPUT_SAVED = frozenset({"relu", "tanh", "sigmoid"})
"""Activations whose backward reads the result."""


def activation(tape: Tape, x: Value, name: str, native: bool = False) -> Value:
    """An activation function and what its backward reads."""
    width, size, unit = x.width, x.bytes, x.unit
    if name in OUTPUT_SAVED:
        return tape.op([x], width, size, unit, save_output=True)
    if name in ("relu2", "relu_squared"):
        inner = tape.op([x], width, size, unit, save_output=True)
        return tape.op([inner], width, size, unit, [inner])
    if name == "xielu":  # transformers activations.py XIELUActivation, without its optional kernel
        mask = Value(width, 1, unit, False)
        parts = [tape.op([x], width, size, unit, [x]) for _ in range(3)]
        return tape.op(parts, width, size, unit, [*parts, mask])
    if name == "gelu_new" and not native:  # 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        cube = tape.op([x], width, size, unit, [x])
        inner = tape.op([x, cube], width, size, unit, forward=cube.cost)
        curve = tape.op([inner], width, size, unit, save_output=True)
        half = tape.op([x], width, size, unit)
        one = tape.op([curve], width, size, unit, aliases=True)
        return tape.op([half, one], width, size, unit, [half, one])
    return tape.op([x], width, size, unit, [x])


def mlp(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...], unit: Unit = "tensor", out: Unit = "sequence") -> Value:
    """A dense MLP: matrices in the order (gate,) up, down, or gate and up in one."""
    *inner, down = matrices
    ffn = down.inputs
    if layer.gated and len(inner) == 2:
        gate = linear(tape, build, x, inner[0], unit)
        if build.style.glu == "fused":
            up = linear(tape, build, x, inner[1], unit)
            product = tape.op([gate, up], ffn, build.compute, unit, [gate, up])
        else:
            active = activation(tape, gate, layer.activation, build.style.native_activations)
            up = linear(tape, build, x, inner[1], unit)
            product = tape.op([active, up], ffn, build.compute, unit, [active, up])
    elif layer.gated:
        both = linear(tape, build, x, inner[0], unit)
        product = gated(tape, build, both, layer.activation, ffn, unit)
    else:
        product = activation(
            tape, linear(tape, build, x, inner[0], unit), layer.activation, build.style.native_activations
        )
    return linear(tape, build, product, down, out)


def gated(tape: Tape, build: Build, both: Value, name: str, ffn: float, unit: Unit) -> Value:
    """Activation and product of gate and up that are halves of one tensor."""
    if build.style.glu == "fused":
        return tape.op([both], ffn, both.bytes, unit, [both])
    if build.module.clamped:
        gate = tape.op([both], ffn, both.bytes, unit, [both])
        up = tape.op([both], ffn, both.bytes, unit, [both])
        inner = tape.op([gate], ffn, both.bytes, unit)
        opened = tape.op([inner], ffn, both.bytes, unit, save_output=True)
        glu = tape.op([gate, opened], ffn, both.bytes, unit, [gate, opened])
        raised = tape.op([up], ffn, both.bytes, unit)
        return tape.op([raised, glu], ffn, both.bytes, unit, [raised, glu])
    gate = tape.view(both, both.width / 2)
    up = tape.view(both, both.width / 2)
    active = activation(tape, gate, name)
    return tape.op([active, up], ffn, both.bytes, unit, [active, up])
