"""Studies: points and their order, results that are kept, reports."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError
from flashmob.study import Settings, StoppedError, Study, Trial, grid, key, run_study, trials
from flashmob.study.report import (
    beside_paper,
    findings,
    html,
    markdown,
    not_measured,
    paper,
    sections,
    short_table,
    summary,
)
from flashmob.study.runner import _Meter
from flashmob.study.store import Store
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

POINTS = grid(depth=[1, 2, 4], name="x")


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    file: Any = console.file
    return str(file.getvalue())


def test_a_grid_is_every_combination_the_last_axis_first() -> None:
    found = grid(rw=["read", "write"], depth=[1, 2], size=4096)
    assert [(one["rw"], one["depth"], one["size"]) for one in found] == [
        ("read", 1, 4096),
        ("read", 2, 4096),
        ("write", 1, 4096),
        ("write", 2, 4096),
    ]


def test_equal_settings_have_one_key_and_others_have_another() -> None:
    assert key({"a": 1, "b": [2]}) == key({"b": [2], "a": 1})
    keys = {key(one) for one in ({"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": None}, {"b": 1}, {"a": 1, "b": 1}, {"a": [1]})}
    assert len(keys) == 7
    for wrong in ({"a": object()}, {"a": float("nan")}):
        with pytest.raises(ConfigError, match="are not possible"):
            key(wrong)


@given(st.integers(1, 4), st.integers(0, 1000))
def test_the_order_is_drawn_from_the_seed_and_has_every_point_once_a_repeat(repeats: int, seed: int) -> None:
    order = trials(POINTS, repeats=repeats, seed=seed)
    assert order == trials(list(reversed(POINTS)), repeats=repeats, seed=seed)
    for repeat in range(repeats):
        part = order[repeat * 3 : (repeat + 1) * 3]
        assert {one.repeat for one in part} == {repeat}
        assert sorted(one.settings["depth"] for one in part) == [1, 2, 4]


def test_the_order_is_not_the_grids() -> None:
    orders = {tuple(one.settings["depth"] for one in trials(POINTS, seed=seed)) for seed in range(20)}
    assert len(orders) > 1


def test_points_that_cannot_be_are_refused() -> None:
    assert len(trials([*POINTS, *POINTS])) == 3
    with pytest.raises(ConfigError, match="has no points"):
        trials(grid(depth=[]))
    with pytest.raises(ConfigError, match="at least 1"):
        trials(POINTS, repeats=0)


def depth_of(settings: Settings) -> dict[str, Any]:
    return {"twice": 2 * settings["depth"], "deep": {"er": settings["depth"]}, "list": [1]}


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure(settings: Settings) -> dict[str, Any]:
        measured.append(settings["depth"])
        return depth_of(settings)

    first = run_study("depth", POINTS[:2], measure, out=tmp_path, console=quiet())
    assert sorted(measured) == [1, 2]
    assert [row["depth"] for row in first.rows()] == [1, 2]
    console = quiet()
    table = run_study("depth", POINTS, measure, out=tmp_path, repeats=2, console=console)
    assert sorted(measured) == [1, 1, 2, 2, 4, 4]
    assert "2 of 6 measurements are in" in said(console)
    assert [(row["depth"], row["repeat"], row["twice"], row["deep.er"]) for row in table.rows()] == [
        (depth, repeat, 2 * depth, depth) for depth in (1, 2, 4) for repeat in (0, 1)
    ]
    assert len(list((tmp_path / "points").iterdir())) == 6
    run_study("depth", POINTS, measure, out=tmp_path, fresh=True, console=quiet())
    assert len(measured) == 9


def test_a_measurement_may_be_given_more_than_its_points_settings(tmp_path: Path) -> None:
    def given(trial: Trial) -> Settings:
        return {**trial.settings, "depth": 100 + trial.repeat}

    table = Study("depth", POINTS[:1], depth_of, repeats=2, given=given).run(tmp_path, console=quiet())
    assert [(row["depth"], row["twice"]) for row in table.rows()] == [(1, 200), (1, 202)]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, StoppedError])
def test_a_study_that_is_stopped_goes_on_where_it_was(tmp_path: Path, stop: type[BaseException]) -> None:
    count = 0

    def measure(settings: Settings) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == 2:
            raise stop
        return depth_of(settings)

    console = quiet()
    table = run_study("depth", POINTS, measure, out=tmp_path, console=console)
    assert not table.is_whole
    assert len(table.rows()) == 1
    assert "stopped: 1 of 3 measurements" in said(console)
    again = run_study("depth", POINTS, measure, out=tmp_path, console=quiet())
    assert again.is_whole
    assert count == 4
    assert len(again.rows()) == 3


def test_an_error_of_a_point_keeps_those_before_it(tmp_path: Path) -> None:
    def measure(settings: Settings) -> dict[str, Any]:
        if settings["depth"] == 4:
            raise ConfigError("depth 4 is too much")
        return depth_of(settings)

    with pytest.raises(ConfigError, match="depth 4"):
        Study("depth", POINTS, measure, seed=3).run(tmp_path, console=quiet())
    kept = [json.loads(path.read_text())["settings"]["depth"] for path in (tmp_path / "points").iterdir()]
    assert 4 not in kept


@pytest.mark.parametrize("wrong", [7, {"x": object()}, {"x": float("inf")}])
def test_what_is_no_document_is_not_kept(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError):
        run_study("depth", POINTS[:1], lambda _: wrong, out=tmp_path, console=quiet())
    assert list((tmp_path / "points").iterdir()) == []


def test_a_damaged_or_foreign_file_is_measured_again(tmp_path: Path) -> None:
    store, trial = Store(tmp_path, "depth"), Trial(POINTS[0])
    store.save(trial, {"x": 1})
    assert store.load(trial) == {"x": 1}
    assert Store(tmp_path, "other").load(trial) is None
    assert Store(tmp_path, "other").path(trial) != store.path(trial)
    assert store.load(Trial(POINTS[0], 1)) is None
    good = store.path(trial).read_text()
    for damaged in (
        "",
        good[:-20],
        "[]",
        "[" * 200_000,
        '{"result": 3}',
        good.replace('"depth": 1', '"depth": 3'),
        "\x00\x01",
    ):
        store.path(trial).write_text(damaged)
        assert store.load(trial) is None
    store.path(trial).write_text(good.replace('"schema": 1', '"schema": 99'))
    with pytest.raises(ConfigError, match="another version"):
        store.load(trial)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        run_study("depth", POINTS, depth_of, out=tmp_path / "file", console=quiet())


def test_the_time_that_is_left_goes_by_work() -> None:
    now = [100.0]
    meter = _Meter(3, 100.0, lambda: now[0])
    assert meter.text("x") == "0 of 3: x"
    now[0] = 110.0
    meter.step(20.0)
    assert meter.text("") == "1 of 3, about 40 s left"
    assert not meter.is_due()
    now[0] = 400.0
    assert meter.is_due()
    assert not meter.is_due()
    assert "min left" in meter.text("")


# --- the report


def row(interface: str, iops: float, **changes: Any) -> dict[str, Any]:
    common = {
        "rw": "randread",
        "block_bytes": 4096,
        "threads": 1,
        "depth": 1,
        "repeat": 0,
        "supported": True,
        "errors": 0,
    }
    figures = {
        "iops": iops,
        "p50_us": 10.0,
        "p99_us": 20.0,
        "mean_us": 11.0,
        "cpu_us_per_io": 5.0,
        "energy.source": "none",
    }
    return {"interface": interface, **common, **figures, "reason": ""} | changes


def test_repeats_become_a_mean_with_its_ends() -> None:
    points = summary([row("a", 100.0), row("b", 50.0), row("a", 300.0, repeat=1)])
    assert [(one["interface"], one["iops"], one["iops.least"], one["iops.most"]) for one in points] == [
        ("a", 200.0, 100.0, 300.0),
        ("b", 50.0, 50.0, 50.0),
    ]


def test_findings_name_the_best_with_their_figures() -> None:
    points = summary([row("fast", 1e6, cpu_us_per_io=9.0), row("frugal", 1e3, cpu_us_per_io=1.5)])
    (sentence,) = findings(points)
    assert "most requests by fast (1.000 MIOPS, 9.00 µs" in sentence
    assert "least CPU by frugal (1.50 µs" in sentence
    assert "joule" not in sentence
    metered = [
        row(name, 10.0, ios_per_joule=joule, **{"energy.source": "measured"}) for name, joule in (("a", 1), ("b", 2))
    ]
    assert "most per joule (measured) by b" in findings(summary(metered))[0]
    assert findings(summary([row("one", 1.0)])) == []
    assert "of one run each" in sentence
    twice = [row(name, 10.0, repeat=repeat) for name in "ab" for repeat in (0, 1)]
    assert "of one run each" not in findings(summary(twice))[0]


def test_two_meters_are_never_one_figure() -> None:
    def by(meter: str, interface: str, joule: float, repeat: int = 0) -> dict[str, Any]:
        energy = {"energy.source": "measured", "energy.meter": meter}
        return row(interface, 10.0, ios_per_joule=joule, watts=joule, repeat=repeat, **energy)

    (mixed,) = summary([by("log", "a", 1.0), by("rapl", "a", 9.0, repeat=1)])
    assert mixed["energy.source"] == "mixed"
    assert "watts" not in mixed
    assert "ios_per_joule" not in mixed
    (same,) = summary([by("log", "a", 1.0), by("log", "a", 3.0, repeat=1)])
    assert (same["energy.source"], same["energy.meter"], same["watts"]) == ("measured", "log", 2.0)
    (sentence,) = findings(summary([by("log", "a", 1.0), by("log", "b", 2.0), by("rapl", "c", 99.0)]))
    assert "(measured, log) by b" in sentence
    assert "(measured, rapl) by c" in sentence


def test_what_is_not_done_is_measured_again(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure(settings: Settings) -> dict[str, Any]:
        measured.append(settings["depth"])
        return {"good": settings["depth"] != 2}

    study = Study("depth", POINTS, measure, is_done=lambda result: result["good"])
    # Brackets are no markup.
    study.run(tmp_path / "o[/b]", console=quiet())
    study.run(tmp_path / "o[/b]", console=quiet())
    assert sorted(measured) == [1, 2, 2, 4]


def test_repeats_that_overlap_are_said() -> None:
    rows = [row("a", 100.0), row("a", 300.0, repeat=1), row("b", 90.0), row("b", 110.0, repeat=1)]
    assert "overlap" in findings(summary(rows))[0]
    assert "overlap" not in findings(summary([row("a", 100.0), row("b", 90.0)]))[0]


def test_the_page_has_reasons_and_the_paper_beside_and_escapes_names() -> None:
    missing = row("io_uring", 0.0, supported=False, reason="forbidden | here")
    points = summary([row("posix-sio", 100.0), row("libaio", 90.0, errors=3), missing])
    assert not_measured(points) == ["io_uring: forbidden | here"]
    parts = sections(points, {"target": "<b>&file"}, ["randread-4096.svg"])
    for page in (text := markdown(parts), web := html(parts)):
        assert "are of its own drive and machine" in page
        assert "Optane P4801X" in page
        assert "3 requests failed" in page
        assert "randread-4096.svg" in page
    assert "io_uring: forbidden \\| here" in text
    assert "<b>&file" not in web
    assert "&lt;b&gt;&amp;file" in web


def test_the_papers_table_is_whole_and_sorted_as_printed() -> None:
    printed = paper()
    assert len(printed["rows"]) == 9
    assert all(len(one) == len(printed["columns"]) for one in printed["rows"])
    assert "table 2" in printed["source"]
    for name, *values, slower in printed["rows"]:
        best = printed["rows"][0][1:5]
        # As they define it: the mean over the four columns of how much slower than spdk.
        mean = sum(value / least - 1 for value, least in zip(values, best, strict=True)) / 4 * 100
        assert mean == pytest.approx(slower, abs=0.5), name
    beside = {one[0]: one[1:] for one in beside_paper(summary([row("posix-sio", 1.0)]))}
    assert beside["posix-sio"] == ["11.68", "14.08", "10.00", "-"]


def process_of(settings: Settings) -> dict[str, Any]:
    """Found by its name in processes of their own."""
    if settings["depth"] == settings.get("fails_at"):
        raise ConfigError("this one cannot be measured")
    if settings["depth"] == settings.get("stops_at"):
        raise StoppedError
    time.sleep(settings.get("seconds", 0.0))
    return {"pid": os.getpid()}


def several(settings: list[dict[str, Any]], out: Path, console: Console | None = None) -> Any:
    return Study("several", settings, process_of, jobs=2, label=lambda point: f"depth {point['depth']}").run(
        out, console=console or quiet()
    )


def test_several_are_measured_at_once_in_processes_of_their_own(tmp_path: Path) -> None:
    console = quiet()
    table = several(grid(depth=[1, 2, 3, 4], seconds=0.2), tmp_path, console)
    assert table.is_whole
    assert [row["depth"] for row in table.rows()] == [1, 2, 3, 4]
    pids = {row["pid"] for row in table.rows()}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert len(table.new) == 4
    again = several(grid(depth=[1, 2, 3, 4], seconds=0.2), tmp_path, console)
    assert (again.results, again.new) == (table.results, [])
    assert "4 of 4 measurements are in" in said(console)


def test_one_of_several_that_fails_ends_all_and_loses_nothing_that_was_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this one cannot be measured"):
        several([{"depth": 1, "seconds": 0.0}, {"depth": 2, "seconds": 0.0}, {"depth": 3, "fails_at": 3}], tmp_path)
    kept = len(list((tmp_path / "points").iterdir()))
    assert several([{"depth": 1, "seconds": 0.0}, {"depth": 2, "seconds": 0.0}], tmp_path).is_whole
    assert kept <= 2


def test_several_are_stopped(tmp_path: Path) -> None:
    assert not several(grid(depth=[1, 2], stops_at=2), tmp_path / "a").is_whole

    def press() -> None:
        while not list((tmp_path / "b" / "points").glob("*.json")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    began_s = time.monotonic()
    points = [{"depth": 1, "seconds": 0.0}, {"depth": 2, "seconds": 300.0}]
    table = several(points, tmp_path / "b")
    pressing.join()
    assert not table.is_whole
    assert [trial.settings["depth"] for trial, _ in table.measured] == [1]
    assert time.monotonic() - began_s < 100, "it waited for the other one"


def test_a_narrow_table_breaks_no_name() -> None:
    def row(interface: str, depth: int) -> dict[str, Any]:
        figures = {"iops": 123_456.7, "mean_us": 1234.5, "p99_us": 45_678.9, "cpu_us_per_io": 12.345}
        settings = {"interface": interface, "rw": "randread", "block_bytes": 4096, "threads": 1, "depth": depth}
        return {"supported": True, "energy.source": "none", "repeats": 1, "errors": 0} | settings | figures

    points = [row("io_uring-sqpoll-fixed", 1), row("driver-interrupt", 128)]
    whole = short_table(points, 200)
    assert whole[0].split()[:5] == ["interface", "rw", "size", "threads", "depth"]
    assert len(whole) == 3
    narrow = short_table(points, 60)
    assert narrow[0] == "all rows: rw randread, size 4 KiB, threads 1"
    assert all(len(line) <= 60 for line in narrow)
    assert "depth" in narrow[1]
    assert [line.split()[0] for line in narrow[2:]] == ["io_uring-sqpoll-fixed", "driver-interrupt"]
    assert short_table([], 80) == []
