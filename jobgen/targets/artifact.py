"""What a target makes of a job."""

from __future__ import annotations

from jobgen.spec.record import NamedTuple


class Artifact(NamedTuple):
    """One self-contained text, for ``sbatch``, ``kubectl apply -f -`` or ``bash``."""

    text: str
    explain: tuple[tuple[int, str], ...] = ()
    """(line, from 1; path of the spec field that made it); several entries for one line where several fields did."""
