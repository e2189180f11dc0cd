"""Replayed traces, from the command line to the device."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import flashmob
import pytest
from flashmob import cli
from flashmob.errors import ConfigError

# Two disks that both write their first block, one of them far out; a day lies between the last two requests.
TWO_DISKS = """\
Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
128166372000000000,hm,1,Write,0,4096,0
128166372000010000,hm,0,Write,0,4096,0
128166372000020000,hm,1,Read,0,4096,0
128166372000030000,hm,1,Read,2000000000000,65536,0
128167236000000000,hm,0,Read,0,4096,0
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "two.csv"
    path.write_text(TWO_DISKS, encoding="utf-8")
    return str(path)


def test_disks_lie_side_by_side_in_a_namespace_as_large_as_they_need(trace: str) -> None:
    result = flashmob.bench("d7-ps1010", clock="virtual", trace=trace, verify=100)
    assert (result.ios, result.read_ios, result.write_ios) == (5, 3, 2)
    assert (result.verified, result.verify_errors, result.errors) == (3, 0, {})


def test_one_disk_and_limits(trace: str) -> None:
    def ios(**options: object) -> int:
        return flashmob.bench("d7-ps1010", clock="virtual", trace=trace, **options).ios

    assert ios(trace_disk="hm_1") == 3
    assert ios(ios=2) == 2
    assert ios(runtime="1h") == 4
    assert ios(as_fast=True) == 5


def test_a_disk_that_is_not_there(trace: str) -> None:
    with pytest.raises(ConfigError, match=r'"hm_7" is not in trace .*, which holds hm_1 \(3 requests\) and hm_0 \(2\)'):
        flashmob.bench("d7-ps1010", clock="virtual", trace=trace, trace_disk="hm_7")


def test_a_compressed_trace_is_refused_and_can_come_through_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "two.csv.gz"
    packed.write_bytes(gzip.compress(TWO_DISKS.encode()))
    arguments = ["bench", "d7-ps1010", "--clock", "virtual", "--trace"]
    assert cli.run(lambda: cli.app([*arguments, str(packed)])) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error == f"error: trace {packed} is compressed; decompress it first (gzip -dk)"
    command = [sys.executable, "-m", "flashmob", *arguments, "/dev/stdin"]
    done = subprocess.run(command, input=TWO_DISKS, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def written(folder: Path, lines: list[str]) -> str:
    """A trace of so many requests, one each 100 us or as their lines say."""
    path = folder / "made.csv"
    path.write_text("\n".join(["Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", *lines]) + "\n")
    return str(path)


def test_as_many_reads_are_verified_as_was_asked_for(tmp_path: Path) -> None:
    first = 128166372000000000
    reads = [f"{first + 1000 * k},hm,0,Read,{4096 * (k % 64)},4096,0" for k in range(1000)]
    trace = written(tmp_path, reads)
    checked = {
        share: flashmob.bench("d7-ps1010", clock="virtual", trace=trace, verify=share).verified for share in (25, 100)
    }
    assert checked == {25: 250, 100: 1000}


def test_reads_that_meet_writes_in_flight_are_counted_and_said(tmp_path: Path) -> None:
    first = 128166372000000000
    # Each block is written, and read while the device still works on that.
    turns = [f"{first + 30 * k},hm,0,{'Read' if k % 2 else 'Write'},0,4096,0" for k in range(400)]
    result = flashmob.bench("d7-ps1010", clock="virtual", trace=written(tmp_path, turns), verify=100)
    assert result.read_ios == 200
    assert result.verified + result.verify_crowded == 200
    assert result.verify_crowded > 0
    if not result.verified:
        assert "met writes of the same blocks in flight" in result.not_verified
