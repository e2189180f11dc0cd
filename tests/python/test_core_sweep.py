"""flashmob sweep: refused early, resumed, interrupted."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, Result, cli, sweep, sweep_points
from flashmob.runner import prepare
from flashmob.sweep_points import Point, points
from rich.console import Console

SMALL = [Point(2.47e6, 1 << power) for power in (6, 7, 8)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    """A sweep of three short runs, in this process, drawing nothing."""
    ran: list[Point] = []

    class Inside:
        """Runs where it is asked to, so that a test sees what was run."""

        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> Inside:
            return self

        def __exit__(self, *_: object) -> None: ...
        def shutdown(self, **_: object) -> None: ...
        def submit(self, function: Any, point: Point) -> Any:
            future: sweep.Future[str] = sweep.Future()
            ran.append(point)
            try:
                future.set_result(function(point))
            except BaseException as error:
                future.set_exception(error)
            return future

    monkeypatch.setattr(sweep, "ProcessPoolExecutor", Inside)
    monkeypatch.setattr(sweep, "points", lambda quick: SMALL[:2] if quick else SMALL)
    monkeypatch.setattr(Point, "ios", property(lambda _: 2000))
    monkeypatch.setattr(sweep, "drawable", lambda: False)
    return ran


def run(out: Path, **options: Any) -> tuple[bool, str]:
    text = io.StringIO()
    done = sweep.run_sweep(out, **{"jobs": 1, "quick": False} | options, console=Console(file=text, width=200))
    return done, text.getvalue()


def kept(out: Path) -> list[int]:
    lines = (out / "sweep.jsonl").read_text(encoding="utf-8").splitlines()
    return [int(Result.from_json(line).options["requesters"]) for line in lines]


def test_devices_reach_their_targets() -> None:
    for point in points(quick=False):
        options = point.options()
        device, _ = prepare("d7-ps1010", options, options.pop("set"))
        assert device.timing.rate_at("read", 512) == point.target_iops


@pytest.mark.parametrize("out", ["/proc/x", "file", "file/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_runs(
    out: str,
    small: list[Point],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert cli.run(lambda: cli.app(["sweep", "--out", out], standalone_mode=True)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --out {out} ")
    assert error.count("\n") == 1
    assert small == []


def test_finished_points_are_kept(small: list[Point], tmp_path: Path) -> None:
    assert run(tmp_path, quick=True)[0]
    assert small == SMALL[:2]
    done, text = run(tmp_path)
    assert done
    assert small == SMALL
    assert "2 of 3 runs are in" in text
    assert kept(tmp_path) == [64, 128, 256]
    # A smaller sweep throws nothing away, and --fresh runs all again.
    run(tmp_path, quick=True)
    assert small == SMALL
    assert sorted(kept(tmp_path)) == [64, 128, 256]
    run(tmp_path, fresh=True)
    assert small == SMALL + SMALL


def test_a_line_that_was_cut_off_is_run_again(small: list[Point], tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "sweep.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-300], encoding="utf-8")
    assert run(tmp_path)[0]
    assert small == [*SMALL, SMALL[2]]
    assert kept(tmp_path) == [64, 128, 256]


def test_a_file_of_something_else_is_not_overwritten(small: list[Point], tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    path.write_text("dear diary\nit rained\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"line 1 is no result.*--fresh"):
        run(tmp_path)
    assert path.read_text(encoding="utf-8") == "dear diary\nit rained\n"
    assert small == []


def test_other_settings_are_not_taken_for_the_same_point(small: list[Point], tmp_path: Path) -> None:
    run(tmp_path, quick=True)
    result = Result.from_json((tmp_path / "sweep.jsonl").read_text(encoding="utf-8").splitlines()[0])
    point = SMALL[0]
    assert point.same(result)
    assert not SMALL[1].same(result)
    assert not replace(point, target_iops=5e6).same(result)
    assert not replace(point, queues=32).same(result)
    assert not point.same(replace(result, ios=1999))
    assert not point.same(replace(result, clock="real"))


def test_what_was_done_before_a_failure_stays(
    small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_at_last(point: Point) -> str:
        if point == SMALL[2]:
            raise RuntimeError("a worker died")
        return real(point)

    real = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", fail_at_last)
    with pytest.raises(RuntimeError, match="a worker died"):
        run(tmp_path)
    assert set(kept(tmp_path)) <= {64, 128}
    monkeypatch.setattr(sweep, "run_point", real)
    assert run(tmp_path)[0]
    assert kept(tmp_path) == [64, 128, 256]


def test_ctrl_c_keeps_what_is_done(
    small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pressed(sweep.CtrlC):
        """Pressed after the first result was taken in."""

        looks = 0

        @property
        def pressed(self) -> bool:
            Pressed.looks += 1
            return Pressed.looks > 1

        @pressed.setter
        def pressed(self, _: bool) -> None: ...

    first = sweep.wait
    monkeypatch.setattr(sweep, "CtrlC", Pressed)
    monkeypatch.setattr(sweep, "wait", lambda futures, **_: first(list(futures)[:1]))
    assert cli.run(lambda: cli.app(["sweep", "--out", str(tmp_path)], standalone_mode=True)) == 130
    text = " ".join(capsys.readouterr().out.split())
    assert f"stopped: 1 of 3 runs are in {tmp_path}/sweep.jsonl; the same command goes on from there" in text
    assert kept(tmp_path) == [64]


@pytest.mark.parametrize("later_s", [0.0, 0.1, 1.0])
def test_ctrl_c_leaves_nothing_to_complain_of(tmp_path: Path, later_s: float) -> None:
    """As a terminal does it: everybody gets the signal, workers and Python's tracker of semaphores among them."""
    command = [sys.executable, "-m", "flashmob", "sweep", "--quick", "--jobs", "2", "--out", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            deadline = time.monotonic() + 60
            # The tracker and two workers, whose interpreters have only begun to start.
            while len(children.read_text(encoding="ascii").split()) < 3:
                assert time.monotonic() < deadline, "no workers"
                time.sleep(0.01)
            time.sleep(later_s)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (-signal.SIGINT, "")


def test_a_run_that_ctrl_c_cut_short_does_not_count(
    small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sweep.run_point
    cut = json.dumps(json.loads(real(SMALL[0])) | {"ios": 7, "cancelled": True})
    monkeypatch.setattr(sweep, "run_point", lambda point: cut if point == SMALL[0] else real(point))
    assert not run(tmp_path)[0]
    assert kept(tmp_path) == [128, 256]


def test_doubtful_points_are_named(small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {
        SMALL[0]: {"verdict": "INVALID", "verdict_cause": "p99 is late"},
        SMALL[1]: {"verdict": "VALID (lateness only)"},
    }
    real = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", lambda point: json.dumps(json.loads(real(point)) | verdicts.get(point, {})))
    done, text = run(tmp_path)
    assert done
    assert (
        "INVALID, and not to be relied on: 1 run (64 requesters of a device of 2.47 MIOPS); of the first, p99 is late; "
        "the same command tries them again (of the same version with the same outcome)\n"
    ) in text
    assert ("VALID (lateness only), and else not judged: 1 run (128 requesters of a device of 2.47 MIOPS)\n") in text
    assert kept(tmp_path) == [64, 128, 256]
    verdicts.clear()
    done, text = run(tmp_path)
    assert done
    assert "1 run there is INVALID or cut short, and run again" in text
    assert "INVALID, and not" not in text
    assert small == [*SMALL, SMALL[0]]
    assert kept(tmp_path) == [64, 128, 256]
    assert len(sweep.doubts({Point(1e6, count): Result(1.0, "INVALID", "virtual") for count in range(99)})) == 1
    (many,) = sweep.doubts({Point(1e6, count): Result(1.0, "INVALID", "virtual") for count in range(99)})
    assert "99 runs (0 requesters of" in many
    assert "; and 89 more)" in many


def test_a_doubtful_result_stays_until_there_is_another(
    small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    path = tmp_path / "sweep.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    doubtful = json.dumps(json.loads(lines[0]) | {"verdict": "INVALID", "verdict_cause": "p99 is late"})
    also = json.dumps(json.loads(lines[1]) | {"verdict": "INVALID", "verdict_cause": "p99 is late"})
    path.write_text("\n".join([doubtful, also, lines[2]]) + "\n", encoding="utf-8")
    real, seen = sweep.run_point, []

    def ctrl_c(point: Point) -> str:
        seen.append(path.read_text(encoding="utf-8"))
        if point == SMALL[1]:
            return json.dumps(json.loads(real(point)) | {"ios": 7, "cancelled": True})
        return json.dumps(json.loads(real(point)) | {"verdict": "INVALID", "verdict_cause": "again"})

    monkeypatch.setattr(sweep, "run_point", ctrl_c)
    done, text = run(tmp_path)
    assert not done
    assert "stopped: 2 of 3 runs are in" in text
    assert "INVALID, and not to be relied on: 1 run (64 requesters" in text
    assert all(doubtful in one and also in one for one in seen), "it was lost before anything was in its place"
    after = path.read_text(encoding="utf-8").splitlines()
    assert doubtful not in after
    assert also in after
    assert len(after) == 3
    monkeypatch.setattr(sweep, "run_point", real)
    assert run(tmp_path)[0]
    assert kept(tmp_path) == [64, 128, 256]
    assert "INVALID" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("why", ["cancelled", "device_failed"])
def test_an_earlier_run_that_was_cut_short_is_run_again(small: list[Point], tmp_path: Path, why: str) -> None:
    run(tmp_path)
    path = tmp_path / "sweep.jsonl"
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | {why: True}), *rest]) + "\n", encoding="utf-8")
    assert run(tmp_path)[0]
    assert small == [*SMALL, SMALL[0]]
    assert kept(tmp_path) == [64, 128, 256]
    assert f'"{why}": true' not in path.read_text(encoding="utf-8")


def test_invalid_points_are_crossed_out(small: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from flashmob import sweep_figure

    crossed: list[float] = []
    real = sweep_figure._cross_out

    def watch(axes: Any, where: Any) -> None:
        places = list(where)
        crossed.extend(x for x, _, result in places if result.verdict == "INVALID")
        real(axes, places)

    monkeypatch.setattr(sweep_figure, "_cross_out", watch)
    run(tmp_path)
    lines = (tmp_path / "sweep.jsonl").read_text(encoding="utf-8").splitlines()
    results = dict(zip(SMALL, map(Result.from_json, lines), strict=True))
    sweep_figure.draw_sweep(results, tmp_path / "good.svg")
    assert crossed == []
    sweep_figure.draw_sweep(results | {SMALL[1]: replace(results[SMALL[1]], verdict="INVALID")}, tmp_path / "bad.svg")
    assert crossed == [128, 128]
    assert "INVALID" in (tmp_path / "bad.svg").read_text(encoding="utf-8")


def test_the_time_left_follows_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(sweep.time, "monotonic", lambda: now)
    meter = sweep._Meter(4, 100.0)
    now = 10.0
    meter.step(50.0)
    assert meter.text() == "1 of 4, about 10 s left"
    assert not meter.due()
    now = 400.0
    assert meter.text() == "1 of 4, about 7 min left"
    assert meter.due()
    assert not meter.due()


def test_all_points_are_distinct() -> None:
    assert len(set(points(quick=False))) == len(points(quick=False))
    assert set(points(quick=True)) <= set(points(quick=False))
    assert sweep_points.model_iops(1e6, 10) == 2e5
