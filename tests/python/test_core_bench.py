"""Benchmarks through Python and through the command line: deterministic, verified, stoppable."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flashmob
import pytest
from flashmob import ConfigError, Result, cli, runner
from flashmob.runner import BenchRun, prepare

SMALL: dict[str, Any] = {"queues": 2, "qd": 32, "bs": 512, "size": "16M", "ramp": "20ms", "runtime": "100ms"}
VIRTUAL: dict[str, Any] = {"clock": "virtual", "queues": 8, "requesters": 4096, "ios": 50_000, "size": "16M", "seed": 7}


def test_virtual_runs_repeat_bit_for_bit() -> None:
    first, second = (flashmob.bench("storagenext-100m", **VIRTUAL) for _ in range(2))
    assert first.comparable == second.comparable
    assert first.verdict.startswith("VALID")
    assert first.iops == pytest.approx(100e6, rel=0.03)
    other = flashmob.bench("storagenext-100m", **VIRTUAL | {"seed": 8})
    assert first.comparable != other.comparable


def test_virtual_latency_follows_little() -> None:
    result = flashmob.bench("d7-ps1010", **VIRTUAL | {"requesters": 1024, "ios": 100_000})
    assert result.iops == pytest.approx(2.47e6, rel=0.005)
    assert result.latency_ns.mean == pytest.approx(1024 / 2.47e6 * 1e9, rel=0.02)
    assert result.model_iops == pytest.approx(2.47e6, rel=0.001)


def test_light_load_has_the_models_latency() -> None:
    result = flashmob.bench("d7-ps1010", clock="virtual", queues=1, qd=1, ios=2000, size="16M")
    assert result.latency_ns.mean == pytest.approx(50_000, abs=1_000)


def test_real_time_reads_are_verified() -> None:
    seen: list[str] = []
    result = flashmob.bench(
        "d7-ps1010", **SMALL, verify=100, on_progress=lambda progress: seen.append(progress.phase), interval_s=0.02
    )
    assert result.clock == "real"
    assert result.verified > 0
    assert result.verify_errors == 0
    assert result.errors == {}
    assert result.ios > 100
    assert result.latency_ns.p50 >= 49_000
    assert result.latency_ns.p50 <= result.latency_ns.p99 <= result.latency_ns.max
    assert seen
    assert set(seen) <= {"fill", "ramp", "run", "model", "done"}
    assert result.provenance["version"] == flashmob.__version__


@pytest.mark.parametrize("media", ["memory", "generated"])
@pytest.mark.parametrize("rw", ["read", "randread"])
def test_reads_of_every_kind(media: str, rw: str) -> None:
    result = flashmob.bench("unlimited", **VIRTUAL | {"rw": rw, "media": media, "verify": 100, "bs": "512:50,4k:50"})
    assert result.verified > 1000
    assert result.verify_errors == 0


def test_mixed_reads_and_writes_stay_right() -> None:
    result = flashmob.bench("unlimited", **VIRTUAL | {"rw": "randrw", "verify": 100, "distribution": "zipf:0.99"})
    assert result.read_ios > 10_000
    assert result.write_ios > 10_000
    assert result.verified > 1000
    assert result.verify_errors == 0


def test_files_are_verified_against_themselves(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    result = flashmob.bench("unlimited", **VIRTUAL | {"size": None, "media": f"cow:{path}", "verify": 100})
    assert result.verified > 1000
    assert result.verify_errors == 0


def test_open_loop_rate() -> None:
    result = flashmob.bench(
        "d7-ps1010", **VIRTUAL | {"requesters": None, "qd": 256, "rate": "1M", "arrivals": "fixed", "ios": 20_000}
    )
    assert result.iops == pytest.approx(1e6, rel=0.02)


def test_frontend_only_says_so() -> None:
    result = flashmob.bench("unlimited", **VIRTUAL | {"move_data": False})
    assert result.data_moved is False
    assert result.verified == 0


def test_cancel_still_reports() -> None:
    device, load = prepare("d7-ps1010", SMALL | {"runtime": "60s"})
    run = BenchRun(device, load)
    run.start()
    deadline = time.monotonic() + 20
    while run.progress().phase != "run" and time.monotonic() < deadline:
        time.sleep(0.01)
    threading.Timer(0.1, run.cancel).start()
    result = run.result()
    assert run.cancelled
    assert result.ios > 0
    assert result.wall_seconds < 30


@pytest.mark.parametrize("interval_s", [math.nan, math.inf, 0, -1, "1", True, None, 10**400, 90_000])
def test_an_interval_that_is_none_is_refused_before_the_run(interval_s: Any) -> None:
    with pytest.raises(ConfigError, match=r"^interval_s = .* is not possible: use seconds above 0, at most 86400$"):
        flashmob.bench("d7-ps1010", **SMALL | {"runtime": "60s"}, interval_s=interval_s)
    assert no_run_is_left()


def test_progress_comes_at_the_interval() -> None:
    """One that is no multiple of the time between two looks at Ctrl-C."""
    seen: list[float] = []
    flashmob.bench(
        "d7-ps1010", **SMALL | {"runtime": "2s"}, on_progress=lambda _: seen.append(time.monotonic()), interval_s=0.3
    )
    assert 0.3 <= min(after - before for before, after in pairwise(seen)) < 0.45


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_run_is_left_behind(error: type[BaseException]) -> None:
    """Whatever ends the wait for it, a second Ctrl-C among it: nobody else could stop the engine."""

    def fail(_: object) -> None:
        raise error("of the caller's own")

    with pytest.raises(error, match="of the caller's own"):
        flashmob.bench("d7-ps1010", **SMALL | {"runtime": "60s"}, on_progress=fail, interval_s=0.02)
    assert no_run_is_left()


def test_no_model_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins after the run has been asked to stop."""

    class Slow:
        def __init__(self, *_: object) -> None:
            self._asked, self._given_up = threading.Event(), threading.Event()
            self._judging = False

        def run(self) -> str:
            self._asked.wait(20)
            time.sleep(0.2)
            self._judging = True
            self._given_up.wait(20)
            return ""

        def cancel(self) -> None:
            self._asked.set()
            if self._judging:
                self._given_up.set()

    device, load = prepare("d7-ps1010", SMALL)
    monkeypatch.setattr(runner, "core_module", lambda: SimpleNamespace(Bench=Slow))
    monkeypatch.setattr(runner, "_LEAVE_S", 10.0)
    with pytest.raises(ValueError, match="of the caller's own"), BenchRun(device, load) as run:
        raise ValueError("of the caller's own")
    assert run.wait(0)


def no_run_is_left() -> bool:
    deadline = time.monotonic() + 20
    while (left := any(one.name == "flashmob-bench" for one in threading.enumerate())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def test_mistakes_that_only_the_device_can_see(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_queue_pairs"):
        flashmob.bench("d7-ps1010", **VIRTUAL | {"queues": 300})
    with pytest.raises(ConfigError, match="max_transfer_bytes"):
        flashmob.bench("d7-ps1010", **VIRTUAL | {"bs": "2M"})
    trace = tmp_path / "trace"
    trace.write_text("this is no trace\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        flashmob.bench("d7-ps1010", **VIRTUAL | {"ios": None, "trace": str(trace)})


def test_trace_replay(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    # MSR Cambridge: time in 100 ns, host, disk, type, offset and size in bytes, response time.
    lines = [f"{1000 + 10 * i},host,0,{'Read' if i % 2 else 'Write'},{4096 * i},4096,0" for i in range(200)]
    trace.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = flashmob.bench(
        "d7-ps1010", clock="virtual", queues=2, qd=16, size="16M", trace=str(trace), trace_format="msr", verify=100
    )
    assert result.ios == 200
    assert (result.read_ios, result.write_ios) == (100, 100)
    assert result.verify_errors == 0


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    arguments = "bench storagenext-100m --clock virtual --requesters 4096 --queues 8 --ios 20000 --size 16M --seed 7"
    assert cli.run(lambda: cli.app([*arguments.split(), "--json", str(path)])) == 0
    assert "VALID" in capsys.readouterr().out
    result = Result.load(path)
    assert result.ios >= 20_000
    assert cli.run(lambda: cli.app([*arguments.split(), "--json", "-"])) == 0
    captured = capsys.readouterr()
    assert Result.from_json(captured.out).comparable == result.comparable
    assert "VALID" in captured.err


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(lambda: cli.app(["info", "d7-ps1010"])) == 0
    text = capsys.readouterr().out
    assert "NVME Identify Controller:" in text
    assert "mn        : flashmob d7-ps1010" in text
    assert "(in use)" in text


def test_ctrl_c_stops_cleanly_and_prints_the_report(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = "-m flashmob bench d7-ps1010 --size 16M --queues 2 --qd 32 --ramp 10ms --runtime 100s --json"
    process = subprocess.Popen(
        [sys.executable, *arguments.split(), str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # The main thread, the benchmark's, the driver's and the engine's: it is running.
        tasks = Path(f"/proc/{process.pid}/task")
        deadline = time.monotonic() + 30
        while len(list(tasks.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, err
    assert "stopped" in out
    assert "VALID" in out
    assert json.loads(path.read_text(encoding="utf-8"))["ios"] > 0


def test_a_second_ctrl_c_leaves_at_once_and_without_a_word() -> None:
    arguments = "-m flashmob bench d7-ps1010 --size 16M --queues 2 --qd 32 --ramp 10ms --runtime 100s"
    # The first is noted and stops the run; the second may come before the run has ended.
    twice = "import flashmob.runner as r; r.BenchRun.cancel = lambda self: None"
    code = f"{twice}; import sys, flashmob.cli; sys.argv = ['flashmob', *{arguments.split()[2:]}]; flashmob.cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        tasks = Path(f"/proc/{process.pid}/task")
        deadline = time.monotonic() + 30
        while len(list(tasks.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(2):
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (-signal.SIGINT, "")


def test_sweep_makes_its_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from flashmob.sweep import points, run_sweep
    from rich.console import Console

    run_sweep(tmp_path, jobs=2, quick=True, console=Console(quiet=True))
    lines = (tmp_path / "sweep.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(points(quick=True))
    for line in lines:
        result = Result.from_json(line)
        assert result.model_iops is not None
        assert result.iops == pytest.approx(result.model_iops, rel=0.02)
    assert "fig. 12b" in (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


@pytest.mark.parametrize("completion", ["interrupt", "hybrid"])
@pytest.mark.parametrize(
    "load",
    [
        {"queues": 1, "qd": 1},
        {"queues": 4, "qd": 16, "threads": 2, "rw": "randrw", "bs": "512,4k,16k"},
        {"queues": 2, "rate": 3_000, "qd": 8},
        # More queues than vectors: they share those there are.
        {"queues": 8, "qd": 4, "set": {"controller.interrupt_vectors": 3}},
        {"queues": 1, "qd": 5_000},
    ],
)
def test_a_driver_that_sleeps_answers_everything(completion: str, load: dict[str, Any]) -> None:
    result = flashmob.bench("d7-ps1010", **SMALL | {"verify": 100} | load, completion=completion)
    assert result.ios > 0
    assert result.verify_errors == 0
    assert not result.errors
    assert result.verdict in ("VALID (lateness only)", "INVALID")
    waits = result.provenance["waits"]
    assert waits["cpu_ns_per_io"] > 0
    assert waits["woken"] <= waits["sleeps"]
    if completion == "interrupt" and load["qd"] == 1:
        assert waits["woken"] > result.ios / 4, "what completes while it sleeps wakes it"
    assert result.options["completion"] == completion


@pytest.mark.parametrize("completion", ["interrupt", "hybrid"])
def test_a_driver_that_sleeps_at_each_door(completion: str, flashmob_serve: Any) -> None:
    served = flashmob_serve(size="16M", vfio_user=True, tcp=True)
    for target in served.targets:
        result = flashmob.bench(target, queues=2, qd=4, ramp="20ms", runtime="150ms", completion=completion)
        assert result.ios > 0, target
        assert not result.errors
        assert result.provenance["waits"]["sleeps"] > 0
        assert not result.unanswered


def test_a_sleeping_driver_is_stopped_at_once() -> None:
    """With nothing on its way: the one command there was is lost."""
    device, load = prepare(
        "d7-ps1010",
        {**SMALL, "queues": 1, "qd": 1, "runtime": "60s", "completion": "interrupt", "faults": ["lose at=10"]},
    )
    with BenchRun(device, load) as started:
        time.sleep(0.5)
        begun = time.monotonic()
        started.cancel()
        result = started.result()
    assert time.monotonic() - begun < 30
    assert result.unanswered == 1
