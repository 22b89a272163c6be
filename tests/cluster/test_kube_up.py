"""The test cluster itself: what other tests take for granted."""

from __future__ import annotations

import os
import time

import kube
import pytest
from kube_jobs import KINDS, KubeCommandLine, namespace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"),
]
GONE_SECONDS = 120


def test_every_announced_api_answers():
    """One that does not keeps every deleted namespace for ever."""
    silent = {item["metadata"]["name"]: item["status"] for item in kube.items("apiservices", "default") if not available(item)}
    assert silent == {}


def available(item):
    return any((row["type"], row["status"]) == ("Available", "True") for row in item["status"]["conditions"])


def test_a_deleted_namespace_goes_away_with_the_jobs_in_it(tmp_path):
    with namespace() as name:
        cli = KubeCommandLine(tmp_path, name)
        for target in KINDS:
            cli.sent(cli.idle(f"left-{target}"), target)
        kube.kubectl("delete", "namespace", name, "--wait=false")
        deadline = time.monotonic() + GONE_SECONDS
        while kube.get("namespace", name, "default"):
            assert time.monotonic() < deadline, kube.get("namespace", name, "default")["status"]
            time.sleep(1)
