"""The models that torchtitan registers, by the architecture they have."""

from __future__ import annotations

from jobgen.catalog.arch import Arch
from jobgen.frameworks.rows import version
from jobgen.frameworks.table import Version
from jobgen.spec.record import NamedTuple

SOURCE = "torchtitan 0.1.0-0.2.2 models/llama3|qwen3|deepseek_v3/__init__.py (llama3_args, qwen3_args, deepseekv3_args)"


class Flavor(NamedTuple):
    """One registered model: its sizes and the first release that has it."""

    name: str
    """``model.name``; from 0.3 ``--module``."""
    flavor: str
    model_types: tuple[str, ...]
    hidden: int
    depth: int
    heads: int
    kv_heads: int
    vocab: int
    widths: tuple[int, int, int, int]
    """Dense MLP, experts, experts of a token, width of one (0 where there is none)."""
    since: Version = version("0.1")


_QWEN = ("qwen3", "qwen3_moe")
_SINCE = version("0.2")
FLAVORS = (
    Flavor("llama3", "8B", ("llama",), 4096, 32, 32, 8, 128256, (14336, 0, 0, 0)),
    Flavor("llama3", "70B", ("llama",), 8192, 80, 64, 8, 128256, (28672, 0, 0, 0)),
    Flavor("llama3", "405B", ("llama",), 16384, 126, 128, 8, 128256, (53248, 0, 0, 0)),
    Flavor("qwen3", "0.6B", _QWEN, 1024, 28, 16, 8, 151936, (3072, 0, 0, 0), _SINCE),
    Flavor("qwen3", "1.7B", _QWEN, 2048, 28, 16, 8, 151936, (6144, 0, 0, 0), _SINCE),
    Flavor("qwen3", "4B", _QWEN, 2560, 36, 32, 8, 151936, (9728, 0, 0, 0), _SINCE),
    Flavor("qwen3", "8B", _QWEN, 4096, 36, 32, 8, 151936, (12288, 0, 0, 0), _SINCE),
    Flavor("qwen3", "14B", _QWEN, 5120, 40, 40, 8, 151936, (17408, 0, 0, 0), _SINCE),
    Flavor("qwen3", "32B", _QWEN, 5120, 64, 64, 8, 151936, (25600, 0, 0, 0), _SINCE),
    Flavor("qwen3", "30B-A3B", _QWEN, 2048, 48, 32, 4, 151936, (0, 128, 8, 768), _SINCE),
    Flavor("qwen3", "235B-A22B", _QWEN, 4096, 94, 64, 4, 151936, (0, 128, 8, 1536), _SINCE),
    Flavor("deepseek_v3", "16B", ("deepseek_v2",), 2048, 27, 16, 16, 102400, (10944, 64, 6, 1408), _SINCE),
    Flavor("deepseek_v3", "236B", ("deepseek_v2",), 5120, 60, 128, 128, 102400, (12288, 160, 6, 1536), _SINCE),
    Flavor("deepseek_v3", "671B", ("deepseek_v3",), 7168, 61, 128, 128, 129280, (18432, 256, 8, 2048), _SINCE),
)


def find(arch: Arch) -> Flavor | None:
    """The registered model with this architecture."""
    layers = arch.layers
    widths = tuple(max(getattr(layer, name) for layer in layers) for name in ("ffn", "experts", "top_k", "expert_ffn"))
    sizes = (arch.hidden, arch.depth, layers[0].heads, layers[0].kv_heads, arch.vocab, widths)
    for one in FLAVORS:
        if arch.model_type in one.model_types and sizes == (one.hidden, one.depth, one.heads, one.kv_heads, one.vocab, one.widths):
            return one
    return None
