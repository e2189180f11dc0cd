"""Sizes, durations, counts and rates, from text and back."""

from __future__ import annotations

import pytest
from flashmob import units
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("512", 512),
        ("4k", 4096),
        ("4K", 4096),
        ("8G", 8 << 30),
        ("16T", 16 << 40),
        ("1.5M", 3 << 19),
        ("64KiB", 64 << 10),
        ("1.92TB", 1_920_000_000_000),
        ("2MB", 2_000_000),
        ("100b", 100),
        ("1e6", 1_000_000),
        ("1_000", 1000),
        (4096, 4096),
        (4096.0, 4096),
    ],
)
def test_sizes(text: object, bytes_: int) -> None:
    assert units.parse_size(text) == bytes_


@pytest.mark.parametrize("text", ["", "k", "8X", "0.3k", "-1k", "1e400", "8 G i", None, True, [1], 0.5, "nan"])
def test_sizes_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="use a"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("50us", 50_000),
        ("50 µs", 50_000),
        ("1.5ms", 1_500_000),
        ("5s", 5_000_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("7ns", 7),
        ("50000", 50_000),
        (50_000, 50_000),
        (5e4, 50_000),
    ],
)
def test_durations(text: object, ns: int) -> None:
    assert units.parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "0.5ns", "1e400", False, "inf"])
def test_durations_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="use a"):
        units.parse_duration_ns(text)


def test_a_duration_without_unit_is_refused_where_it_would_be_taken_for_seconds() -> None:
    assert units.parse_duration_with_unit_ns("5s") == 5_000_000_000
    assert units.parse_duration_with_unit_ns("0") == 0
    with pytest.raises(ValueError, match="5s"):
        units.parse_duration_with_unit_ns("5")


@pytest.mark.parametrize(
    ("text", "count"),
    [("5e6", 5_000_000), (5e6, 5_000_000), ("262144", 262_144), (7, 7), ("5M", 5_000_000), ("1.5 k", 1500)],
)
def test_counts(text: object, count: int) -> None:
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["5q", "0.0001k", "1.5", 1.5, "inf", float("nan"), True, "x", None])
def test_counts_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="use a whole number"):
        units.parse_count(text)


@pytest.mark.parametrize(("text", "rate"), [("2.47M", 2.47e6), ("40m", 40e6), (5, 5.0), ("1e6", 1e6), ("3k", 3000.0)])
def test_rates(text: object, rate: float) -> None:
    assert units.parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["fast", "inf", "nan", True, None, 10**400])
def test_rates_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="use a"):
        units.parse_rate(text)


def test_block_size_mixes() -> None:
    assert units.parse_block_sizes("4k") == [(4096, 1.0)]
    assert units.parse_block_sizes("512:70, 4k:30") == [(512, 70.0), (4096, 30.0)]
    for wrong in ("512:0", "512:-1", "512:x", "512:", "", "512:nan", "512:70,4k"):
        with pytest.raises(ValueError, match=r"use a|give"):
            units.parse_block_sizes(wrong)


def test_cores() -> None:
    assert units.parse_cores("0,2-4") == [0, 2, 3, 4]
    assert units.parse_cores("[1, 3]") == [1, 3]
    assert units.parse_cores([5, "6"]) == [5, 6]
    assert units.parse_cores(3) == [3]
    assert units.parse_cores("") == []
    for wrong in ("4-2", "a", "1,,2", "-1", True, 1.5):
        with pytest.raises(ValueError, match="core numbers"):
            units.parse_cores(wrong)


def test_formats() -> None:
    assert units.format_rate(2_470_000) == "2.470 MIOPS"
    assert units.format_rate(99_900_000) == "99.90 MIOPS"
    assert units.format_rate(12) == "12.00 IOPS"
    assert units.format_duration(51_200) == "51.20 us"
    assert units.format_duration(28) == "28 ns"
    assert units.format_duration(3.5e9) == "3.500 s"
    assert units.format_size(8 << 30) == "8 GiB"
    assert units.format_size(512) == "512 B"


@given(st.integers(0, 1 << 62))
def test_sizes_read_back(bytes_: int) -> None:
    assert units.parse_size(str(bytes_)) == bytes_


@given(st.text(max_size=80))
def test_no_text_gives_anything_but_a_number_or_a_value_error(text: str) -> None:
    parsers = (
        units.parse_size,
        units.parse_duration_ns,
        units.parse_count,
        units.parse_rate,
        units.parse_block_sizes,
        units.parse_cores,
    )
    for parse in parsers:
        try:
            parse(text)
        except ValueError:
            continue
