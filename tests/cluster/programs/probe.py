"""A stand-in for a trainer that needs no torch: says what reached it, counts steps, checkpoints, resumes.

Every process writes ``DIRECTORY/probe-ATTEMPT-RANK.json`` with its arguments and environment, byte for byte. With
``--steps`` it counts them, and rank 0 writes ``checkpoint-N/trainer_state.json`` like a transformers Trainer.
"""

import json
import os
import resource
import signal
import socket
import sys
import time


def option(name, default=None):
    words = sys.argv[1:]
    return words[words.index(name) + 1] if name in words else default


def main():
    directory = option("--output_dir") or os.environ["JOBGEN_CHECKPOINT_DIR"]
    rank = int(next((os.environ[name] for name in ("RANK", "SLURM_PROCID", "NODE_RANK") if name in os.environ), "0"))
    attempt = int(os.environ.get("JOBGEN_ATTEMPT", "0"))
    asked = []
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        deaf = os.environ.get("PROBE_DEAF_AT") == str(attempt)
        signal.signal(number, signal.SIG_IGN if deaf else lambda received, _: asked.append(received))
    with open(os.path.join(directory, f"probe-{attempt}-{rank}.json"), "w", encoding="ascii") as file:
        environment = {os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()}
        json.dump({"argv": sys.argv[1:], "env": environment, "host": socket.gethostname(), "pid": os.getpid(), "cwd": os.getcwd(),
                   "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK)}, file)
    step, last = 0, int(option("--max_steps", "0"))
    start = option("--resume_from_checkpoint")
    if start:
        with open(os.path.join(start, "trainer_state.json")) as file:
            step = json.load(file)["global_step"]
    every, pause = int(option("--save_steps", "5")), float(os.environ.get("PROBE_PAUSE", "0.2"))
    print(f"rank {rank}: start at step {step}", flush=True)
    while step < last:
        time.sleep(pause)
        step += 1
        if rank == int(os.environ.get("PROBE_DIES_RANK", "-1")) and attempt == 0 and step == int(os.environ["PROBE_DIES_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and (step % every == 0 or step == last or asked):
            save(directory, step)
            print(f"rank 0: saved {step}", flush=True)
        if asked:
            print(f"rank {rank}: told to stop ({asked[0]}) at step {step}", flush=True)
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            sys.exit(int(os.environ.get("PROBE_EXIT_ASKED", "0")))
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if rank == 0 and last:
        print(f"rank 0: finished at step {step}", flush=True)
        if os.environ.get("PROBE_SAYS_DONE"):
            open(os.environ["JOBGEN_DONE_FILE"], "w").close()
    time.sleep(float(os.environ.get("PROBE_LINGERS", "0")) + 600 * (rank == int(os.environ.get("PROBE_HANGS_RANK", "-1"))))
    sys.exit(int(os.environ.get("PROBE_EXIT", "0")))


def save(directory, step):
    folder = os.path.join(directory, f"checkpoint-{step}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "trainer_state.json.part"), "w") as file:
        json.dump({"global_step": step}, file)
    os.replace(file.name, os.path.join(folder, "trainer_state.json"))


if __name__ == "__main__":
    main()
