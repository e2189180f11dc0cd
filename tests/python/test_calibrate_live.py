"""Sources of calibrate that are measured: files and served SSDs, read alone unless what is there may be lost."""

from __future__ import annotations

import hashlib
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flashmob import cli
from flashmob.calibration import live
from flashmob.calibration.live import Live, is_live, measure_live, table_text
from flashmob.calibration.sources import read_sources
from flashmob.errors import ConfigError
from flashmob.study.target import StudyTarget
from rich.console import Console

FEW: dict[str, Any] = {"sizes": (4096,), "depths": (1, 4)}


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A file of 4 MiB that has something in it."""
    path = tmp_path / "disk"
    path.write_bytes(bytes(range(256)) * (4 << 12))
    return path


def measured(source: str, tmp_path: Path, **how: Any) -> list[Any]:
    # So long that a busy machine has requests end in it.
    table = measure_live(source, Live(500_000_000, **FEW | how), folder=tmp_path / "out", console=quiet())
    return read_sources([table]).points


def test_a_file_is_read_and_left_as_it_is(disk: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(disk.read_bytes()).digest()
    points = measured(f"live:{disk}", tmp_path)
    assert hashlib.sha256(disk.read_bytes()).digest() == before
    assert sorted((point.load.rw, point.load.bs_bytes, point.load.depth) for point in points) == [
        ("randread", 4096, 1),
        ("randread", 4096, 4),
    ]
    for point in points:
        assert point.measured.iops > 0
        assert point.measured.mean_ns > 0
        assert point.measured.p50_ns <= point.measured.p99_ns
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "points").iterdir()}
    measured(f"live:{disk}", tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "points").iterdir()} == kept


def test_writes_are_measured_where_what_is_there_may_be_lost(disk: Path, tmp_path: Path) -> None:
    points = measured(f"live:{disk}", tmp_path, writes=True)
    assert {point.load.rw for point in points} == {"randread", "randwrite"}


def test_what_is_served_is_measured_by_our_own_driver(tmp_path: Path, flashmob_serve: Any) -> None:
    served = flashmob_serve("optane-p4800x", size="16M")
    points = measured(served.target, tmp_path)
    assert len(points) == 2
    assert all(point.measured.mean_ns >= 10_000 for point in points), "the profile's latency"


def test_which_sources_are_measured(disk: Path) -> None:
    for source, expected in ((f"live:{disk}", True), ("vfio-user:/x/cntrl", True), (str(disk), False), ("none", False)):
        assert is_live(source) == expected


def test_what_could_not_be_measured_is_said() -> None:
    target = StudyTarget("x", False, False)
    settings = {"rw": "randread", "block_bytes": 4096, "depth": 2, "threads": 1}
    good = {
        "supported": True,
        "ios": 5,
        "iops": 5.0,
        "errors": {},
        "latency_ns": {"mean": 2e3, "p50": 1e3, "p99": 3e3},
    }
    assert table_text([(settings, good)], target).splitlines()[1] == "randread,4096,2,1,5,2,1,3"
    for wrong, why in (
        ({"supported": False, "reason": "no O_DIRECT here"}, "randread of 4096 bytes, depth 2: no O_DIRECT here"),
        (good | {"errors": {"EIO": 1}}, "requests failed, or none ended"),
        (good | {"ios": 0}, "requests failed, or none ended"),
    ):
        with pytest.raises(ConfigError, match=why):
            table_text([(settings, wrong)], target)


def run(*words: str) -> int:
    return cli.run(lambda: cli.app(["calibrate", *words]))


def test_a_profile_is_fitted_to_what_was_measured(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "Live", partial(Live, sizes=(4096,), depths=(1, 2, 4, 8)))
    words = (f"live:{disk}", "--runtime", "300ms", "--jobs", "1", "--json")
    assert run(*words, "-o", "drive.toml", "--allow-writes") == 0
    out, err = capfd.readouterr()
    assert "measured: out/calibrate/disk-" in err
    assert json.loads(out)
    assert "write_iops" in (tmp_path / "drive.toml").read_text(encoding="utf-8")
    # The table is a source like any other.
    (table,) = (tmp_path / "out").rglob("table.csv")
    assert run(str(table), "--check", "drive.toml", "--jobs", "1") == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["live:none"], "none is no file, block device"),
        (["live:disk", "--runtime", "5"], "write its unit"),
        (["live:disk", "--runtime", "0s"], "use a time above 0"),
        (["live:disk", "live:disk", "--out", "x"], "there are 2"),
        (["table.csv", "--runtime", "1s"], "--runtime is for what is measured"),
        (["table.csv", "--allow-writes"], "--allow-writes is for what is measured"),
        (["table.csv", "--out", "x"], "--out is for what is measured"),
    ],
)
def test_mistakes_are_said_before_anything_is_measured(
    words: list[str],
    says: str,
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(disk.parent)
    assert run(*words) == 2
    assert says in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
