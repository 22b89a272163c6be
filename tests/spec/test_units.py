import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobgen.spec.units import parse_count, parse_duration, parse_size


@pytest.mark.parametrize(("text", "size"), [("960GB", 960e9), ("894GiB", 894 * 2**30), ("80 GiB", 80 * 2**30), ("1.5TB", 1.5e12),
                                            ("2Ti", 2 * 2**40), ("512B", 512)])  # fmt: skip
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86400), ("1d 2h", 93600), ("90m", 5400), ("1-00:00:00", 86400), ("08:00:00", 28800), ("1:30:00", 5400), ("PT1H", 3600),
     ("P1DT12H", 129600), ("180s", 180), ("1h30m", 5400), ("0.5h", 1800)],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("value", "count"), [("1e9", 10**9), (1e9, 10**9), ("0.96B", 960_000_000), ("200k", 200_000), (3000, 3000)])
def test_counts(value, count):
    assert parse_count(value) == count


@pytest.mark.parametrize("parse", [parse_size, parse_duration, parse_count])
@given(value=st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text()),
                       st.from_regex(r"[0-9.]{1,400}[a-zA-Z:e+-]{0,3}[0-9]{0,5}", fullmatch=True)))  # fmt: skip
def test_anything_else_is_a_value_error_with_the_accepted_forms(parse, value):
    try:
        assert 0 < parse(value) < 2**63
    except ValueError as error:
        assert ": write " in str(error)
