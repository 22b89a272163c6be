"""The last that pods wrote, which they leave beside the checkpoints: read by a small pod that mounts the same claim."""

from __future__ import annotations

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.kube_api import MANAGER, Api
from jobgen.schedulers.kube_objects import Item
from jobgen.schedulers.submit import Say

SECONDS = 90.0
"""How long the pod may take to be scheduled and to read."""
SKEW_SECONDS = 600
"""Between the clocks of this machine and of the storage."""
POLL_SECONDS = 0.5
READ = r"""
find "$1" -maxdepth 1 -type f -name "$2.*" -newermt "@$3" | while IFS= read -r file; do
  printf '\n%s %s\n' "$4" "${file##*/}"
  cat -- "$file"
done
"""
"""Folder, job, since when, and a mark that no output holds."""
_NAME = re.compile(rb"\.(\d+)\.(\d+)$")
"""Attempt and node."""
SHARED = ("nodeSelector", "tolerations", "serviceAccountName", "imagePullSecrets")
"""Of the job's pods, what lets a pod run where they ran."""


class Kept:
    """Of one job. ``created``: what is older is another's of the same name."""

    def __init__(self, api: Api, template: Item, name: str, created: float, say: Say) -> None:
        self.api, self.spec, self.name, self.created, self.say = api, template["spec"], name, created, say

    def lines(self, nodes: Sequence[int]) -> dict[int, list[bytes]]:
        """Of these nodes, attempt by attempt; why they cannot be read is said."""
        folder, mount = self._place()
        claim = next((row["persistentVolumeClaim"]["claimName"] for row in self.spec.get("volumes") or []
                      if mount and row["name"] == mount["name"] and "persistentVolumeClaim" in row), None)  # fmt: skip
        if mount is None or claim is None:
            return {}
        try:
            found = self._read(folder, mount)
        except SchedulerError as error:
            self.say(f"what is left of its output is on claim {claim} in {folder} and cannot be read now: {error}")
            return {}
        lines: dict[int, list[bytes]] = defaultdict(list)
        for (_, node), text in sorted(found.items()):
            if node in nodes:
                lines[node] += text
        if lines:
            whose = ", ".join(map(str, sorted(lines)))
            self.say(f"the pod of node {whose} is gone; this is the last of what it wrote, from claim {claim} ({folder})")
        return lines

    def _place(self) -> tuple[str, Item | None]:
        """The folder, and the mount under which it lies."""
        container = self.spec["containers"][0]
        directory = next((row.get("value", "") for row in container.get("env") or [] if row["name"] == "JOBGEN_CHECKPOINT_DIR"), "")
        under = [row for row in container.get("volumeMounts") or [] if directory and PurePosixPath(directory).is_relative_to(row["mountPath"])]
        return f"{directory}/.jobgen/output", max(under, key=lambda row: len(row["mountPath"]), default=None)

    def _read(self, folder: str, mount: Item) -> dict[tuple[int, int], list[bytes]]:
        """Lines by attempt and node."""
        mark = secrets.token_hex(16)
        name = f"{self.name}-output-{mark[:6]}"
        self.api.call("POST", self.api.path("Pod"), query={"fieldManager": MANAGER}, body=self._pod(name, folder, mount, mark))
        try:
            self._wait(name)
            text = b"".join(self.api.log(name, "output"))
        finally:
            self.api.delete("Pod", name)
        found: dict[tuple[int, int], list[bytes]] = {}
        lines: list[bytes] = []
        for stamped in text.splitlines():
            line = stamped.partition(b" ")[2]
            if line.startswith(mark.encode()) and (named := _NAME.search(line)):
                lines = found.setdefault((int(named[1]), int(named[2])), [])
            else:
                lines.append(line)
        return {key: rows[:-1] if rows and not rows[-1] else rows for key, rows in found.items()}

    def _pod(self, name: str, folder: str, mount: Item, mark: str) -> Item:
        main = self.spec["containers"][0]
        container: Item = {
            "name": "output", "image": main["image"], "volumeMounts": [{**mount, "readOnly": True}],
            "command": ["bash", "-c", READ, "read", folder, self.name, str(int(self.created) - SKEW_SECONDS), mark],
        }  # fmt: skip
        if "securityContext" in main:
            container["securityContext"] = main["securityContext"]
        spec: Item = {
            **{key: self.spec[key] for key in SHARED if key in self.spec}, "restartPolicy": "Never", "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": int(SECONDS), "containers": [container],
            "volumes": [row for row in self.spec["volumes"] if row["name"] == mount["name"]],
        }  # fmt: skip
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": read.OWNED, "annotations": {"sidecar.istio.io/inject": "false"}}, "spec": spec}

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not read.over(pod := self.api.get("Pod", name)):
            if time.monotonic() > deadline:
                raise SchedulerError(f"pod {name}, which would read it, did not run within {SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        if pod["status"]["phase"] == "Failed":
            raise SchedulerError(f"pod {name}, which would read it, failed: {read.main_status(pod).get('state', {}).get('terminated', {}).get('message', '')}")
