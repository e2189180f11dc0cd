"""Results in fio's schema, and what reads fio's files reading them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob import cli
from flashmob.fio_output import fio_document
from flashmob.result import Result

QUICK: dict[str, Any] = {"clock": "virtual", "ios": 4_000, "size": "64M", "queues": 1, "qd": 8}


def run(rw: str) -> Result:
    return flashmob.bench("optane-p4800x", rw=rw, bs="4k", **QUICK)


def test_reads_alone_have_all_that_fio_has_of_them() -> None:
    result = run("randread")
    job = fio_document(result)["jobs"][0]
    read = job["read"]
    assert job["error"] == 0
    assert job["job options"] | {"rw": "randread", "iodepth": "8", "numjobs": "1"} == job["job options"]
    assert read["total_ios"] == result.ios
    assert read["io_bytes"] == pytest.approx(result.ios * 4096, rel=1e-6)
    assert read["iops"] == pytest.approx(result.iops)
    assert read["bw"] == pytest.approx(read["bw_bytes"] / 1024, abs=1)
    assert "random_distribution" not in job["job options"], "fio's default has another name"
    latency = read["clat_ns"]
    assert sum(latency["bins"].values()) == latency["N"] == result.ios
    assert latency["mean"] == result.latency_ns.mean
    assert latency["percentile"]["50.000000"] == pytest.approx(result.latency_ns.p50, rel=0.02)
    assert latency["percentile"]["99.000000"] == pytest.approx(result.latency_ns.p99, rel=0.02)
    values = list(latency["percentile"].values())
    assert values == sorted(values)
    assert latency["min"] <= latency["mean"] <= latency["max"]
    assert latency["stddev"] >= 0
    shares = [share for unit in ("ns", "us", "ms") for share in job[f"latency_{unit}"].values()]
    assert sum(shares) == pytest.approx(100)
    assert job["write"]["total_ios"] == job["trim"]["total_ios"] == 0


def test_what_is_not_measured_is_left_out() -> None:
    result = run("randrw")
    job = fio_document(result)["jobs"][0]
    assert "usr_cpu" not in job
    for name in ("read", "write"):
        one = getattr(result, name)
        latency = job[name]["clat_ns"]
        assert latency["N"] == one.ios
        assert latency["percentile"]["99.000000"] == round(one.latency_ns.p99)
        assert "bins" not in latency, "a mixed run has one distribution for both directions"
        assert "stddev" not in latency
    assert job["job options"]["rwmixread"] == "50"


def test_failures_are_an_errno() -> None:
    for wrong, errno in (({"verify_errors": 1}, 84), ({"errors": {"0x281": 3}}, 5), ({"device_failed": True}, 5)):
        failed = Result(iops=0.0, verdict="NONE", clock="real", **wrong)
        assert fio_document(failed)["jobs"][0]["error"] == errno


def test_bench_writes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = "bench optane-p4800x --clock virtual --ios 2000 --size 64M --queues 1 --qd 4 --output-format"
    assert cli.run(lambda: cli.app([*asked.split(), "fio-json", "--json", "-"])) == 0
    assert json.loads(capfd.readouterr().out)["jobs"][0]["jobname"] == "optane-p4800x"
    assert cli.run(lambda: cli.app([*asked.split(), "fio-json"])) == 2
    assert "--json FILE" in capfd.readouterr().err
    assert cli.run(lambda: cli.app([*asked.split(), "terse", "--json", str(tmp_path / "x")])) == 2
    assert "use json or fio-json" in capfd.readouterr().err


def test_fios_own_reader_takes_it(tmp_path: Path) -> None:
    reader = shutil.which("fio_jsonplus_clat2csv")
    if reader is None:
        pytest.skip("fio is not installed, which brings fio_jsonplus_clat2csv")
    document = fio_document(run("randread"))
    (tmp_path / "run.json").write_text(json.dumps(document))
    command = [sys.executable if _has_six() else "python3", reader, "run.json", "run.csv"]
    for more in ([], ["--validate"]):
        done = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        if "No module named 'six'" in done.stderr:
            pytest.skip("fio_jsonplus_clat2csv needs the Python package six, which is not installed")
        assert done.returncode == 0, done.stderr
    assert "validated" in done.stdout
    bins = document["jobs"][0]["read"]["clat_ns"]["bins"]
    assert len((tmp_path / "run_job0.csv").read_text().splitlines()) == 1 + len(bins)


def _has_six() -> bool:
    from importlib.util import find_spec

    return find_spec("six") is not None


def test_calibrate_reads_it_as_fios(tmp_path: Path) -> None:
    from flashmob.calibration.sources import read_sources

    result = flashmob.bench("optane-p4800x", rw="randread", bs="4k", **QUICK | {"queues": 4})
    path = tmp_path / "run.json"
    document = fio_document(result)
    path.write_text(json.dumps(document))
    (point,) = read_sources([path]).points
    assert (point.load.depth, point.load.queues) == (8, 4)
    assert point.measured.iops == pytest.approx(result.iops), "the rate of all queues together"
    assert document["jobs"][0]["job options"]["group_reporting"], "fio's word for it"
    # Two jobs of a file that have one name are no two of one job.
    path.write_text(json.dumps(fio_document(result, result)))
    assert [point.measured.iops for point in read_sources([path]).points] == [pytest.approx(result.iops)] * 2
