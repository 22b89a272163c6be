"""What will really run, one lazy step at a time.

``Effective`` computes each step on first use, so that a rule that looks at loading asks only the versions that decide
loading. Steps live in one file each and are pure functions of (spec, facts, versions and earlier steps).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.catalog.arch import Arch
    from jobgen.catalog.gpus import Gpu
    from jobgen.catalog.nodes import Node
    from jobgen.effective.versions import Versions
    from jobgen.frameworks.table import Framework
    from jobgen.spec.layout import Layout
    from jobgen.spec.models import Spec

Where = Literal["gpu", "cpu", "nvme", "managed"]
"""``managed``: CUDA managed memory of paged optimizers, moved by the driver."""


class Effect(NamedTuple):
    """A silent rewrite: the setting that is ignored and what happens instead. Rules quote it."""

    id: str
    """Short name, such as ``experts_stay_bf16``."""
    path: str
    """The spec field that does not have its effect."""
    ignored: str
    instead: str
    facts: tuple[str, ...]
    """Ids in rules.csv."""
    source: str


class Numbers(NamedTuple):
    """Data types as they will be, in bytes per element (0: does not exist); see ``effective/numbers.py``."""

    weights: float
    """What forward and backward read (bf16: 2)."""
    trainable: float
    """The trainable weights as stored (fp32 under accelerate's FSDP upcast: 4)."""
    gradients: float
    master: float
    """A copy besides ``trainable`` that the optimizer steps."""
    autocast_copies: bool
    """Weights are cast per use (torch.autocast), so casts are saved for backward."""
    reduce: float
    """Gradient reduction."""
    compute: float
    """Activations (bf16: 2)."""
    residual: float
    """The residual stream between layers (4 where norms or embeddings keep fp32)."""
    adapters: float
    """Adapter weights as stored (0 without adapters)."""
    source: str


class Quantized(NamedTuple):
    """The base weights as stored."""

    type: str | None
    double_quant: bool
    experts: bool
    """Routed experts are quantised too."""
    router: bool
    head: bool
    storage_bytes: int
    """Element size of the packed storage that sharding sees (uint8: 1)."""
    sharded: bool
    """The packed weights are cut by the sharding; quant_state never is."""
    effects: tuple[Effect, ...] = ()


class Adapters(NamedTuple):
    """Adapters as the library will make them."""

    rank: int
    targets: frozenset[str]
    """Module names that really get one."""
    fused_experts: bool
    """Fused expert parameters get adapters (peft >= 0.19: rank 2r on gate_up, r on down)."""
    parameters: int
    saved_modules_parameters: int
    """modules_to_save: trained in full beside the adapters."""
    dropout: float = 0.0
    """Before each adapter."""
    effects: tuple[Effect, ...] = ()


class Loading(NamedTuple):
    """How the weights reach their place."""

    mode: Literal["every_rank", "rank0_broadcast", "sharded", "none"]
    place: Literal["cpu", "gpu", "meta"]
    """Where a rank's full or partial copy first lands."""
    copies_per_node: int
    """Private host copies of the weights on one node at the peak."""
    dtype_bytes: float
    """Per element of such a copy (quantised copies: see ``quantized_copy``)."""
    quantized_copy: bool
    """The copy is already quantised when the next shard is read."""
    full_on_gpu: bool
    """Each rank holds the whole model on its GPU before sharding."""
    effects: tuple[Effect, ...] = ()


ShardingKind = Literal["none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"]


class Sharded(NamedTuple):
    """How model states are cut and what is gathered when."""

    kind: ShardingKind
    weights: int
    """Ranks over which the weights are cut (1: whole on each)."""
    gradients: int
    optimizer: int
    gathered_units: int
    """Layers that are whole at the same time (current and prefetched)."""
    root_gathered: bool
    """The root unit (embeddings, head) stays whole through the step."""
    bucket_bytes: float
    """Reduction and gather buckets."""
    reshard_after_forward: bool = True
    effects: tuple[Effect, ...] = ()


class Stepped(NamedTuple):
    """The optimizer as it will run."""

    name: str
    moments_bytes: float
    """Per trainable element, all moments together."""
    where: Where
    temporary_bytes: float
    """Per element of what one rank steps: foreach or unfused temporaries."""
    in_backward: bool
    effects: tuple[Effect, ...] = ()


class Offloaded(NamedTuple):
    """What leaves the GPU, after what the framework ignores."""

    parameters: Where
    optimizer: Where
    activations: Where
    pinned: bool
    power_of_two: bool
    """Pinned buffers are rounded up to powers of two (torch's caching host allocator)."""
    effects: tuple[Effect, ...] = ()


class Activations(NamedTuple):
    """What is kept for backward."""

    checkpointing: Literal["none", "selective", "full"]
    policy: Literal["ops", "layers", "core_attention"]
    every: int
    attention: Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex", "efficient", "math"]
    """The kernel that really runs."""
    loss: Literal["standard", "liger", "chunked", "vocab_parallel"]
    sequence_parallel: bool
    logits_upcast: bool
    """Logits are copied to fp32 before the loss."""
    effects: tuple[Effect, ...] = ()


class Batch(NamedTuple):
    """Samples and tokens per rank."""

    micro: int
    """Sequences per rank and micro-step (a preference pair is two)."""
    sequence: int
    """Tokens per sequence before the context split."""
    accumulation: int
    global_samples: int
    tokens_per_step: int
    """Over all ranks, per optimizer step."""
    steps: int | None
    padding: bool
    """Shapes differ from step to step (padding to the longest), so the allocator fragments."""


class Facts(NamedTuple):
    """What is known before anything is decided."""

    spec: Spec
    arch: Arch
    gpu: Gpu
    node: Node | None
    layout: Layout
    framework: Framework


class Effective:
    """The effective set-up. Each step is computed once, on first use."""

    def __init__(self, facts: Facts, versions: Versions) -> None:
        self.facts, self.versions = facts, versions
        self.spec, self.arch, self.gpu, self.node, self.layout = facts.spec, facts.arch, facts.gpu, facts.node, facts.layout
        self.framework = facts.framework

    @cached_property
    def numbers(self) -> Numbers:
        """Data types."""
        return _step("numbers")(self)  # type: ignore[no-any-return]

    @cached_property
    def quantized(self) -> Quantized:
        """Base weights."""
        return _step("quantization")(self)  # type: ignore[no-any-return]

    @cached_property
    def adapters(self) -> Adapters:
        """Adapters."""
        return _step("adapters")(self)  # type: ignore[no-any-return]

    @cached_property
    def loading(self) -> Loading:
        """Loading."""
        return _step("loading")(self)  # type: ignore[no-any-return]

    @cached_property
    def sharded(self) -> Sharded:
        """Sharding."""
        return _step("sharding")(self)  # type: ignore[no-any-return]

    @cached_property
    def stepped(self) -> Stepped:
        """Optimizer."""
        return _step("optimizer")(self)  # type: ignore[no-any-return]

    @cached_property
    def offloaded(self) -> Offloaded:
        """Offload."""
        return _step("offload")(self)  # type: ignore[no-any-return]

    @cached_property
    def activations(self) -> Activations:
        """Activations."""
        return _step("activations")(self)  # type: ignore[no-any-return]

    @cached_property
    def batch(self) -> Batch:
        """Batch."""
        return _step("batch")(self)  # type: ignore[no-any-return]

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All silent rewrites."""
        steps = (self.quantized, self.adapters, self.loading, self.sharded, self.stepped, self.offloaded, self.activations)
        return tuple(effect for step in steps for effect in step.effects)


def _step(name: str) -> Callable[[Effective], Any]:
    """The function ``decide`` of one step's module, imported on first use."""
    import importlib

    decide: Callable[[Effective], Any] = importlib.import_module(f"jobgen.effective.{name}").decide
    return decide
