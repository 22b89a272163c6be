"""Peak memory of FSDP2 training simulated without GPUs: ``fully_shard`` over a fake process group and fake tensors.

fp32 parameters, gradients and AdamW moments are sharded; forward and backward run in bf16 (MixedPrecisionPolicy).
A dispatch mode follows every storage, including those that FSDP resizes; two steps are run and the second is measured.

    python fsdp.py        rewrites fsdp.jsonl (needs torch, transformers); each case runs in a process of its own
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

CASES = [
    {"model": model, "layers": 4, "world": world, "checkpointing": checkpointing, "sequence": sequence}
    for model, sequence in (("meta-llama/Llama-3.1-8B", 4096), ("Qwen/Qwen3-4B", 4096), ("mistralai/Mistral-7B-v0.1", 8192))
    for world in (2, 8)
    for checkpointing in (False, True)
]


def measure(
    config: dict[str, Any], layers: int, world: int, checkpointing: bool, sequence: int
) -> dict[str, int]:
    """Peaks of one rank: of the whole step, and bytes between steps."""
    import saved
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    class Live(saved.Live):
        """Follows ``storage.resize_`` too, with which FSDP frees and allocates gathered parameters."""

        def __enter__(self) -> Any:
            self.original = original = torch.UntypedStorage.resize_

            def resize(storage: Any, size: int) -> None:
                original(storage, size)
                key = storage._cdata
                if key in self.resized or self.seen.get(key):
                    self.live += int(size) - self.seen.get(key, 0)
                    self.seen[key] = int(size)
                    self.resized.add(key)
                    self.peak = max(self.peak, self.live)

            self.resized: set[int] = set()
            torch.UntypedStorage.resize_ = resize
            return super().__enter__()

        def __exit__(self, *arguments: Any) -> Any:
            torch.UntypedStorage.resize_ = self.original
            return super().__exit__(*arguments)

        def _add(self, tensor: Any) -> None:
            try:
                storage = tensor.untyped_storage()
            except (RuntimeError, NotImplementedError):
                return
            key = storage._cdata
            if key in self.seen:
                return
            size = int(storage.nbytes())
            self.seen[key] = size
            self.live += size
            self.peak = max(self.peak, self.live)

            def dead(key: int = key) -> None:
                self.live -= self.seen.pop(key, 0)
                self.resized.discard(key)

            weakref.finalize(storage, dead)

    saved.prepare()
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    model = saved.build(saved.configuration(config, layers), torch.float32, saved.NAMES["flash"])
    model.train()
    mesh = init_device_mesh("cpu", (world,))
    with FakeTensorMode(allow_non_fake_inputs=True):
        saved.to_fake(model)
        stack = saved.decoder_layers(model)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for index, layer in enumerate(stack):
            if checkpointing:
                stack[index] = layer = checkpoint_wrapper(layer, preserve_rng_state=False)
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        parameters = list(model.parameters())
        shards = [parameter._local_tensor.detach() for parameter in parameters]
        for shard in shards:
            shard.requires_grad_(True)
        optimizer = torch.optim.AdamW(shards, lr=1e-4, foreach=True)
        ids, labels = (torch.zeros((1, sequence), dtype=torch.long) for _ in range(2))
        live = Live(set())
        with live:
            for parameter in parameters:
                live._add(parameter._local_tensor)
            live.ignore([ids, labels])
            for _ in range(2):
                live.mark("step")
                loss = model(input_ids=ids, labels=labels, use_cache=False).loss
                loss.backward()
                del loss
                for parameter, shard in zip(parameters, shards, strict=True):
                    if parameter.grad is not None:
                        shard.grad = parameter.grad._local_tensor
                        parameter.grad = None
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                gc.collect()
        return {"peak": live.peak, "between": live.live}


if __name__ == "__main__":
    import rows

    sys.exit(rows.main(__file__, CASES, measure))
