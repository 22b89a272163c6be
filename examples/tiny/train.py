"""Trains a tiny language model on the CPU with gloo: the smallest program that does what a real one must do on a cluster.

It checkpoints every few steps into a folder that appears at once (written beside, then renamed), keeps the newest,
resumes from the newest complete one, and saves and leaves when it is told that time is up (SIGUSR1 or SIGTERM).
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EXIT_ASKED = 143
"""Left because it was told to, with the work saved but not finished."""


class Model(torch.nn.Module):
    """A byte-level causal language model with one attention layer."""

    def __init__(self, width=64, vocabulary=256):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf"), device=tokens.device).triu(1)
        return self.head(self.layer(self.embedding(tokens), mask))


def newest(directory):
    """The newest complete checkpoint, or None: a folder without its marker was cut off half-written."""
    steps = [
        int(name.removeprefix("step-"))
        for name in (os.listdir(directory) if os.path.isdir(directory) else [])
        if name.startswith("step-") and os.path.exists(os.path.join(directory, name, "complete"))
    ]
    return os.path.join(directory, f"step-{max(steps)}") if steps else None


def save(directory, step, model, optimizer, keep):
    """Write a checkpoint beside its final place and rename it, then drop the oldest."""
    folder = os.path.join(directory, f"step-{step}")
    if os.path.exists(os.path.join(folder, "complete")):
        return
    partial = f"{folder}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, os.path.join(partial, "state.pt"))
    with open(os.path.join(partial, "complete"), "w"):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(partial, folder)
    kept = sorted((int(n[5:]) for n in os.listdir(directory) if n.startswith("step-") and n[5:].isdigit()), reverse=True)
    for old in kept[keep:]:
        shutil.rmtree(os.path.join(directory, f"step-{old}"), ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="wait, to look like a longer job")
    options = parser.parse_args()

    asked = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda received, _: asked.append(received))

    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # started as one plain process
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    found = newest(options.directory)
    if found:
        state = torch.load(os.path.join(found, "state.pt"), map_location="cpu")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    if rank == 0:
        print(f"{'resumed at' if found else 'started at'} step {first} on {world} ranks", flush=True)

    with open(os.path.abspath(__file__), "rb") as source:
        text = source.read()
    for step in range(first + 1, options.steps + 1):
        place = random.Random(step * world + rank)
        starts = [place.randrange(len(text) - options.sequence - 1) for _ in range(options.batch)]
        tokens = torch.tensor([list(text[s : s + options.sequence + 1]) for s in starts])
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.seconds_per_step)
        stop = torch.tensor([len(asked)])
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)  # all ranks leave after the same step
        if rank == 0 and (step % options.save_every == 0 or step == options.steps or stop.item()):
            save(options.directory, step, model, optimizer, options.keep)
            print(f"step {step} loss {loss.item():.3f} saved", flush=True)
        if stop.item() and step < options.steps:
            dist.barrier()
            if rank == 0:
                print(f"told to stop, saved at step {step}", flush=True)
            for number in (signal.SIGUSR1, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            sys.exit(EXIT_ASKED)
    dist.barrier()
    if rank == 0:
        print(f"finished at step {options.steps}", flush=True)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
