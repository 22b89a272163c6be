"""Fabric profiles: every value has its reason and source, and what must not be set is not."""

import re

import pytest

from jobgen.catalog import fabrics, nodes

NAMES = fabrics.names()


def sides(fabric):
    return (("slurm", fabric.slurm), ("kubernetes", fabric.kubernetes))


def test_the_profiles_of_the_contract_are_there():
    wanted = {"none", "tcp", "infiniband", "roce", "efa", "slingshot", "gcp-tcpx", "gcp-tcpxo", "gcp-gib", "azure-ib", "oci-roce"}
    assert wanted <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_named_as_its_file_and_dated(name):
    fabric = fabrics.find(name)
    assert fabric.name == name and re.fullmatch(r"20[0-9]{2}-[0-9]{2}", fabric.date)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_reason_and_a_source(name):
    fabric = fabrics.find(name)
    for _, side in sides(fabric):
        for row in (*side.env, *side.library_path, *side.mounts, *side.resources, *side.annotations, *side.capabilities, *side.sidecars):
            assert len(row.why) > 8 and len(row.source) > 8, row
        assert all(conf.source for conf in side.nccl_conf)
        assert bool(side.source_script) == bool(side.source_script_why)
    assert all(row.why and row.source for row in fabric.unset)
    assert all(row.why for row in fabric.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_set_that_must_be_left_alone(name):
    fabric = fabrics.find(name)
    left = {row.name for row in fabric.unset}
    for kind, side in sides(fabric):
        assert not left & {row.name for row in side.env}, kind


@pytest.mark.parametrize("name", NAMES)
def test_gloo_gets_one_name_and_nccl_no_half_exclusion(name):
    for _, side in sides(fabrics.find(name)):
        env = {row.name: row.value for row in side.env}
        assert re.fullmatch(r"[a-z0-9]+", env.get("GLOO_SOCKET_IFNAME", "eth0"))
        excluded = env.get("NCCL_SOCKET_IFNAME", "")
        assert not excluded.startswith("^") or {"docker", "lo"} <= set(excluded[1:].split(","))


@pytest.mark.parametrize("name", NAMES)
def test_rdma_on_kubernetes_may_pin_memory_or_says_why_not(name):
    fabric = fabrics.find(name)
    pins = any(row.name == "IPC_LOCK" for row in fabric.kubernetes.capabilities) or fabric.kubernetes.privileged
    assert not fabric.rdma or pins or name in ("coreweave-ib", "slingshot")


@pytest.mark.parametrize("name", NAMES)
def test_sidecars_mount_what_the_profile_has(name):
    side = fabrics.find(name).kubernetes
    have = {row.name for row in side.mounts} | {"shm"}
    assert all(set(sidecar.mounts) <= have for sidecar in side.sidecars)


@pytest.mark.parametrize("name", NAMES)
def test_the_explanation_names_every_value(name):
    fabric, text = fabrics.find(name), fabrics.explain(name)
    for _, side in sides(fabric):
        assert all(f"{row.name}={row.value}" in text and row.why in text for row in side.env)
    assert all(row.name in text for row in fabric.unset)


def test_every_fabric_of_a_node_type_has_a_profile():
    assert {node.fabric for node in nodes.every()} <= set(NAMES)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(fabrics.UnknownFabric) as caught:
        fabrics.find("infinband")
    assert caught.value.nearest[0] == "infiniband"


def test_a_name_that_is_near_to_none_is_answered_with_all():
    with pytest.raises(fabrics.UnknownFabric) as caught:
        fabrics.find("nonsense")
    assert caught.value.nearest == () and all(name in str(caught.value) for name in NAMES)


def test_a_user_can_bring_a_file(tmp_path):
    file = tmp_path / "ours.yaml"
    file.write_text(
        "name: ours\ntitle: our network\ndate: 2026-11\n"
        "kubernetes:\n  env:\n    - {name: NCCL_IB_TC, value: '106', why: our lossless class, source: the site's wiki}\n"
    )
    assert fabrics.find("ours.yaml", tmp_path).kubernetes.env[0].value == "106"
    assert fabrics.find(str(file)).name == "ours"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\ntitle: b\ndate: c\nkubernets: {}\n", "unknown key 'kubernets'"),
        ("name: a\ntitle: b\n", "`date` is missing"),
        ("name: a\ntitle: b\ndate: c\nslurm: {env: {A: 1}}\n", "slurm.env: a list is expected"),
        ("name: a\ntitle: b\ndate: c\nslurm: {env: [{name: A, value: 1, why: w}]}\n", "slurm.env[0]: `source` is missing"),
        ("name: a\ntitle: b\ndate: c\nrdma: maybe\n", "true or false"),
        ("name: a\ntitle: b\ndate: c\nkubernetes: {gpus_per_pod: all}\n", "a whole number"),
        ("- a\n", "a map is expected"),
        ("a: [\n", "ours.yaml"),
    ],
)
def test_a_broken_file_is_explained(tmp_path, text, words):
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(fabrics.BadFabric, match=re.escape(words)):
        fabrics.find("ours.yaml", tmp_path)


def test_the_digest_is_that_of_the_profiles(monkeypatch):
    assert fabrics.DIGEST.read_text(encoding="utf-8") == fabrics.digest(), "run python -m jobgen.catalog.fabrics"
    quick = {name: fabrics.find(name) for name in NAMES}
    monkeypatch.setattr(fabrics, "_digested", lambda path, written: None)
    fabrics._load.cache_clear()
    assert {name: fabrics.find(name) for name in NAMES} == quick
