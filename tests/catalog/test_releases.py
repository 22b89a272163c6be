"""What a framework's release allows of other libraries."""

from __future__ import annotations

import pytest

from jobgen.catalog import markers, releases

TOP = releases.TOP


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.57.1", (4, 57, 1)), ("5.0.0", (5,)), ("0.10.0.dev0", (0, 10)), ("2.6.0+cu124", (2, 6)), ("v1.0rc1", (1,)),
     ("0.3.0.post1", (0, 3)), ("main", ()), ("", ())],
)  # fmt: skip
def test_versions_are_tuples(text: str, version: tuple[int, ...]) -> None:
    assert releases.parse(text) == version


def test_specifiers_are_half_open_ranges() -> None:
    span, taken = releases.intervals(">=4.51.0,<=4.57.1,!=4.52.0,!=4.46.*")
    assert span.low <= (4, 51) < span.high
    assert span.high > (4, 57, 1)
    assert not span.high > (4, 57, 2)
    assert taken == (((4, 52), (4, 52, 0, 0, 0, 0, 1)), ((4, 46), (4, 47)))
    assert releases.intervals("==5.0.0")[0] == ((5,), (5, 0, 0, 0, 0, 1))
    assert releases.intervals("==2.7.*")[0] == ((2, 7), (2, 8))
    assert releases.intervals("~=1.4.2")[0] == ((1, 4, 2), (1, 5))
    assert releases.intervals("<5,>4.0")[0] == ((4, 0, 0, 0, 0, 1), (5,))
    assert releases.intervals("(any)")[0] == ((), TOP)


def test_axolotl_pins_one_release() -> None:
    assert releases.pins("axolotl", "0.14.0")["transformers"] == releases.intervals("==5.0.0")[0]
    assert releases.pins("axolotl", (0, 14)) == releases.pins("axolotl", "0.14.0")


def test_what_a_source_distribution_asks_of_the_torch_it_finds_is_not_firm() -> None:
    """axolotl's setup.py takes the installed torch; only from its wheels on does a release insist on one."""
    assert not releases.firm("axolotl", "0.12.2", "torch")
    assert releases.firm("axolotl", "0.12.2", "accelerate")
    assert releases.firm("axolotl", "0.20.0", "torch")


def test_llamafactory_allows_a_closed_range() -> None:
    found = releases.pins("llamafactory", "0.9.4")
    assert found["transformers"] == ((4, 51), (4, 57, 1, 0, 0, 0, 0, 1))
    assert found["peft"] == ((0, 14), (0, 17, 1, 0, 0, 0, 0, 1))
    assert releases.excluded("llamafactory", "0.9.4", "transformers")[0].low == (4, 52)
    both = releases.requirements("llamafactory", "0.9.4")["transformers"]
    assert {item.source.split()[0] for item in both} == {"wheel", "extras/misc.py"}


def test_requirements_of_another_platform_and_of_extras_do_not_count() -> None:
    assert releases.pins("llamafactory", "0.9.3")["transformers"].high == (4, 52, 4, 0, 0, 0, 0, 1)
    assert "deepspeed" not in releases.pins("accelerate", "1.15.0")
    assert "deepspeed" in releases.pins("accelerate", "1.15.0", ("deepspeed",))


def test_an_unread_release_allows_everything() -> None:
    assert releases.pins("axolotl", "99.0") == {}
    assert releases.pins("torch", "2.6.0") == {}
    assert releases.versions("torch") == ()


def test_every_release_is_readable() -> None:
    for framework in releases.libraries():
        versions = releases.versions(framework)
        assert list(versions) == sorted(versions)
        for version in versions:
            for low, high in releases.pins(framework, version).values():
                assert low < high
    assert releases.versions("transformers")[-1] == (5, 24)


@pytest.mark.parametrize(
    ("marker", "answer"),
    [("", True), ('extra == "vllm"', False), ('sys_platform != "darwin"', True), ('sys_platform == "darwin"', False),
     ('python_version < "3.10"', None), ('"linux" in sys_platform', True),
     ('python_version >= "3.10" and extra == "x"', False),
     ('("linux" in sys_platform or sys_platform == "win32") and (platform_machine == "AMD64" or '
      'platform_machine == "x86_64")', True),
     ('platform_machine != "aarch64" and python_version < "3.13"', None),
     ('sys_platform == "darwin" or python_version < "3.13"', None), ('"win" not in sys_platform', True)],
)  # fmt: skip
def test_markers_on_linux(marker: str, answer: bool | None) -> None:
    assert markers.holds(marker) is answer


def test_an_extra_that_was_asked_for() -> None:
    assert markers.holds('extra == "vllm" and sys_platform != "win32"', ("vllm",)) is True
