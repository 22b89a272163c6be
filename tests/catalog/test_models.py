"""Finding a model, reading a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobgen.catalog import counts, models


def test_names_are_found_in_any_case_and_without_organisation() -> None:
    assert models.find("qwen/qwen2.5-coder-32b-instruct") == models.find("Qwen2.5-Coder-32B-Instruct")
    assert models.load("llama-3.1-8b").name == "meta-llama/Llama-3.1-8B"


def test_every_name_is_found_by_itself() -> None:
    names = models.names()
    assert len(names) == 278
    assert len({name.lower() for name in names}) == 278
    assert models.record(names[-1])["name"] == names[-1]
    assert models.record(names[0])["source"]


def test_an_unknown_name_has_near_ones() -> None:
    with pytest.raises(models.UnknownModel) as caught:
        models.find("Qwen/Qwen2.5-Coder-32B-Instrct")
    assert caught.value.name == "Qwen/Qwen2.5-Coder-32B-Instrct"
    assert caught.value.nearest[0] == "Qwen/Qwen2.5-Coder-32B-Instruct"
    with pytest.raises(models.UnknownModel) as short:
        models.find("Qwen3-8")
    assert "Qwen/Qwen3-8B" in short.value.nearest
    with pytest.raises(LookupError):
        models.find("")


def test_a_name_of_two_organisations_is_ambiguous(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "models.jsonl"
    file.write_text(
        "".join(json.dumps({"name": f"{who}/m", "config": {}}, separators=(",", ":")) + "\n" for who in "ab")
    )
    monkeypatch.setattr(models, "DATA", file)
    with pytest.raises(models.UnknownModel) as caught:
        models.find("M")
    assert caught.value.candidates == ("a/m", "b/m")
    assert "ambiguous" in str(caught.value)


def test_a_configuration_is_read_from_its_file_and_from_its_folder(tmp_path: Path) -> None:
    config = models.find("Qwen/Qwen3-0.6B")
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json", str(tmp_path)):
        arch = models.load(config=path, name="mine")
        assert arch.name == "mine"
        assert counts.total(arch) == 596_049_920
    assert models.load("Qwen/Qwen3-8B", config=tmp_path).hidden == 1024


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "not JSON"), ("{", "not JSON"), ("[1]", "JSON object, not list"), ("null", "JSON object"), ("\xff", "JSON")],
)
def test_a_broken_file_is_said_to_be(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(models.BadConfig, match=words):
        models.read_config(file)


def test_a_missing_file_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(models.BadConfig, match=r"holds no config\.json"):
        models.read_config(tmp_path)
    with pytest.raises(models.BadConfig, match="does not exist"):
        models.read_config(tmp_path / "other.json")
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(models.BadConfig, match="not UTF-8"):
        models.read_config(tmp_path / "latin.json")


def test_without_name_and_configuration_there_is_no_model() -> None:
    with pytest.raises(models.BadConfig):
        models.load()


def test_a_name_in_the_configuration_is_taken() -> None:
    config = models.find("Qwen/Qwen3-0.6B")
    assert models.load(config=config).name == "qwen3"
    assert models.load(config={**config, "_name_or_path": "me/mine"}).name == "me/mine"
