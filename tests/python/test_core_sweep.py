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

import flashmob
import pytest
from flashmob import ConfigError, Result, cli, runner, sweep, sweep_points
from flashmob.runner import prepare
from flashmob.sweep_points import Point, points
from rich.console import Console

SMALL = [Point(2.47e6, 1 << power) for power in (6, 7, 8)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A sweep of three short runs, in this process, drawing nothing; what was run, by its requesters."""
    ran: list[int] = []
    real = sweep.run_point

    def seen(settings: Any) -> dict[str, Any]:
        ran.append(settings["requesters"])
        return real(settings)

    monkeypatch.setattr(sweep, "run_point", seen)
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
    small: list[int],
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


def test_finished_points_are_kept(small: list[int], tmp_path: Path) -> None:
    assert run(tmp_path, quick=True)[0]
    assert sorted(small) == [64, 128]
    done, text = run(tmp_path)
    assert done
    assert (sorted(small[:2]), small[2:]) == ([64, 128], [256])
    assert "2 of 3 measurements are in" in text
    assert "1 run, " in text
    assert kept(tmp_path) == [64, 128, 256]
    # A smaller sweep throws nothing away, and --fresh runs all again.
    run(tmp_path, quick=True)
    assert run(tmp_path)[0]
    assert len(small) == 3
    assert kept(tmp_path) == [64, 128, 256]
    run(tmp_path, fresh=True)
    assert sorted(small[3:]) == [64, 128, 256]


def test_a_file_of_something_else_is_not_overwritten(small: list[int], tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    path.write_text("dear diary\nit rained\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a sweep\.jsonl that no sweep made"):
        run(tmp_path)
    assert path.read_text(encoding="utf-8") == "dear diary\nit rained\n"
    assert small == []


def test_other_settings_are_not_taken_for_the_same_point(
    small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    monkeypatch.setattr(sweep_points, "D7_LATENCY_NS", 60_000)
    run(tmp_path)
    assert len(small) == 6


def test_what_was_done_before_a_failure_stays(
    small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sweep.run_point

    def fail_at_last(settings: Any) -> dict[str, Any]:
        if len(small) == 2:
            raise RuntimeError("a worker died")
        return real(settings)

    monkeypatch.setattr(sweep, "run_point", fail_at_last)
    with pytest.raises(RuntimeError, match="a worker died"):
        run(tmp_path)
    monkeypatch.setattr(sweep, "run_point", real)
    assert run(tmp_path)[0]
    assert kept(tmp_path) == sorted(small) == [64, 128, 256]


def test_ctrl_c_keeps_what_is_done(
    small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = sweep.run_point

    def ctrl_c_at_second(settings: Any) -> dict[str, Any]:
        if len(small) == 1:
            raise KeyboardInterrupt
        return real(settings)

    monkeypatch.setattr(sweep, "run_point", ctrl_c_at_second)
    words = ["sweep", "--jobs", "1", "--out", str(tmp_path)]
    assert cli.run(lambda: cli.app(words, standalone_mode=True)) == 130
    text = " ".join(capsys.readouterr().out.split())
    assert f"stopped: 1 of 3 measurements are in {tmp_path}; the same command goes on from there" in text
    assert kept(tmp_path) == small


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
    small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = flashmob.bench
    monkeypatch.setattr(runner, "bench", lambda *words, **named: replace(real(*words, **named), ios=7, cancelled=True))
    done, text = run(tmp_path)
    assert not done
    assert "stopped: 0 of 3" in text
    assert len(small) == 1
    assert kept(tmp_path) == []


def change(tmp_path: Path, requesters: int, **changes: Any) -> None:
    """Changes what a sweep has kept of a point."""
    for path in (tmp_path / "points").iterdir():
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["settings"]["requesters"] == requesters:
            document["result"] |= changes
            path.write_text(json.dumps(document), encoding="utf-8")


def test_doubtful_points_are_named_and_run_again(small: list[int], tmp_path: Path) -> None:
    run(tmp_path)
    change(tmp_path, 128, verdict="VALID (lateness only)")
    done, text = run(tmp_path)
    assert done
    assert ("VALID (lateness only), and else not judged: 1 run (128 requesters of a device of 2.47 MIOPS)\n") in text
    change(tmp_path, 64, verdict="INVALID", verdict_cause="p99 is late")
    done, text = run(tmp_path)
    assert "2 of 3 measurements are in" in text
    assert "INVALID, and" not in text
    assert small[3:] == [64]
    assert kept(tmp_path) == [64, 128, 256]


def test_doubts_are_said_in_a_sentence() -> None:
    one = {SMALL[0]: Result(1.0, "INVALID", "virtual", verdict_cause="p99 is late")}
    assert sweep.doubts(one) == [
        "INVALID, and not to be relied on: 1 run (64 requesters of a device of 2.47 MIOPS); of the first, p99 is late; "
        "the same command tries them again (of the same version with the same outcome)"
    ]
    (many,) = sweep.doubts({Point(1e6, count): Result(1.0, "INVALID", "virtual") for count in range(99)})
    assert "99 runs (0 requesters of" in many
    assert "; and 89 more)" in many


@pytest.mark.parametrize("changes", [{"cancelled": True}, {"device_failed": True}, {"ios": 1999}])
def test_an_earlier_run_that_was_cut_short_is_run_again(
    small: list[int], tmp_path: Path, changes: dict[str, Any]
) -> None:
    run(tmp_path)
    change(tmp_path, 64, **changes)
    assert run(tmp_path)[0]
    assert small[3:] == [64]
    assert kept(tmp_path) == [64, 128, 256]


def test_invalid_points_are_crossed_out(small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_all_points_are_distinct() -> None:
    assert len(set(points(quick=False))) == len(points(quick=False))
    assert set(points(quick=True)) <= set(points(quick=False))
    assert sweep_points.model_iops(1e6, 10) == 2e5
