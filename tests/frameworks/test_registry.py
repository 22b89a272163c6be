"""Every framework has a table, every file of the folder has a purpose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import jobgen.frameworks as frameworks
from jobgen.frameworks.table import Framework
from jobgen.spec.models import Framework as Name
from jobgen.spec.models import Sharding

SHARED = {
    "__init__", "accelerate_file", "codecs", "config", "deepspeed_file", "engines", "formats", "hf", "rows", "states",
    "table", "view", "write", "zero",
    "megatron_model", "torchtitan_models",
}  # fmt: skip
TABLES = [(name, backend) for name in frameworks.NAMES for backend in (None, "megatron")]


def test_the_list_is_the_specs_and_the_folders() -> None:
    files = {path.stem for path in Path(frameworks.__file__).parent.glob("*.py")}
    assert set(frameworks.NAMES) == set(get_args(Name))
    assert files - SHARED == {frameworks.module_name(name) for name in frameworks.NAMES}


@pytest.mark.parametrize(("name", "backend"), TABLES)
def test_a_table_is_whole(name: str, backend: str | None) -> None:
    table = frameworks.find(name, backend)
    assert isinstance(table, Framework)
    assert table.name == name
    assert table.source
    assert table.sharding <= set(get_args(Sharding))
    assert all(option.source for option in table.options)
    assert all(option.until is None or option.since < option.until for option in table.options)
    assert all(len(v) == 1 or v[-1] != 0 for option in table.options for v in (option.since, option.until or (1,)) if v)


@pytest.mark.parametrize(("name", "backend"), TABLES)
def test_no_two_written_rows_make_one_key_at_once(name: str, backend: str | None) -> None:
    """Rows of one key belong to one group, or to objectives or spec values that exclude each other."""
    seen: dict[tuple[str, str], list[str]] = {}
    for option in frameworks.find(name, backend).options:
        if option.written:
            seen.setdefault((option.file, option.key), []).append(option.field)
    for fields in seen.values():
        assert len(set(fields)) == 1 or all(
            ".activation_checkpointing." in field or field == "training.objective" for field in fields
        )


def test_finding_one_imports_that_one_only() -> None:
    code = (
        "import sys; from jobgen.frameworks import find; find('trl');"
        "print([m for m in sys.modules if m.startswith('jobgen.frameworks.')], 'numpy' in sys.modules, 'ruamel.yaml' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "jobgen.frameworks.trl" in out
    assert "axolotl" not in out and "megatron" not in out
    assert out.strip().endswith("False False")


def test_an_unknown_backend_is_the_main_table() -> None:
    assert frameworks.find("trl", "megatron") is frameworks.find("trl")
