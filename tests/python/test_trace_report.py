"""What the report says of a replayed trace."""

from __future__ import annotations

from typing import Any

from flashmob.trace_report import trace_lines


def trace(**changes: Any) -> dict[str, Any]:
    """A result whose trace was replayed as it is written, but for the changes."""
    plain = {
        "path": "hm_0.csv",
        "format": "msr",
        "disk": None,
        "disk_count": 1,
        "disks": [{"name": "hm_0", "requests": 3000, "bytes": 12, "end_bytes": 7, "replayed": True, "offset_bytes": 0}],
        "lines": 3000,
        "ignored_lines": 0,
        "requests": 3000,
        "reads": 2000,
        "writes": 1000,
        "trims": 0,
        "flushes": 0,
        "read_bytes": 8_192_000,
        "write_bytes": 4_096_000,
        "trim_bytes": 0,
        "span_ns": 7 * 24 * 3_600_000_000_000,
        "largest_bytes": 65536,
        "end_bytes": 15_000_000_000,
        "left_out": 0,
        "empty": {"count": 0, "first_line": None},
        "reordered": {"count": 0, "first_line": None},
        "namespace_bytes": 15_000_928_256,
        "sized_from_trace": True,
        "rounded": 0,
        "rounded_bytes": 0,
        "wrapped": 0,
        "moved": 0,
        "shortened": 0,
        "split": 0,
        "commands": 3000,
    }
    return {"options": {}, "trace": plain | changes}


def test_without_a_trace_there_is_nothing_to_say() -> None:
    assert trace_lines({}) == []
    assert trace_lines({"trace": None}) == []


def test_a_trace_that_is_replayed_as_written() -> None:
    assert trace_lines(trace()) == [
        "msr, 3,000 requests over 7.0 days",
        "2,000 reads of 7.812 MiB, 1,000 writes of 3.906 MiB",
        "largest 64 KiB, the highest ends at 13.97 GiB",
        "namespace of 13.97 GiB, as large as the trace needs",
    ]
    fast = trace(span_ns=3_600_000_000_000, reads=1, trims=1, trim_bytes=4096, flushes=1, writes=0)
    fast["options"]["trace_as_fast"] = True
    assert trace_lines(fast)[:2] == [
        "msr, 3,000 requests over 3,600 s, replayed as fast as it goes",
        "1 read of 7.812 MiB, 1 trim of 4 KiB, 1 flush",
    ]


def test_everything_that_was_changed_is_said() -> None:
    lines = trace_lines(
        trace(
            namespace_bytes=1 << 30,
            sized_from_trace=False,
            wrapped=1200,
            moved=1,
            shortened=2,
            rounded=17,
            rounded_bytes=8704,
            split=5,
            commands=3010,
            reordered={"count": 1, "first_line": 2718},
            empty={"count": 4, "first_line": 9},
            left_out=1,
        )
    )
    assert lines[3:] == [
        "namespace of 1 GiB",
        "WRAPPED: 1,200 of 3,000 lay beyond 1 GiB",
        "MOVED: 1 reached over the end of 1 GiB",
        "SHORTENED: 2 larger than 1 GiB",
        "--size 14G or more leaves them where they are",
        "17 grown to whole blocks, by 8.5 KiB together",
        "5 too large for one command: 3,010 sent",
        "1 written out of order, sorted by time (first: line 2,718)",
        "4 of no bytes left out (first: line 9)",
        "1 request left out: beyond --ios or --runtime",
    ]


def test_disks_are_named_in_full() -> None:
    name = "/dev/disk/by-id/nvme-" + "x" * 80
    disks = [
        {"name": name if i == 0 else f"hm_{i}", "requests": 10 - i, "replayed": True, "offset_bytes": i << 30}
        for i in range(6)
    ]
    assert trace_lines(trace(disk_count=2, disks=disks[:2]))[4:] == [
        "2 disks side by side (--trace-disk NAME chooses one):",
        f"  {name}: 10 requests, from 0 B",
        "  hm_1: 9 requests, from 1 GiB",
    ]
    assert trace_lines(trace(disk_count=1000, disks=disks))[-1] == "  and 996 more (the busiest are in the JSON)"
    assert trace_lines(trace(disk_count=6, disks=disks, disk="hm_3"))[4:] == ["one of 6 disks: hm_3"]


def test_lines_fit_beside_a_label() -> None:
    large = {"requests": 10**8, "reads": 10**8, "writes": 10**8, "span_ns": 10**17, "wrapped": 10**9, "split": 10**9}
    for line in trace_lines(trace(**large, commands=10**10, left_out=10**9, rounded=10**9, rounded_bytes=10**12)):
        assert len(line) <= 66, line
