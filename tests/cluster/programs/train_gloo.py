"""A tiny data-parallel training on the CPU for the cluster tests: gloo, periodic checkpoints, resumes, tells its story.

Every start and end is a line of DIR/history.jsonl (written by rank 0), so that a test can ask what really happened.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist


def newest(folder):
    found = [path for path in folder.glob("checkpoint-*") if (path / "done").exists()]
    return max(found, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def save(folder, step, model):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    torch.save({"step": step, "model": model.state_dict()}, path / "state.pt")
    (path / "done").write_text("")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--fail-at", type=int, default=-1, help="this step fails in the first attempt")
    parser.add_argument("--kill-at", type=int, default=-1, help="rank 1 kills itself there in the first attempt")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ.get("JOBGEN_ATTEMPT", "0")) + int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reached = options.directory / "reached"
    before = int(reached.read_text()) if reached.exists() else 0
    start, source = 0, options.resume or newest(options.directory)
    if source is not None:
        state = torch.load(source / "state.pt")
        start = state["step"]
        model.load_state_dict(state["model"])

    def tell(**facts):
        if rank == 0:
            line = {"attempt": attempt, "world": world, "host": os.uname().nodename, **facts}
            with (options.directory / "history.jsonl").open("a") as history:
                history.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)

    print(f"this is rank {rank}", flush=True)
    tell(event="start", step=start, reached=before, resumed=str(source) if source else None)
    for step in range(start + 1, options.steps + 1):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        if rank == 0:
            reached.write_text(str(step))
        if rank == 0 and step % options.every == 0:
            save(options.directory, step, model)
        if attempt == 0 and step == options.fail_at and rank == world - 1:
            raise RuntimeError(f"told to fail at step {step}")
        if attempt == 0 and step == options.kill_at and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(options.pause)
    dist.barrier()
    tell(event="end", step=options.steps)


if __name__ == "__main__":
    main()
