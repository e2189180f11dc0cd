"""The report in the terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flashmob import Result, cli
from flashmob.progress import FillWatch, follow, progress_line
from flashmob.report import all_right, describe_load, report, show
from rich.console import Console

Document = Callable[..., dict[str, Any]]


def text_of(result: Result, *, width: int = 80, **options: Any) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        show(console, result, **options)
    return captured.get()


def test_a_nand_drive_tells_what_its_medium_did(result_document: Document) -> None:
    flash = {"write_amplification": 2.5, "host_written_bytes": 1 << 30, "moved_bytes": 3 << 29, "padded_bytes": 0}
    flash |= {"erased_superblocks": 12, "flash_reads": 3000, "buffer_reads": 40, "unwritten_reads": 0}
    text = text_of(Result.from_dict(result_document(flash=flash)), width=120)
    wrote = "1 GiB written, write amplification 2.5, 12 superblocks erased"
    assert f"medium        {wrote}, 3,000 reads of flash, 40 of the buffer" in text
    flash["host_written_bytes"] = 0
    assert "medium        3,000 reads of flash, 40 of the buffer" in text_of(
        Result.from_dict(result_document(flash=flash))
    )


def test_report_fits_a_terminal_of_80_columns(result_document: Document) -> None:
    text = text_of(Result.from_dict(result_document()), store="1 GiB of the profile's 1.92 TB")
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "2.469 MIOPS",
        "2.470 MIOPS",
        "-0.04 %",
        "1.264 GB/s",
        "51.2 us",
        "p99.999",
        "123,456 reads checked, 0 wrong",
        "VALID",
        "host gaps     engine 31, longest 45.00 us, 0.90 % of the time",
        "driver 3, longest 25.00 us, 0.10 % of the time",
        "long work     engine 2, longest 9.000 us, 0.10 % of the time",
        "620 ns of constant cost",
        "randread 512 B, 4 queues × 128 in flight",
        "store         1 GiB of the profile's 1.92 TB; --size changes it",
        "fetch wait ≤",
        "added ≤",
    ):
        assert words in text


def test_model_and_host_stand_beside_each_other(result_document: Document) -> None:
    lines = text_of(Result.from_dict(result_document())).splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("rate", "mean", "p99"))}
    assert table["rate"] == ["2.469", "MIOPS", "2.470", "MIOPS", "-0.04", "%", "2.00", "%"]
    assert table["mean"] == ["51.23", "us", "51.00", "us", "+234", "ns", "1.02", "us"]
    assert table["p99"] == ["60.00", "us", "59.50", "us", "+500", "ns", "1.19", "us"]


def test_reads_and_writes_stand_apart(result_document: Document) -> None:
    document = result_document(rw="randrw", options={"queues": 4, "queue_depth": 128, "read_share": 0.7})
    document["write"] = document["read"] | {"ios": 77, "iops": 123.0}
    text = text_of(Result.from_dict(document))
    lines = text.splitlines()
    assert any(line.startswith("reads ") and "12,345,678" in line for line in lines)
    assert any(line.startswith("writes ") and "77" in line and "123.0 IOPS" in line for line in lines)
    assert any(line.startswith("  reads ") and "51.2 us" in line for line in lines)
    assert "randrw 512 B (70 % reads)" in text
    assert max(map(len, lines)) <= 80


def test_directions_stand_beside_their_models_where_they_are_judged(result_document: Document) -> None:
    document = result_document(rw="randrw")
    document["write"] = document["read"]
    document["model"]["write_latency_ns"] = document["model"]["latency_ns"]
    document["tolerance"] |= {"read_mean_ns": 1_000.0, "read_p99_ns": 1_100.0, "write_mean_ns": 100.0}
    lines = [line for line in text_of(Result.from_dict(document)).splitlines() if line.startswith(("read ", "write "))]
    assert [line.split()[:2] for line in lines] == [["read", "mean"], ["read", "p99"], ["write", "mean"]]
    assert lines[2].split()[-4:] == ["+234", "ns", "100", "ns"]


def test_valid_says_how_near_where_that_is_not_near(result_document: Document) -> None:
    for share, words in ((0.025, "VALID"), (1 / 6, "VALID (within 16.7 %)")):
        document = result_document()
        document["tolerance"]["latency_share"] = share
        result = Result.from_dict(document)
        assert result.verdict == "VALID"
        assert result.verdict_text == words
        assert text_of(result).split("verdict")[1].strip() == words
        assert words in result._repr_html_()
        assert words in repr(result)


def test_report_says_what_went_wrong(result_document: Document) -> None:
    result = Result.from_dict(
        result_document(
            verdict="INVALID",
            verdict_cause="copy-bound",
            verify_errors=2,
            verify_first_error="LBA 17: stale",
            failed={"ios": 5, "share": 0.001},
            errors={"0x280": 3, "0x281": 2},
            error_names={"0x281": "Unrecovered Read Error"},
            data_moved=False,
            unanswered=4,
            unfinished={"outstanding": 12, "backlog": 30, "oldest_ns": 5_200_000},
        )
    )
    text = text_of(result, stopped=True)
    for words in (
        "INVALID: copy-bound",
        "2 wrong",
        "first       LBA 17: stale",
        "5 commands, 0.1 %; they count in no rate and no latency",
        "3 × Write Fault (0x280)",
        "2 × Unrecovered Read Error (0x281)",
        "none was moved",
        "unanswered    4 commands, besides those that failed",
        "unfinished    12 in flight, 30 waiting at the end; oldest for 5.200 ms",
        "stopped",
    ):
        assert words in text
    assert not all_right(result)


def test_nothing_that_is_copied_is_cut_or_broken(result_document: Document) -> None:
    door = "nvme-tcp:127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001:" + "x" * 60
    trace = "/a/long/path/" + "y" * 90 + ".csv"
    rule = "error on=read p=0.01 " + "after=1000 " * 9
    document = result_document(
        jobname=door,
        device={"profile": door},
        options={"trace_path": trace},
        verify_first_error="LBA 17: " + "z" * 90,
        faults=[{"rule": rule, "matched": 1, "injected": 1}],
        verify_errors=1,
    )
    lines = text_of(Result.from_dict(document)).splitlines()
    for words in (door, trace, rule.strip(), "z" * 90):
        assert any(line.rstrip().endswith(words) for line in lines)


def test_what_became_of_a_trace(result_document: Document) -> None:
    disk = "disk-" + "d" * 90
    trace = {"format": "msr", "requests": 200, "reads": 200, "read_bytes": 819_200, "span_ns": 5_000_000}
    trace |= {"largest_bytes": 4096, "end_bytes": 1 << 20, "namespace_bytes": 1 << 19, "wrapped": 7}
    document = result_document(options={"trace_path": "t.csv"}, trace=trace | {"disk_count": 2, "disk": disk})
    lines = text_of(Result.from_dict(document)).splitlines()
    assert "load          replay of t.csv" in lines
    assert any(line.startswith("trace         msr, 200 requests over 5.000 ms") for line in lines)
    assert any(line.strip() == "WRAPPED: 7 of 200 lay beyond 512 KiB" for line in lines)
    assert any(line.endswith(disk) for line in lines)


def test_verification_that_did_not_happen_is_said(result_document: Document) -> None:
    silent = Result.from_dict(result_document(verified=0))
    assert "NOT VERIFIED" not in text_of(silent)
    assert all_right(silent)
    assert "NOT VERIFIED: no read met a block whose content is known" in text_of(silent, verify_asked=True)
    assert not all_right(silent, verify_asked=True)
    said = Result.from_dict(result_document(verified=0, not_verified="the store does not fit the memory"))
    assert "NOT VERIFIED: the store does not fit the memory" in text_of(said)
    assert all_right(said)
    assert not all_right(said, verify_asked=True)
    assert all_right(Result.from_dict(result_document()), verify_asked=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_iops": 2e6, "queues": 4}, "2.000 MIOPS offered on 4 queues"),
        ({"requesters": 262_144, "queues": 256}, "262,144 requesters on 256 queues"),
        (
            {"requesters": 6, "queues": 2, "queue_depth": 2},
            "6 requesters on 2 queues, at most 2 in flight each",
        ),
        ({"requesters": 6, "queues": 1, "queue_depth": 2}, "6 requesters on 1 queue, at most 2 in flight at once"),
        ({"requesters": 5, "queues": 2, "queue_depth": 3}, "5 requesters on 2 queues"),
        ({"trace_path": "a.csv"}, "replay of a.csv"),
        ({}, "? queues"),
    ],
)
def test_loads(options: dict[str, object], words: str, result_document: Document) -> None:
    assert words in text_of(Result.from_dict(result_document(options=options, model_iops=None)), width=120)


def test_no_negative_zero(result_document: Document) -> None:
    assert "+0.00 %" in text_of(Result.from_dict(result_document(iops=2.47e6 - 1)), width=120)


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


def test_filling_shows_bytes_and_what_is_left() -> None:
    now_s = iter((0.0, 0.25, 1.0))
    watch = FillWatch(lambda: next(now_s))
    filling = SimpleNamespace(
        phase="fill",
        phase_fraction=0.0,
        fill_bytes=0,
        fill_total_bytes=1 << 30,
        ios=0,
        iops=0.0,
        mean_latency_ns=0.0,
        verify_errors=0,
    )
    assert watch.left_s(filling) is None  # type: ignore[arg-type]
    filling.phase_fraction, filling.fill_bytes = 0.1, 107_374_182
    assert watch.left_s(filling) is None  # type: ignore[arg-type]
    filling.phase_fraction, filling.fill_bytes = 0.25, 1 << 28
    left_s = watch.left_s(filling)  # type: ignore[arg-type]
    assert left_s == pytest.approx(3.0)
    text = progress_line(filling, left_s).plain  # type: ignore[arg-type]
    assert len(text) <= 80
    for words in ("filling", "256 MiB of 1 GiB", "3 s left"):
        assert words in text
    filling.phase = "run"
    assert watch.left_s(filling) is None  # type: ignore[arg-type]


def test_ctrl_c_ends_a_run_whose_model_is_measured() -> None:
    """The phase after the run may take seconds; it is shown, and cancelled like any other."""

    class Judging:
        cancelled = False

        def __enter__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        def __exit__(self, *_: object) -> None: ...

        def wait(self, _timeout_s: float) -> bool:
            return self.cancelled

        def progress(self) -> SimpleNamespace:
            return SimpleNamespace(phase="model", phase_fraction=1.0, verify_errors=0)

        def cancel(self) -> None:
            self.cancelled = True

    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        assert not follow(Judging(), console)  # type: ignore[arg-type]
    assert "goes without the model's figures" in " ".join(captured.get().split())
    text = progress_line(Judging().progress()).plain  # type: ignore[arg-type]
    assert text.startswith("judging ")
    assert len(text) <= 80


def test_ctrl_c_in_a_run_does_not_wait_long_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped is still judged, unless that takes long."""
    monkeypatch.setattr("flashmob.progress._PATIENCE_S", 0.0)

    class Measuring:
        cancelled, cancels = False, 0

        def __enter__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        def __exit__(self, *_: object) -> None: ...

        def wait(self, _timeout_s: float) -> bool:
            return self.cancels > 1

        def progress(self) -> SimpleNamespace:
            return SimpleNamespace(phase="model" if self.cancels else "run")

        def cancel(self) -> None:
            self.cancelled = True
            self.cancels += 1

    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        assert not follow(Measuring(), console)  # type: ignore[arg-type]
    assert "covers what was done so far" in " ".join(captured.get().split())


def test_nothing_measured_is_one_line_and_no_table(result_document: Document) -> None:
    cause = "nothing was completed in the measured time"
    result = Result.from_dict(result_document(ios=0, iops=0, verdict="NONE", verdict_cause=cause, verified=0))
    stopped = text_of(result, stopped=True)
    assert "before measuring began; nothing was measured" in stopped
    ended = text_of(result)
    assert f"NONE: {cause}" in ended
    for text in (stopped, ended):
        assert "p99" not in text
        assert "IOPS" not in text


@pytest.mark.parametrize("width", [40, 50, 60, 72])
def test_narrow_terminals_lose_columns_and_no_figures(width: int, result_document: Document) -> None:
    text = text_of(Result.from_dict(result_document()), width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    latency = next(line for line in text.splitlines() if line.startswith("latency "))
    figures = latency.split()[1:]
    assert figures[0] == "51.2"
    assert set(figures[1::2]) == {"us"}
    if width == 60:
        headings = [line.split() for line in text.splitlines()]
        assert ["mean", "p50", "p99", "p99.9", "max"] in headings


def test_commands_that_failed_in_the_ramp_are_in_no_share(result_document: Document) -> None:
    failed = {"ios": 3, "share": 0.001}
    text = text_of(Result.from_dict(result_document(failed=failed, errors={"0x281": 5})))
    assert "failed        5 commands, 3 of them measured, 0.1 %;" in text


def test_one_is_not_many(result_document: Document) -> None:
    options = {"queues": 1, "queue_depth": 1}
    one = Result.from_dict(result_document(options=options, errors={"0x281": 1}, verified=1, unanswered=1))
    assert describe_load(one).endswith("1 queue × 1 in flight")
    text = text_of(one)
    assert "failed        1 command" in text
    assert "unanswered    1 command, besides" in text
    assert "1 read checked" in text
    assert "1 commands" not in text


def test_what_ascii_lacks_still_says_at_most(result_document: Document) -> None:
    console = Console(width=80, force_terminal=False)
    options = console.options.update(width=80)
    options.encoding = "ascii"
    text = "".join(
        segment.text
        for line in console.render_lines(report(Result.from_dict(result_document())), options)
        for segment in line
    )
    assert "fetch wait <=" in text
    assert "≤".translate(cli._ASCII) == "<="


def test_reasons_are_in_sizes_for_people(result_document: Document) -> None:
    why = "a store of 1073741824 bytes is more than three quarters of the memory"
    assert "a store of 1 GiB is" in text_of(Result.from_dict(result_document(verified=0, not_verified=why)))
