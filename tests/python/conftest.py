"""Results and profiles that several tests share."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flashmob import Result
from hypothesis import settings

# How long an example takes is the machine's affair: no test fails because others had the cores.
settings.register_profile("flashmob", deadline=None)
settings.load_profile("flashmob")


def pytest_configure(config: pytest.Config) -> None:
    """Servers that outlive a test register in a folder of this process, not in one that other processes look into."""
    folder = tempfile.mkdtemp(prefix="flashmob-tests-")
    os.environ["XDG_RUNTIME_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of test_core_* need the compiled module; say so once instead of failing in each."""
    if importlib.util.find_spec("flashmob._core") is None:
        skip = pytest.mark.skip(reason="flashmob._core is not built; run `make install`")
        for item in items:
            if item.path.name.startswith("test_core_"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Servers of a test are known to that test alone, whatever else this user serves on the machine."""
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def _document(**changes: Any) -> dict[str, Any]:
    """A result as the C++ core writes it, with some keys changed."""
    long = {"mean": 51_234.5, "min": 50_000, "p50": 51_000, "p90": 52_000, "p99": 60_000, "p999": 70_000}
    long |= {"p9999": 80_000, "p99999": 90_000, "max": 120_000}
    short = {"mean": 100.5, "p50": 90, "p99": 300, "p999": 900, "max": 45_000}
    document: dict[str, Any] = {
        "schema": "flashmob-result",
        "schema_version": 2,
        "jobname": "d7-ps1010",
        "rw": "randread",
        "bs": "512",
        "iops": 2.469e6,
        "bw_bytes": 1.264e9,
        "model_iops": 2.47e6,
        "model": {
            "iops": 2.47e6,
            "latency_ns": {"mean": 51_000.0, "p50": 50_900.0, "p99": 59_500.0, "p999": 69_000.0, "max": 110_000.0},
            "read_latency_ns": {"mean": 51_000.0, "p50": 50_900.0, "p99": 59_500.0, "p999": 69_000.0, "max": 110_000.0},
            "write_latency_ns": None,
            "allowance": {
                "iops_share": 0.0,
                "mean_ns": 0.0,
                "p99_ns": 0.0,
                "read_mean_ns": 12.0,
                "read_p99_ns": 0.0,
                "write_mean_ns": 0.0,
                "write_p99_ns": 0.0,
            },
        },
        "tolerance": {
            "iops_share": 0.02,
            "mean_ns": 1020.0,
            "p99_ns": 1190.0,
            "read_mean_ns": None,
            "read_p99_ns": None,
            "write_mean_ns": None,
            "write_p99_ns": None,
            "latency_share": 0.02,
        },
        "read": {"ios": 12_345_678, "iops": 2.469e6, "bw_bytes": 1.264e9, "latency_ns": long},
        "write": None,
        "latency_ns": long,
        "target_ns": short | {"mean": 51_000.0},
        "processing_ns": short | {"mean": 51_100.0},
        "lateness_ns": short,
        "lateness_no_gaps_ns": short,
        "gaps": {"count": 31, "longest_ns": 45_000, "share": 0.009},
        "host_gaps": {"count": 3, "longest_ns": 25_000, "share": 0.001},
        "poll_gap_max_ns": 45_000,
        "fetch_wait_ns": short,
        "error_bound_ns": short | {"mean": 201.0},
        "path_ns": 620.0,
        "long_work": {"count": 2, "longest_ns": 9_000.0, "share": 0.001},
        "host_long_work": {"count": 0, "longest_ns": 0.0, "share": 0.0},
        "backlog_share": 0.1,
        "busy_share": 0.5,
        "unfinished": {"outstanding": 0, "backlog": 0, "oldest_ns": 0},
        "flash": None,
        "late_by_copy_share": 0.25,
        "verdict": "VALID",
        "verdict_cause": "",
        "data_moved": True,
        "verified": 123_456,
        "verify_crowded": 0,
        "verify_errors": 0,
        "verify_first_error": "",
        "not_verified": "",
        "failed": {"ios": 0, "share": 0.0},
        "errors": {},
        "error_names": {},
        "unanswered": 0,
        "cancelled": False,
        "device_failed": False,
        "faults": [{"rule": "lose p=0.1", "matched": 30, "injected": 0}],
        "clock": "real",
        "ios": 12_345_678,
        "read_ios": 12_345_678,
        "write_ios": 0,
        "runtime_seconds": 5.0,
        "latency_cdf": [[50_000, 0.01], [51_000, 0.5], [60_000, 0.99], [120_000, 1.0]],
        "trace": None,
        "options": {"queues": 4, "queue_depth": 128, "requesters": 0, "rate_iops": 0},
        "device": {"profile": "d7-ps1010", "seed": 1},
        "wall_seconds": 6.5,
        "provenance": {"version": "0.1.0", "seed": 1, "date": "2026-01-02T03:04:05Z"},
    }
    return document | changes


@pytest.fixture
def result_document() -> Callable[..., dict[str, Any]]:
    """Makes result documents, keyword arguments replacing keys."""
    return _document


@pytest.fixture
def result_file(tmp_path: Path) -> Path:
    """A result on disk."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps(_document()), encoding="utf-8")
    return path


@pytest.fixture
def make(result_document: Callable[..., dict[str, Any]]) -> Callable[..., Result]:
    """A result of a given load; other keys are the document's."""

    def build(qd: int = 1, *, queues: int = 1, requesters: int = 0, rate: float = 0, **changes: Any) -> Result:
        options = {"queues": queues, "queue_depth": qd, "requesters": requesters, "rate_iops": rate, "read_share": 1}
        return Result.from_dict(result_document(**{"options": options, "iops": 20_000.0 * qd, **changes}))

    return build
