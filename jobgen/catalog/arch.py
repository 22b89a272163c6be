"""The architecture of a model as the physics sees it: layers made of matrices, each with how it is split.

Sizes are elements unless a name carries a unit. Everything else (counts by group, adapters, quantised bytes,
activations) is derived from these tuples, so that no figure is written down twice.
"""

from __future__ import annotations

from typing import Literal

from jobgen.spec.record import NamedTuple

Part = Literal["embedding", "attention", "mlp", "expert", "shared_expert", "router", "head", "other"]
"""What a matrix belongs to. ``other`` is a part of another modality (vision or audio tower, projector)."""

Split = Literal["column", "row", "vocab", "none"]
"""How tensor parallelism cuts the matrix (Megatron-LM, Shoeybi et al. 2019, section 3); ``none`` is replicated."""

Mixer = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "conv", "none"]
"""What mixes tokens in a layer. ``none``: the layer has no token mixer (a pure MLP block of a hybrid model)."""


class Matrix(NamedTuple):
    """One weight matrix of ``outputs x inputs`` elements, held ``copies`` times (one per expert).

    ``linear``: an ``nn.Linear`` in transformers (4-bit quantisers and ``all-linear`` adapters see it).
    ``fused_since``: the transformers release from which the experts are one 3-D parameter that they do not see;
    ``None`` where that never happened.
    """

    name: str
    """Module name as Hugging Face writes it, last component: ``q_proj``, ``gate_up_proj``, ``lm_head``."""
    inputs: int
    outputs: int
    part: Part
    split: Split
    bias: bool = False
    copies: int = 1
    linear: bool = True
    fused_since: tuple[int, ...] | None = None
    unfused: tuple[str, ...] = ()
    """Names of the equal ``nn.Linear`` modules that held it before ``fused_since``; () where it was one of its own name."""
    subclass: bool = False
    """A subclass of ``nn.Linear``: adapters see it, the 4-bit quantiser of transformers 5 converts the exact type only."""
    keep: bool = False
    """On the model's list of modules that quantisers leave alone (the head always is)."""
    float32: bool = False
    """Held in fp32 whatever the model's dtype (most routers since DeepSeek-V3)."""
    adapter_rank: int = 0
    """Multiple of the LoRA rank that peft >= 0.19 gives a parameter it sees although it is not ``linear``; 0: unseen."""

    @property
    def parameters(self) -> int:
        """Elements of all copies, bias included."""
        return self.copies * (self.inputs * self.outputs + (self.outputs if self.bias else 0))


class Layer(NamedTuple):
    """One kind of decoder layer; ``Arch.pattern`` says where it stands."""

    mixer: Mixer
    matrices: tuple[Matrix, ...]
    norm_parameters: int
    """Elements of the layer's norms (replicated under tensor parallelism)."""
    other_parameters: int = 0
    """Elements that are neither matrices nor norms: convolutions, decay vectors, sinks."""
    norms_hidden: int = 2
    """Norms over the hidden size (2 in a pre-norm layer, 4 in Gemma 2 and the like)."""
    norms_head: int = 0
    """Norms over the head dimension (q_norm and k_norm: 2)."""
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    """Query and key width of a head (MLA: nope + rope)."""
    value_dim: int = 0
    """Value width of a head."""
    window: int | None = None
    """Attention window in tokens of a sliding or chunked layer."""
    latent_dims: tuple[int, ...] = ()
    """MLA: (q_lora_rank, kv_lora_rank, qk_rope_head_dim); 0 where there is no compression."""
    state_dim: int = 0
    """Mamba or linear attention: the recurrent state's width per head."""
    ffn: int = 0
    """Width of the dense MLP (0: none)."""
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    """Total width of the experts that every token visits."""
    gated: bool = True
    """The MLP has a gate (SwiGLU, GeGLU)."""
    activation: str = "silu"
    dropouts: tuple[float, ...] = ()
    """Non-zero dropout probabilities inside the layer (residual, embedding or hidden)."""
    router_parameters: int = 0
    """Of ``other_parameters``, elements that belong to the router (correction biases, per-expert scales)."""
    mixer_parameters: int = 0
    """Of ``other_parameters``, elements that belong to the token mixer (convolutions, decays, sinks)."""
    float32_parameters: int = 0
    """Of norms and ``other_parameters``, elements held in fp32 whatever the model's dtype."""


class Arch(NamedTuple):
    """A whole model. ``layers[pattern[i]]`` is decoder layer i."""

    name: str
    model_type: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    pattern: tuple[int, ...]
    outer: tuple[Matrix, ...]
    """Embeddings (token, position, per-layer ...), the head and the matrices of other modalities (part ``other``, with
    ``copies`` for their layers); a tied head is absent and ``tied`` is set."""
    tied: bool
    final_norm_parameters: int
    other_parameters: int = 0
    """Parameters of no matrix and no layer: norms, convolutions and positions of a vision tower, a head's own bias."""
    other_linear_parameters: int = 0
    """Of those, elements held by ``nn.Linear`` modules (0 where the tower's matrices stand in ``outer``)."""
    float32_parameters: int = 0
    """Of ``other_parameters`` and the final norm, elements held in fp32 whatever the model's dtype."""
    router_buffers: int = 0
    """Elements of the routers' correction biases that transformers holds as buffers: in checkpoints, never trained."""
    max_positions: int = 0
    """The longest sequence that its positions are made for, with the scaling of RoPE that its configuration asks for."""
    rotary_base: float = 0.0
    """Base of RoPE; 0: the configuration does not say."""
    norm_epsilon: float = 0.0
    """Added under the root of RMSNorm; 0: the configuration does not say."""
    layer_norm: bool = False
    """LayerNorm (mean and variance, bias) rather than RMSNorm."""
    learned_positions: bool = False
    residual_fp32: bool = False
    logit_softcap: bool = False
    first_release: tuple[int, ...] | None = None
    """The first transformers release that has this model_type; None: code comes with the weights or is older than 4.38."""
    module_class: str = ""
    """The decoder layer's class in transformers (``Qwen3MoeDecoderLayer``): FSDP wraps it."""
    moe_class: str = ""
    """The sparse MoE block's class (``Qwen3MoeSparseMoeBlock``): a ZeRO-3 leaf; empty for a dense model."""

    @property
    def depth(self) -> int:
        """Number of decoder layers."""
        return len(self.pattern)

    @property
    def moe(self) -> bool:
        """Some layer has routed experts."""
        return any(layer.experts for layer in self.layers)
