"""Profiles under the spec, --set over it, and where each value came from."""

import pytest

from jobgen.spec.document import SpecError, load, load_text

PROFILE = """\
resources:
  gpu: a100-80gb
  memory_per_node: 960GB
  fabric: infiniband
slurm: {partition: gpu, account: ml}
volumes:
  - {mount: /scratch, path: /lustre}
"""


@pytest.fixture
def alps(tmp_path, monkeypatch, base):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "alps.yaml").write_text(PROFILE)
    spec = tmp_path / "s.yaml"
    spec.write_text(base + "cluster: alps\nslurm: {account: mine}\n")
    return spec


def test_the_job_wins_over_the_profile_and_maps_merge(alps):
    document = load(alps)
    assert document.spec.slurm.partition == "gpu" and document.spec.slurm.account == "mine"
    assert document.spec.resources.gpu.name == "h100-80gb" and document.spec.resources.memory_per_node == 960 * 10**9
    assert document.origin("slurm.partition").layer == "profile" and document.origin("slurm.partition").line == 5
    assert document.origin("slurm.account").layer == "spec"
    assert document.origin("slurm.qos").layer == "default" and not document.wrote("slurm.qos")


def test_lists_replace(alps):
    alps.write_text(alps.read_text() + "volumes: [{mount: /local, scratch: true}]\n")
    document = load(alps)
    assert [v.mount for v in document.spec.volumes] == ["/local"]
    assert not document.wrote("volumes.0.path") and document.origin("volumes.0.mount").layer == "spec"


def test_a_short_form_and_a_map_of_two_layers_merge(alps):
    alps.write_text(alps.read_text().replace("gpu: h100-80gb", "gpu: {memory: 40GiB}"))
    assert load(alps).spec.resources.gpu.name == "a100-80gb"


@pytest.mark.parametrize("section", ["name: x", "model: {name: y}", "training: {method: full}", "cluster: z"])
def test_a_profile_holds_no_job(section, alps):
    profile = alps.parent / "clusters" / "alps.yaml"
    profile.write_text(PROFILE + section + "\n")
    with pytest.raises(SpecError) as caught:
        load(alps)
    assert (caught.value.problems[0].file, caught.value.problems[0].line) == (str(profile), 8)


def test_a_mistake_in_a_profile_is_shown_in_the_profile(alps):
    profile = alps.parent / "clusters" / "alps.yaml"
    profile.write_text(PROFILE + "launch: {restart: 3}\n")
    with pytest.raises(SpecError) as caught:
        load(alps)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.column) == (str(profile), 8, 10) and "restarts" in problem.fix
    assert caught.value.sources[str(profile)].startswith("resources")


def test_a_missing_profile_says_where_it_looked_and_what_is_near(alps, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(alps.parent / "config"))
    with pytest.raises(SpecError) as caught:
        load(alps, sets=["cluster=alpz"])
    (problem,) = caught.value.problems
    assert "clusters/alpz.yaml" in problem.message and "config/jobgen/clusters/alpz.yaml" in problem.message
    assert problem.fix == "did you mean alps?" and problem.file == "--set"


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", '""', ".x"])
def test_a_profile_is_a_name_not_a_path(name, base, refuse):
    assert "not the name" in refuse(base + f"cluster: {name}\n")[0].message


def test_a_profile_of_the_users_folder_is_found(alps, monkeypatch):
    folder = alps.parent / "config" / "jobgen" / "clusters"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("slurm: {qos: long}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(alps.parent / "config"))
    assert load(alps, sets=["cluster=mine"]).spec.slurm.qos == "long"


def test_the_command_line_wins(base, accept):
    document = accept(base, ["training.micro_batch_size=4", "volumes=[{mount: /x, scratch: true}]", "volumes.0.mount=/y",
                             "training.optimizer.in_backward=true", "launch.env.DEPTH=3", "kubernetes.node_selector.a.b/c=x",
                             "training.options.peft.r=8"])  # fmt: skip
    spec = document.spec
    assert spec.training.micro_batch_size == 4 and spec.volumes[0].mount == "/y" and spec.training.optimizer.in_backward
    assert spec.launch.env == {"DEPTH": "3"} and spec.kubernetes.node_selector == {"a.b/c": "x"}
    assert spec.training.options == {"peft": {"r": 8}}
    assert document.origin("training.micro_batch_size") == ("command line", "--set", 1, 27)
    assert document.sources["--set"].splitlines()[0] == "training.micro_batch_size=4"


@pytest.mark.parametrize(
    ("word", "message", "fix"),
    [
        ("tensor=2", "no field `tensor`", "parallelism.tensor"),
        ("training.micro_batch=2", "no field", "training.micro_batch_size"),
        ("training", "not path=value", "--set"),
        ("=3", "not path=value", "--set"),
        ("volumes.3.mount=/x", "is empty", "path"),
        ("training..method=full", "no field", "training.method"),
        ("name.x=1", "no field", "name"),
        ("training.max_steps=[1", "not closed", "closing"),
        ("training.max_steps=many", "whole positive count", "1e9"),
        ("launch.time_limit=1:30", "1.1", "1h"),
    ],
)
def test_a_wrong_set_is_explained(word, message, fix, base, refuse):
    (problem,) = refuse(base, [word])
    assert problem.file == "--set" and problem.line == 1 and message in problem.message and fix in problem.fix


def test_a_set_below_a_scalar_is_refused(base, refuse):
    assert "nothing below" in refuse(base + "kubernetes: 3\n", ["kubernetes.queue=a"])[0].message


def test_a_profile_is_no_place_for_a_text_without_file(base):
    with pytest.raises(SpecError, match="there is no profile"):
        load_text(base + "cluster: nowhere\n")
