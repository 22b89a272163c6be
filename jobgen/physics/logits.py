"""Logits and loss: what is alive at the worst moment between the head's forward and its backward.

Each implementation is a list of moments; a moment is a list of (name, bytes per logit). The moment with the most bytes
stands in the ledger, part by part, in the phase ``loss``: the gradient of the logits is consumed by the head before
the last layer's backward begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.physics.ledger import EVALUATE, LOSS, Term
from jobgen.physics.sizes import Sizes, Stage
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

Parts = tuple[tuple[str, float], ...]
"""(what it is, bytes per logit)."""
WITHOUT_VOCABULARY = frozenset({"reward"})
"""Objectives whose head has one output."""
CHUNKS = 8
"""torchtune's num_output_chunks (modules/loss/ce_chunked_output_loss.py)."""


class Loss(NamedTuple):
    """One implementation. ``moments`` are compared by their sum; ``evaluation`` is the forward pass alone."""

    moments: tuple[Parts, ...]
    evaluation: float
    """Bytes per logit of a forward pass that keeps no graph."""
    source: str


def standard(compute: float, objective: str, converted: bool, capped: bool) -> Loss:
    """transformers' ForCausalLMLoss: an fp32 copy of the logits, log-softmax, negative log likelihood.

    Soft-capped logits keep the tanh they were made of (modeling_gemma2.py Gemma2ForCausalLM). Backward holds the saved log-softmax, the gradient that nll_loss makes and the one that log_softmax makes, all
    fp32. accelerate's convert_outputs_to_fp32 adds an fp32 copy of the returned logits after the loss was computed.
    """
    tanh: Parts = (("tanh of the capped logits", compute),) if capped else ()
    made: Parts = (("logits", compute),) if compute == 4 else (("logits", compute), ("logits in fp32", 4))
    forward: Parts = (*tanh, *made, ("log-softmax", 4))
    backward: Parts = (*tanh, ("log-softmax", 4), ("gradient of the likelihood", 4), ("gradient of the logits", 4))
    moments: tuple[Parts, ...] = (forward, backward)
    if converted:
        moments = (*moments, (*tanh, ("log-softmax", 4), ("logits", compute), ("returned logits in fp32", 4)))
    if objective in ("dpo", "orpo", "kto"):
        moments = (*moments, (("policy's logits", 4), ("reference model's logits", compute), ("reference model's logits in fp32", 4)))
    return Loss(
        moments, sum(size for _, size in forward),
        "transformers loss/loss_utils.py ForCausalLMLoss, torch log_softmax and nll_loss backward; accelerate utils/operations.py ConvertOutputsToFp32",
    )  # fmt: skip


def vocabulary_parallel(compute: float) -> Loss:
    """Megatron's cross entropy over a cut vocabulary: fp32 copy, exponentials in place, gradient in the same buffer."""
    parts: Parts = (("logits", compute), ("softmax in fp32", 4))
    return Loss((parts,), compute + 4, "Megatron-LM core/tensor_parallel/cross_entropy.py VocabParallelCrossEntropy")


def loss_parallel(compute: float) -> Loss:
    """torch's loss_parallel: log-softmax and likelihood backward in one, with three more tensors of its size."""
    backward: Parts = (("log-softmax", 4), ("gradient of the likelihood", 4), ("probabilities and their sum", 4), ("gradient of the logits", 4))
    return Loss((backward,), compute + 8, "torch distributed/tensor/parallel/loss.py _nll_loss_and_log_softmax_backward")


def fused_kernel(compute: float) -> Loss:
    """A kernel that reads 16-bit logits and writes their gradient over them (Unsloth before it cut the loss in pieces)."""
    return Loss(((("logits", compute),),), compute, "unsloth kernels/cross_entropy_loss.py Fast_CrossEntropyLoss")


def compiled(compute: float) -> Loss:
    """A compiled loss: fp32 exists in registers only; the logits and their gradient remain."""
    parts: Parts = (("logits", compute), ("gradient of the logits", compute))
    return Loss((parts,), compute, "torchtitan components/loss.py build_cross_entropy_loss, 0.1 and later: torch.compile of the loss")


def output_chunks(compute: float) -> Loss:
    """Logits made in chunks, each chunk's log-softmax kept in fp32; only one chunk is in backward at a time."""
    forward: Parts = (("logits", compute), ("log-softmax", 4), ("one chunk in fp32", 4 / CHUNKS))
    backward: Parts = (("log-softmax", 4), ("one chunk's gradients", (8 + compute) / CHUNKS))
    return Loss((forward, backward), compute, "torchtune modules/loss/ce_chunked_output_loss.py; logits are deleted before backward")


def head_chunks(method: str, sequence: int) -> Loss:
    """LitGPT: Fabric returns fp32 logits; cross entropy goes 128 tokens at a time, which adapters' recipes do in the head too.

    The logits live through backward. Where they were made whole, the chunks' gradients are joined in backward.
    """
    share = min(1.0, 128 / sequence)
    kept: Parts = (("logits in fp32", 4), ("log-softmax", 4), ("one chunk's gradients", 8 * share))
    whole: Parts = (("logits in fp32", 4), ("gradients of chunks", 4), ("gradient of the logits", 4))
    return Loss(
        (kept,) if method != "full" else (kept, whole), 4,
        "lightning fabric/plugins/precision/half.py convert_output; litgpt utils.py chunked_cross_entropy; finetune/lora.py, full.py",
    )  # fmt: skip


def surely_compiled(effective: Effective) -> bool:
    """torchtitan compiles the loss too since 0.1; where the release is unknown the larger answer stands."""
    training = effective.spec.training
    return training.framework == "torchtitan" and training.compile and effective.versions.interval("torchtitan").low >= (0, 1)


def pieces(effective: Effective) -> Loss | None:
    """The implementation, or None where logits never exist whole."""
    training, numbers, now = effective.spec.training, effective.numbers, effective.activations
    compute, framework = numbers.compute, training.framework
    if now.loss in ("liger", "chunked"):
        return output_chunks(compute) if now.loss == "chunked" and framework in ("torchtune", "litgpt", "custom") else None
    if framework == "unsloth":
        return fused_kernel(compute) if effective.versions["unsloth"] < (2025, 9) else None
    if now.loss == "vocab_parallel" and framework != "torchtitan":
        return vocabulary_parallel(compute)
    if now.loss == "vocab_parallel" and not surely_compiled(effective):
        return loss_parallel(compute)
    if surely_compiled(effective):
        return compiled(compute)
    if framework == "litgpt":
        return head_chunks(training.method, effective.batch.sequence)
    if framework == "torchtune":
        return output_chunks(compute)
    converted = framework in ("transformers", "trl", "accelerate", "llama-factory", "axolotl", "ms-swift") and training.precision in ("bf16", "fp16")
    return standard(compute, training.objective, converted, effective.arch.logit_softcap)


def backward_beyond_forward(effective: Effective, sizes: Sizes, stage: Stage) -> Any:
    """Bytes by which the loss's fullest moment exceeds its forward pass, when what lived in forward only is gone."""
    loss = pieces(effective)
    if loss is None or not stage.head or effective.spec.training.objective in WITHOUT_VOCABULARY:
        return 0.0
    most = max(sum(size for _, size in parts) for parts in loss.moments)
    return (most - loss.evaluation) * sizes.micro * sizes.sequence * effective.arch.vocab


def terms(effective: Effective, sizes: Sizes, stage: Stage) -> tuple[Term, ...]:
    """The ledger's terms of the stage that holds the head."""
    training, arch = effective.spec.training, effective.arch
    if not stage.head or training.objective in WITHOUT_VOCABULARY:
        return ()
    tokens: Any = sizes.micro * sizes.sequence
    cut = effective.activations.loss == "vocab_parallel"
    vocabulary: Any = arch.vocab / sizes.tensor if cut else arch.vocab
    loss = pieces(effective)
    result = []
    if loss is None:
        result.extend(_fused(effective, tokens, vocabulary))
    else:
        worst = max(loss.moments, key=lambda parts: sum(size for _, size in parts))
        for name, size in worst:
            result.append(
                Term(
                    f"loss_{name.replace(' ', '_').replace(chr(39), '')}", "logits_and_loss", "allocated", LOSS,
                    size * tokens * vocabulary, f"{name}: {size:g} bytes x tokens x vocabulary", loss.source,
                )
            )
    evaluation = training.evaluation
    if evaluation is not None:
        size = loss.evaluation if loss is not None else effective.numbers.compute
        ratio = (evaluation.micro_batch_size or training.micro_batch_size) / training.micro_batch_size
        result.append(Term("evaluation_logits", "logits_and_loss", "allocated", EVALUATE, size * tokens * ratio * vocabulary, f"logits of an evaluation step: {size:g} bytes x tokens x vocabulary", "transformers trainer.py prediction_step"))
    return tuple(result)


def _fused(effective: Effective, tokens: Any, vocabulary: Any) -> list[Term]:
    """Losses that never hold all logits: one chunk, and what forward already makes of the gradients.

    Liger cuts the tokens into ``vocabulary / hidden`` chunks, so that one chunk's logits are as large as the hidden
    states, and makes both gradients in forward (ops/fused_linear_cross_entropy.py).
    """
    compute, hidden = effective.numbers.compute, effective.arch.hidden
    trained = effective.spec.training.method == "full"
    chunk = compute * tokens * hidden
    source = "Liger-Kernel ops/fused_linear_cross_entropy.py; apple/ml-cross-entropy cce_backward.py"
    result = [
        Term("loss_hidden_gradient", "logits_and_loss", "allocated", LOSS, compute * tokens * hidden, "gradient of the hidden states, made with the loss", source),
    ]
    if effective.activations.loss == "chunked":
        return result
    result.append(Term("loss_chunk", "logits_and_loss", "allocated", LOSS, chunk, "one chunk of logits: tokens x hidden", source))
    if trained:
        result.append(Term("loss_head_gradient", "logits_and_loss", "allocated", LOSS, compute * vocabulary * hidden, "gradient of the head, made with the loss", source))
    return result
