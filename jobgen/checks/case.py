"""What a rule looks at: one spec under one set of version answers, with everything derived from it on demand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobgen.checks.forks import Memo, Shared
from jobgen.effective.options import option
from jobgen.effective.setup import Facts
from jobgen.effective.versions import Versions

if TYPE_CHECKING:
    from jobgen.physics.estimate import Estimate
    from jobgen.spec.document import Document


class Case:
    """A rule reads attributes; each is computed on first use, so a rule asks only the versions that decide it."""

    def __init__(self, document: Document, facts: Facts, versions: Versions, memo: Memo) -> None:
        self.document, self.facts, self.v = document, facts, versions
        self.spec, self.arch, self.gpu, self.node, self.layout = facts.spec, facts.arch, facts.gpu, facts.node, facts.layout
        self.framework = facts.framework
        self.target = memo.target
        """slurm, k8s ...; None when only check was asked for and the spec names none."""
        self.effective = Shared(facts, versions, memo)

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate of what will really run."""
        estimate: Estimate = self.effective.memo.value("estimate", self.v)
        return estimate

    def wrote(self, path: str) -> bool:
        """The user wrote this field."""
        return self.document.wrote(path)

    def option(self, *names: str, default: Any = None) -> Any:
        """A key of ``training.options`` under any of these dotted names (``fsdp_config.cpu_ram_efficient_loading``)."""
        return option(self.spec, *names, default=default)
