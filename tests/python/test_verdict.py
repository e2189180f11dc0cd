"""The verdict on real processes: what the machine takes away from a run is in its verdict, with the right cause.

Real time on a machine that may be busy proves nothing about VALID; these tests only expect INVALID where it was earned.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flashmob._core")

OPEN_LOOP = ["d7-ps1010", "--size", "16M", "--rate", "20000", "--queues", "1", "--qd", "512", "--ramp", "300ms"]


def bench(out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flashmob", "bench", *OPEN_LOOP, *arguments, "--json", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def finished(process: subprocess.Popen[bytes], out: Path) -> dict[str, Any]:
    assert process.wait(timeout=120) == 0
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


def test_a_process_that_is_stopped_again_and_again_says_so(tmp_path: Path) -> None:
    out = tmp_path / "stopped.json"
    process = bench(out, "--runtime", "2s")
    while process.poll() is None:
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.02)
        os.kill(process.pid, signal.SIGCONT)
    result = finished(process, out)
    assert result["verdict"] == "INVALID"
    assert "preempted" in result["verdict_cause"], result["verdict_cause"]
    # One stop in ten is far beyond the 99th percentile, and none is left out of what the host saw.
    assert result["latency_ns"]["p99"] > 5e6
    assert max(result["gaps"]["longest_ns"], result["host_gaps"]["longest_ns"]) > 10e6


STOPPED_AT_THE_END = """
import sys, flashmob
load = dict(size="16M", rate=20000, queues=1, qd=512, ramp="300ms", runtime="3s")
seen = lambda progress: print(progress.phase, flush=True)
print(flashmob.bench("d7-ps1010", **load, on_progress=seen, interval_s=0.1).to_json(None))
"""


def test_a_stop_that_the_run_does_not_outlive_is_not_lost() -> None:
    """The measured time ends while the process stands still."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED_AT_THE_END], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() not in ("run\n", ""):
        pass
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(3.5)
    os.kill(process.pid, signal.SIGCONT)
    last = process.stdout.read().splitlines()[-1]
    assert process.wait(timeout=60) == 0
    result = json.loads(last)
    assert result["verdict"] == "INVALID"
    assert "preempted" in result["verdict_cause"], result["verdict_cause"]
    assert result["latency_ns"]["p99"] > 1e9


def test_a_competitor_on_the_same_cores_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "crowded.json"
    core = str(min(os.sched_getaffinity(0)))
    burn = f"import os, time; os.sched_setaffinity(0, {{{core}}}); end = time.time() + 4\n"
    burn += "while time.time() < end: pass"
    competitors = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
    try:
        process = bench(out, "--runtime", "1s", "--cores", core, "--set", f"engine.cores=[{core}]")
        result = finished(process, out)
    finally:
        for competitor in competitors:
            competitor.kill()
            competitor.wait()
    # Engine, driver and two others share one core: the schedulers' slices are milliseconds.
    assert result["verdict"] == "INVALID"
    assert "preempted" in result["verdict_cause"], result["verdict_cause"]


def test_an_fsync_is_late(tmp_path: Path) -> None:
    """A Flush of file media waits for the disk, on a thread of its own, and the model does not: the host sees it."""
    fio = ["fio version 2 iolog\n", "/x add\n", "/x open\n"]
    for i in range(500):
        fio.append(f"/x write {i % 1000 * 4096} 4096\n")
        if i % 5 == 0:
            fio.append("/x sync 0 0\n")
    log = tmp_path / "trace.log"
    log.write_text("".join(fio), encoding="ascii")
    out = tmp_path / "fsync.json"
    media = f"file:{tmp_path / 'image'}"
    command = [sys.executable, "-m", "flashmob", "bench", "d7-ps1010", "--media", media, "--size", "8M"]
    command += ["--trace", str(log), "--trace-format", "fio", "--queues", "1", "--qd", "1", "--json", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    result = finished(process, out)
    # A disk flushes in tens of microseconds at the least; a memory file system may take less than the clock's grain.
    flush_ns = min_flush_ns(tmp_path)
    if flush_ns < 50_000:
        pytest.skip(f"this file system flushes in {flush_ns / 1000:.0f} us, which is hardly late")
    assert result["lateness_ns"]["max"] > flush_ns / 2


def min_flush_ns(folder: Path) -> float:
    """The shortest of some fsyncs of a changed page on the same file system."""
    times = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for i in range(5):
            file.write(bytes([i]) * 4096)
            start = time.perf_counter_ns()
            os.fsync(file.fileno())
            times.append(time.perf_counter_ns() - start)
    return min(times)
