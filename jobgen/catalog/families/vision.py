"""Vision towers with their projectors. ``copies`` of a matrix are the tower's layers.

Shapes read from transformers 5.24.0; nothing here is split by tensor parallelism (frameworks replicate towers).
"""

from __future__ import annotations

from jobgen.catalog.arch import Matrix
from jobgen.catalog.families.fields import Fields
from jobgen.spec.record import NamedTuple

DEEPSTACK = 3
"""Layers of Qwen3-VL's tower that feed early text layers, where the configuration does not list them."""


class Tower(NamedTuple):
    """Matrices of the tower and its projector, and the elements that are no ``nn.Linear``."""

    matrices: tuple[Matrix, ...]
    other_parameters: int


def block(depth: int, bias: bool, **shapes: tuple[int, int]) -> tuple[Matrix, ...]:
    """The matrices of ``depth`` equal layers."""
    return tuple(
        Matrix(name, inputs, outputs, "other", "none", bias, depth) for name, (inputs, outputs) in shapes.items()
    )


def one(name: str, inputs: int, outputs: int, bias: bool = False) -> Matrix:
    """A single ``nn.Linear``."""
    return Matrix(name, inputs, outputs, "other", "none", bias)


def siglip(fields: Fields, text: int) -> Tower:
    """SigLIP, and Gemma 3's projector (a bare parameter)."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("num_hidden_layers")
    patch, image = fields.size("patch_size"), fields.size("image_size")
    square = (hidden, hidden)
    matrices = block(
        depth, True, k_proj=square, v_proj=square, q_proj=square, out_proj=square, fc1=(hidden, ffn), fc2=(ffn, hidden)
    )
    patches = fields.size("num_channels", default=3) * patch * patch * hidden + hidden
    other = patches + (image // patch) ** 2 * hidden + depth * 4 * hidden + 2 * hidden
    if fields.flag("vision_use_head", True):
        matrices += (one("fc1", hidden, ffn, True), one("fc2", ffn, hidden, True),
                     one("out_proj", hidden, hidden, True)._replace(subclass=True))  # fmt: skip
        other += 3 * hidden * hidden + 3 * hidden + hidden + 2 * hidden
    projector = Matrix("mm_input_projection_weight", hidden, text, "other", "none", linear=False)
    return Tower((*matrices, projector), other + hidden)


def pixtral(fields: Fields, text: int) -> Tower:
    """Pixtral, and the projector of Mistral 3 (merges 2 x 2 patches)."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("num_hidden_layers")
    patch, merge = fields.size("patch_size"), fields.outer_fields.size("spatial_merge_size", default=2)
    bias = fields.outer_fields.flag("multimodal_projector_bias")
    square = (hidden, hidden)
    matrices = block(
        depth, False, k_proj=square, v_proj=square, q_proj=square, o_proj=square, gate_proj=(hidden, ffn),
        up_proj=(hidden, ffn), down_proj=(ffn, hidden),
    )  # fmt: skip
    matrices += (
        one("merging_layer", hidden * merge * merge, hidden),
        one("linear_1", hidden, text, bias),
        one("linear_2", text, text, bias),
    )
    patches = fields.size("num_channels", default=3) * patch * patch * hidden
    return Tower(matrices, patches + hidden + depth * 2 * hidden + hidden)


def qwen3(fields: Fields, text: int) -> Tower:
    """The tower of Qwen3.5: fused query, key and value, learned positions, a merger of 2 x 2 patches."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("depth")
    patch, time = fields.size("patch_size"), fields.size("temporal_patch_size")
    merged, out = hidden * fields.size("spatial_merge_size") ** 2, fields.size("out_hidden_size")
    matrices = block(
        depth, True, qkv=(hidden, 3 * hidden), proj=(hidden, hidden), linear_fc1=(hidden, ffn), linear_fc2=(ffn, hidden)
    )
    matrices += (one("linear_fc1", merged, merged, True), one("linear_fc2", merged, out, True))
    listed = fields.numbers("deepstack_visual_indexes")
    deep = len(listed) if listed is not None else DEEPSTACK if "qwen3_vl" in fields.model_type else 0
    if deep:
        matrices += block(deep, True, linear_fc1=(merged, merged), linear_fc2=(merged, out))
    patches = fields.size("in_channels") * time * patch * patch * hidden + hidden
    positions = fields.size("num_position_embeddings") * hidden
    return Tower(matrices, patches + positions + depth * 4 * hidden + 2 * hidden + deep * 2 * merged)


def qwen2_5(fields: Fields, text: int) -> Tower:
    """The tower of Qwen2.5-VL: gated MLPs and RMSNorm, no learned positions."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("depth")
    merged = hidden * fields.size("spatial_merge_size") ** 2
    matrices = block(
        depth, True, qkv=(hidden, 3 * hidden), proj=(hidden, hidden), gate_proj=(hidden, ffn), up_proj=(hidden, ffn),
        down_proj=(ffn, hidden),
    )  # fmt: skip
    matrices += (one("0", merged, merged, True), one("2", merged, fields.size("out_hidden_size"), True))
    return Tower(matrices, _patches(fields, hidden) + depth * 2 * hidden + hidden)


def qwen2(fields: Fields, text: int) -> Tower:
    """The tower of Qwen2-VL: plain MLPs and LayerNorm; its ``hidden_size`` is the text's, ``embed_dim`` its own."""
    hidden, depth = fields.size("embed_dim"), fields.size("depth")
    ffn, merged = int(hidden * fields.number("mlp_ratio", 4)), hidden * fields.size("spatial_merge_size") ** 2
    matrices = block(depth, True, qkv=(hidden, 3 * hidden), proj=(hidden, hidden), fc1=(hidden, ffn), fc2=(ffn, hidden))
    matrices += (one("0", merged, merged, True), one("2", merged, fields.size("hidden_size"), True))
    return Tower(matrices, _patches(fields, hidden) + depth * 4 * hidden + 2 * hidden)


def _patches(fields: Fields, hidden: int) -> int:
    """The convolution that makes a vector of a patch of two frames, without bias."""
    patch, time = fields.size("patch_size"), fields.size("temporal_patch_size")
    return fields.size("in_channels", "in_chans") * time * patch * patch * hidden


def llama4(fields: Fields, text: int) -> Tower:
    """The tower of Llama 4 with its pixel-shuffle adapter and projector."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("num_hidden_layers")
    patch, image = fields.size("patch_size"), fields.size("image_size")
    inner, out = fields.size("projector_input_dim"), fields.size("projector_output_dim")
    square = (hidden, hidden)
    matrices = block(
        depth, True, q_proj=square, k_proj=square, v_proj=square, o_proj=square, fc1=(hidden, ffn), fc2=(ffn, hidden)
    )
    matrices += (
        one("linear", fields.size("num_channels", default=3) * patch * patch, hidden),
        one("fc1", ffn, inner),
        one("fc2", out, out),
        one("linear_1", fields.size("vision_output_dim"), text),
    )
    positions = ((image // patch) ** 2 + 1) * hidden
    return Tower(matrices, hidden + positions + 4 * hidden + depth * 4 * hidden)


def gemma4(fields: Fields, text: int) -> Tower:
    """The tower of Gemma 4: clippable linears (an ``nn.Linear`` named ``linear``), a position table for each axis."""
    hidden, ffn, depth = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("num_hidden_layers")
    heads, head_dim, kv = (
        fields.size("num_attention_heads"),
        fields.size("head_dim"),
        fields.size("num_key_value_heads"),
    )
    patch, positions = fields.size("patch_size"), fields.size("position_embedding_size")
    q, k = heads * head_dim, kv * head_dim
    shapes = ((hidden, q), (hidden, k), (hidden, k), (q, hidden), (hidden, ffn), (hidden, ffn), (ffn, hidden))
    matrices = tuple(Matrix("linear", inputs, outputs, "other", "none", copies=depth) for inputs, outputs in shapes)
    matrices += (
        one("input_proj", 3 * patch * patch, hidden),
        one("embedding_projection", hidden, text)._replace(keep=True),
    )
    return Tower(matrices, 2 * positions * hidden + depth * (4 * hidden + 2 * head_dim))
