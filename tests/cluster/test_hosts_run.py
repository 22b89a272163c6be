"""Target hosts on two machines: network namespaces with names of their own, reached by a stand-in for ssh."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster]
HERE = Path(__file__).parent
HOSTS = {"10.79.0.1": "jgh1", "10.79.0.2": "jgh2"}


def _module(path: Path):
    name = f"jobgen_tests_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


jobs = _module(HERE.parent / "targets" / "shell_jobs.py")


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two network namespaces with an ``ssh`` that enters them the way sshd would: a login shell runs one string."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    folder = tmp_path_factory.mktemp("ssh")
    calls = folder / "calls"
    (folder / "ssh").write_text(
        "#!/bin/bash\nset -e\nprintf '%s\\n' \"$*\" >>" + str(calls) + "\n"
        'while [ "$1" != -- ]; do shift; done\nshift\nhost=$1 command=$2\n'
        "case $host in 10.79.0.1) name=jgh1 ;; 10.79.0.2) name=jgh2 ;; *) exit 255 ;; esac\n"
        'exec env -i PATH="$PATH" HOME=/root ip netns exec "$name" unshare --uts sh -c \'hostname "$1"; exec sh -c "$2"\' sh "$name" "$command"\n'
    )
    (folder / "ssh").chmod(0o755)
    done = subprocess.run(
        ["bash", "-ec", "for n in jgh1 jgh2; do ip netns del $n 2>/dev/null || true; ip netns add $n; ip -n $n link set lo up; done; "
         "ip -n jgh1 link add eth0 type veth peer name eth0 netns jgh2; ip -n jgh1 addr add 10.79.0.1/24 dev eth0; "
         "ip -n jgh2 addr add 10.79.0.2/24 dev eth0; ip -n jgh1 link set eth0 up; ip -n jgh2 link set eth0 up"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
    yield folder
    for name in HOSTS.values():
        subprocess.run(["ip", "netns", "del", name], check=False)


def venv(here: Path) -> dict[str, str]:
    (here / "venv" / "bin").mkdir(parents=True, exist_ok=True)
    if not (here / "venv" / "bin" / "python").exists():
        (here / "venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    return {"venv": str(here / "venv")}


def script(here: Path, **changes: object) -> Path:
    changes = {
        "training__framework": "transformers", "training__versions": {"transformers": "4.57.1"}, "launch__launcher": "python",
        "launch__entrypoint": str(jobs.PROBE), "launch__python": venv(here), "checkpoint__directory": str(here / "ck"),
        "resources__hosts": list(HOSTS),
    } | changes  # fmt: skip
    path = here / "job.sh"
    path.write_text(jobs.script("hosts", **changes))
    return path


def run(machines: Path, path: Path, *words: str, seconds: float = 120, env: dict[str, str] | None = None):
    return subprocess.run(["bash", str(path), *words], env=os.environ | {"PATH": f"{machines}:{os.environ['PATH']}"} | (env or {}),
                          capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL)  # fmt: skip


def probes(here: Path, attempt: int = 0) -> dict[int, dict]:
    return {int(p.stem.split("-")[2]): json.loads(p.read_text()) for p in (here / "ck").glob(f"probe-{attempt}-*.json")}


def test_every_host_gets_its_rank_the_arguments_and_the_secrets(machines, tmp_path):
    words = ["two words", "it's", "$HOME `id`", "a\nb", "日本語", "-n", "", "END_OF_HOST", '"']
    path = script(tmp_path, launch__args=words, launch__env={"MINE": "x'\n$y"}, launch__secrets=["HF_TOKEN"], training__max_steps=1,
                  launch__finish=[f"echo done >> {tmp_path}/finished"])  # fmt: skip
    done = run(machines, path, env={"HF_TOKEN": "hf_'$x y"})
    assert done.returncode == 0, done.stderr
    found = probes(tmp_path)
    assert {rank: one["host"] for rank, one in found.items()} == {0: "jgh1", 1: "jgh2"}
    for one in found.values():
        assert one["argv"][-len(words) :] == words
        assert one["env"]["MINE"] == "x'\n$y"
        assert one["env"]["HF_TOKEN"] == "hf_'$x y"
        assert (one["env"]["MASTER_ADDR"], one["env"]["NNODES"]) == ("10.79.0.1", "2")
    assert len({one["env"]["MASTER_PORT"] for one in found.values()}) == 1
    assert (tmp_path / "finished").read_text() == "done\n"
    assert "hf_" not in (machines / "calls").read_text()
    assert "hf_" not in path.read_text()


def test_a_killed_rank_ends_all_hosts_which_start_again_from_the_checkpoint(machines, tmp_path):
    path = script(tmp_path, launch__restarts=2, launch__env={"PROBE_DIES_RANK": "1", "PROBE_DIES_AT": "12"})
    done = run(machines, path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"attempt 1, node 0, from \S+/checkpoint-[1-3][0-9]?\n", done.stderr)
    assert done.stdout.count("rank 0: finished at step 40") == 1


def test_hosts_end_when_their_starter_is_killed(machines, tmp_path):
    """The pipe is the lifeline: no ssh of its own is needed to end a job whose starter is gone."""
    path = script(tmp_path, training__max_steps=100000)
    starter = subprocess.Popen(["bash", str(path)], env=os.environ | {"PATH": f"{machines}:{os.environ['PATH']}"},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)  # fmt: skip
    wait_for(lambda: len(probes(tmp_path)) == 2)
    pids = [one["pid"] for one in probes(tmp_path).values()]
    starter.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_hosts_started_by_hand(machines, tmp_path):
    """``--node-rank N`` on each host; the others wait until the first has prepared."""
    path = script(tmp_path, training__max_steps=3, launch__prepare=[f"echo $NODE_RANK >> {tmp_path}/prepared"])
    bad = run(machines, path, "--node-rank", "2")
    assert (bad.returncode, "there are nodes 0 to 1" in bad.stderr) == (2, True)
    path = script(tmp_path, training__max_steps=3, launch__prepare=None)
    both = [
        subprocess.Popen(["ip", "netns", "exec", name, "bash", str(path), "--node-rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank, name in enumerate(HOSTS.values())
    ]
    logs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    assert sorted(probes(tmp_path)) == [0, 1]


def test_torchrun_trains_over_two_hosts(machines, tmp_path):
    helper = _module(HERE / "slurm_cluster.py")
    torch = helper.torch_python(tmp_path / "torch")
    if isinstance(torch, str):
        pytest.skip(torch)
    path = script(
        tmp_path, training__framework="custom", training__versions={} if os.environ.get("JOBGEN_TORCH") else {"torch": "1.13.1"},
        launch__launcher="torchrun", launch__entrypoint=str(jobs.ROOT / "examples" / "tiny" / "train.py"), launch__python={"venv": str(torch)},
        launch__env={"GLOO_SOCKET_IFNAME": "eth0"}, launch__args=["--directory", str(tmp_path / "ck"), "--steps", "20", "--save-every", "10"],
        launch__prepare=[f"echo $NODE_RANK >> {tmp_path}/prepared"],
    )  # fmt: skip
    done = run(machines, path, seconds=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started at step 0 on 4 ranks" in done.stdout
    assert "finished at step 20" in done.stdout
    assert (tmp_path / "prepared").read_text() == "0\n"
