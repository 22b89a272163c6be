"""Node types, links: the tables are whole and answer by name."""

from __future__ import annotations

import pytest

from jobgen.catalog import gpus, links, nodes

GIB = 2**30


def test_what_a_node_says() -> None:
    p5 = nodes.find("P5.48xlarge")
    assert (p5.gpu, p5.gpus, p5.cpus, p5.cpu_unit) == ("h100-80gb", 8, 192, "vcpu")
    assert (p5.nics, p5.efa_interfaces, p5.fabric) == (32, 32, "efa")
    assert p5.memory_bytes == 2048 * GIB
    assert p5.kubernetes_bytes is not None
    assert p5.slurm_bytes is not None
    assert p5.kubernetes_bytes < p5.memory_bytes
    assert p5.slurm_bytes < p5.memory_bytes
    assert p5.price_per_hour == 55.04


def test_every_node_is_whole() -> None:
    assert len(nodes.every()) == 130
    known = set(gpus.names())
    for node in nodes.every():
        assert nodes.find(node.name.upper()) == node
        assert node.gpu in known
        assert node.gpus > 0
        assert node.cpus > 0
        assert node.memory_bytes > 0
        assert node.source
        for less in (node.kubernetes_bytes, node.slurm_bytes):
            assert less is None or less <= node.memory_bytes


def test_azure_names_without_their_prefix() -> None:
    assert nodes.find("nd96isr_h100_v5").name == "Standard_ND96isr_H100_v5"


def test_an_unknown_node_has_near_ones() -> None:
    with pytest.raises(nodes.UnknownNode) as caught:
        nodes.find("p4de.24xlrge")
    assert caught.value.nearest[0] == "p4de.24xlarge"


def test_links_give_what_was_measured_or_else_the_sheet() -> None:
    assert links.bandwidth("pcie5-x16") == 55.4e9
    assert links.bandwidth("nvlink2") == 150e9
    assert links.bandwidth("nvswitch-h200-8") == 361.4e9
    assert links.bandwidth("nvswitch-h200-8", "all-reduce") == 473.1e9
    assert links.bandwidth("nvlink2", "disk") is None
    assert sum(len(link.measurements) for link in links.every()) == 75
    for link in links.every():
        assert links.find(link.name.upper()) == link
        assert all(item.source or item.confidence.startswith("known") for item in link.measurements)
    latency = links.find("ib-ndr").measurements[0].latency
    assert latency == pytest.approx(2e-6)


def test_an_unknown_link_has_near_ones() -> None:
    with pytest.raises(links.UnknownLink) as caught:
        links.find("pcie5x16gen")
    assert "pcie5-x16" in caught.value.nearest
