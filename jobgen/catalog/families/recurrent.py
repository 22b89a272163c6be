"""Token mixers that are not attention: Mamba-2 and gated delta rules."""

from __future__ import annotations

from jobgen.catalog.arch import Layer, Matrix, Mixer
from jobgen.catalog.families import parts
from jobgen.catalog.families.fields import Fields
from jobgen.spec.record import NamedTuple


class Recurrent(NamedTuple):
    """A mixer with a state: its matrices, norm elements and everything else it holds."""

    mixer: Mixer
    matrices: tuple[Matrix, ...]
    norm_parameters: int
    other_parameters: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    state_dim: int
    float32_parameters: int = 0

    def layer(self, hidden: int, norms: int) -> Layer:
        """A layer with this mixer and ``norms`` norms over the hidden size, still without an MLP."""
        return Layer(
            self.mixer, self.matrices, norms * hidden + self.norm_parameters, self.other_parameters,
            norms_hidden=norms, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim,
            value_dim=self.value_dim, state_dim=self.state_dim, mixer_parameters=self.other_parameters,
            float32_parameters=self.float32_parameters,
        )  # fmt: skip


def mamba2(
    hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int, bias: bool, conv_bias: bool
) -> Recurrent:
    """Mamba-2 (2405.21060): one input projection for gate, values, B, C and time steps, a convolution, a gated norm."""
    inner = heads * head_dim
    conv = inner + 2 * groups * state
    return Recurrent(
        mixer="mamba",
        matrices=(
            parts.linear("in_proj", hidden, inner + conv + heads, "attention", "column", bias),
            parts.linear("out_proj", inner, hidden, "attention", "row", bias),
        ),
        norm_parameters=inner,
        other_parameters=conv * kernel + (conv if conv_bias else 0) + 3 * heads,
        heads=heads,
        kv_heads=groups,
        head_dim=head_dim,
        value_dim=head_dim,
        state_dim=state,
    )


def gated_delta(fields: Fields, hidden: int) -> Recurrent:
    """The gated delta net of Qwen3-Next and Qwen3.5 (2412.06464); they differ in how the projections are grouped."""
    key_heads, value_heads = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    key_dim, value_dim = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    kernel = fields.size("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    if fields.model_type.startswith("qwen3_next"):
        widths = {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * value_heads}
    else:
        widths = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": value_heads,
                  "in_proj_a": value_heads}  # fmt: skip
    return Recurrent(
        mixer="linear",
        matrices=(
            *(parts.linear(name, hidden, width, "attention", "column") for name, width in widths.items()),
            parts.linear("out_proj", values, hidden, "attention", "row"),
        ),
        norm_parameters=value_dim,
        other_parameters=(2 * keys + values) * kernel + 2 * value_heads,
        heads=value_heads,
        kv_heads=key_heads,
        head_dim=key_dim,
        value_dim=value_dim,
        state_dim=key_dim,
    )
