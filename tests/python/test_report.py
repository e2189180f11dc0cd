"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flashmob import Result
from flashmob.report import all_right, progress_line, report
from rich.console import Console

Document = Callable[..., dict[str, Any]]


def text_of(result: Result, *, width: int = 80, stopped: bool = False) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(report(result, stopped=stopped))
    return captured.get()


def test_report_fits_a_terminal_of_80_columns(result_document: Document) -> None:
    text = text_of(Result.from_dict(result_document()))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "2.469 MIOPS",
        "the model gives 2.470 MIOPS (-0.04 %)",
        "1.264 GB/s",
        "51.2 us",
        "p99.999",
        "123,456 reads checked, 0 wrong",
        "VALID",
        "31, longest 45.00 us, 0.90 % of the time",
        "randread 512 B, 4 queues × 128 in flight",
    ):
        assert words in text


def test_report_says_what_went_wrong(result_document: Document) -> None:
    result = Result.from_dict(
        result_document(
            verdict="INVALID",
            verdict_cause="copy-bound",
            verify_errors=2,
            verify_first_error="LBA 17: stale",
            errors={"0x4280": 3},
            data_moved=False,
        )
    )
    text = text_of(result, width=120, stopped=True)
    for words in (
        "INVALID: copy-bound",
        "2 wrong (first: LBA 17: stale)",
        "3 commands",
        "0x4280",
        "no data",
        "stopped",
    ):
        assert words in text
    assert not all_right(result)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_iops": 2e6, "queues": 4}, "2.000 MIOPS offered on 4 queues"),
        ({"requesters": 262_144, "queues": 256}, "262,144 requesters on 256 queues"),
        ({"trace_path": "a.csv"}, "replay of a.csv"),
        ({}, "? queues"),
    ],
)
def test_loads(options: dict[str, object], words: str, result_document: Document) -> None:
    assert words in text_of(Result.from_dict(result_document(options=options, model_iops=None)), width=120)


def test_no_negative_zero(result_document: Document) -> None:
    assert "(+0.00 %)" in text_of(Result.from_dict(result_document(iops=2.47e6 - 1)), width=120)


def test_command_errors_are_not_all_right(result_document: Document) -> None:
    assert all_right(Result.from_dict(result_document()))
    assert not all_right(Result.from_dict(result_document(errors={"0x0080": 1})))
    assert not all_right(Result.from_dict(result_document(verify_errors=1)))


def test_progress_fits_a_terminal_of_80_columns() -> None:
    running = SimpleNamespace(
        phase="run",
        phase_fraction=0.5,
        ios=1_234_567_890,
        iops=99.9e6,
        mean_latency_ns=123_456.0,
        mean_lateness_ns=139.2,
        verify_errors=0,
    )
    text = progress_line(running).plain  # type: ignore[arg-type]
    assert len(text) <= 80
    for words in ("measuring", "99.90 MIOPS", "123 us", "late  139 ns", "1,234,567,890 I/Os"):
        assert words in text
    running.mean_lateness_ns = -1.0  # behind a door nobody here knows it
    assert "late " not in progress_line(running).plain  # type: ignore[arg-type]
    broken = SimpleNamespace(phase="fill", phase_fraction=7.0, ios=0, iops=0.0, mean_latency_ns=0.0, verify_errors=3)
    text = progress_line(broken).plain  # type: ignore[arg-type]
    assert "filling" in text
    assert "3 WRONG READS" in text
