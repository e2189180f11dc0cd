"""What is drawn of results: order, series, markers, distributions, ticks, and that nothing is left out or made up."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, Result
from flashmob.figure import INK, SERIES, latency_label
from flashmob.plot_series import arrange, natural
from flashmob.plot_table import table
from flashmob.plot_values import curve, latency, mixed
from flashmob.plotting import _note, draw_results
from rich.console import Console

matplotlib = pytest.importorskip("matplotlib")
flashmob = pytest.importorskip("flashmob")

Document = Callable[..., dict[str, Any]]
Make = Callable[..., Result]


def panels(figure: Any) -> dict[str, Any]:
    """A figure's panels by their titles, after it was laid out as if to be written."""
    figure.canvas.draw()
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def lines(axes: Any, label: str) -> list[Any]:
    return [line for line in axes.get_lines() if line.get_label() == label]


def marked(axes: Any, verdict: str) -> list[tuple[float, float]]:
    return [place for line in lines(axes, f"_{verdict}") for place in zip(*line.get_data(), strict=True)]


def direction(iops: float, ios: int = 1_000_000, mean: float = 50_000) -> dict[str, Any]:
    figures = {"mean": mean, "min": mean, "p50": mean, "p90": mean, "p99": 2 * mean, "p999": 3 * mean, "max": 9 * mean}
    return {"ios": ios, "iops": iops, "bw_bytes": iops * 512, "latency_ns": figures}


# --- What varies ---------------------------------------------------------------------------------------------------


def test_depths_come_in_order_whatever_the_files_are_called(make: Make) -> None:
    shown = arrange([make(qd) for qd in (1, 128, 2, 32, 64, 8)])
    assert shown.axis is not None
    assert shown.axis.label == "queue depth"
    assert [point.x for point in shown.series[0].points] == [1, 2, 8, 32, 64, 128]
    assert len(shown.series) == 1


def test_no_run_is_dropped(make: Make) -> None:
    results = [make(qd, wall_seconds=float(turn)) for qd in range(1, 16) for turn in range(2)]
    shown = arrange(results)
    assert len(shown.runs) == len(results) == 30
    distribution = panels(flashmob.plot(results))["Distribution of latencies"]
    assert len([line for line in distribution.get_lines() if len(line.get_xdata()) > 3]) == 30


def test_real_and_virtual_are_never_one_series(make: Make) -> None:
    results = [make(qd, clock=clock) for qd in (1, 8) for clock in ("real", "virtual")]
    assert [series.label for series in arrange(results).series] == ["real time", "virtual time"]
    # Not even where each has one point only.
    alone = [make(1, clock="real", verdict="INVALID"), make(8, clock="virtual")]
    assert all(len(series.points) == 1 for series in arrange(alone).series)


@pytest.mark.parametrize(
    ("changes", "axis"),
    [
        ([{"rate": 1e5}, {"rate": 2e6}], "offered rate"),
        ([{"requesters": 1024, "qd": 4}, {"requesters": 65536, "qd": 256}], "requesters"),
        ([{"queues": 1}, {"queues": 16}], "queues"),
        ([{"queues": 1, "qd": 1}, {"queues": 4, "qd": 8}], "requests in flight"),
        ([{"bs": "512"}, {"bs": "4096"}, {"bs": "65536"}], "block size"),
        ([{"device": {"profile": "x", "engine": {"units": count}}} for count in (1, 2, 4)], "service units"),
        ([{"device": {"profile": "x", "timing": {"read_iops": rate}}} for rate in (1e6, 2e6)], "the device's rate"),
        ([{"device": {"profile": "x", "namespaces": [{"size_bytes": size}]}} for size in (1 << 30, 1 << 33)], "size"),
    ],
)
def test_the_axis_is_what_differs(changes: list[dict[str, Any]], axis: str, make: Make) -> None:
    shown = arrange([make(**change) for change in changes])
    assert shown.axis is not None
    assert shown.axis.label.startswith(axis)
    assert len(shown.series) == 1
    assert len(shown.series[0].points) == len(changes)


def test_devices_with_other_links_are_no_series(make: Make) -> None:
    """Two models that differ by what they carry are two devices."""
    timing = {"read_iops": 1e6, "read_bytes_per_s": 0, "write_bytes_per_s": 0}
    links = [dict(timing, link_bytes_per_s=rate) for rate in (0, 7_000_000_000)]
    shown = arrange([make(qd, device={"profile": "x", "timing": one}) for qd in (1, 8) for one in links])
    assert [series.label for series in shown.series] == ["link unlimited", "link up to 7.000 GB/s"]
    # An older version's result does not say that nothing is limited.
    old = {"profile": "x", "timing": {"read_iops": 1e6}}
    assert len(arrange([make(1, device=old), make(8, device={"profile": "x", "timing": links[0]})]).series) == 1


def test_devices_under_one_load_each_share_no_axis(make: Make) -> None:
    """The demo's results: other devices, other loads, another clock. No line joins them."""
    shown = arrange(
        [
            make(128, queues=8, device={"profile": "storagenext-100m"}),
            make(128, queues=4, device={"profile": "storagenext-10m"}),
            make(1024, queues=256, requesters=262_144, device={"profile": "storagenext-100m"}, clock="virtual"),
        ]
    )
    assert shown.axis is None
    assert len(shown.series) == 3
    assert [series.label.split(",")[0] for series in shown.series] == ["storagenext-10m"] + ["storagenext-100m"] * 2


def test_a_grid_has_a_series_for_each_other_setting(make: Make) -> None:
    shown = arrange([make(qd, queues=queues) for queues in (8, 16, 1) for qd in (4, 1, 2)])
    assert [series.label for series in shown.series] == ["1 queue", "8 queues", "16 queues"]
    assert [[point.x for point in series.points] for series in shown.series] == [[1, 2, 4]] * 3


def test_equal_settings_are_one_point_with_its_spread(make: Make) -> None:
    shown = arrange([make(8, iops=iops, device={"profile": "x", "seed": iops}) for iops in (110.0, 100.0, 130.0)])
    ((_, point),) = shown.points
    assert shown.repeated
    spread = point.spread(lambda result: result.iops)
    assert spread is not None
    assert (spread.middle, spread.low, spread.high) == (110, 100, 130)


def test_the_worst_verdict_of_repeated_runs_counts(make: Make) -> None:
    verdicts = ("VALID", "VALID (lateness only)", "NOT JUDGED", "NONE", "INVALID")
    for index, verdict in enumerate(verdicts):
        ((_, point),) = arrange([make(1, verdict=name) for name in verdicts[: index + 1]]).points
        assert point.verdict == verdict


def test_verdicts_are_said_as_reports_say_them(make: Make) -> None:
    runs = [make(qd, tolerance={"latency_share": share}) for qd, share in ((1, 0.02), (2, 0.167), (4, 0.03))]
    (series,) = arrange(runs).series
    assert [point.verdict_text for point in series.points] == ["VALID", "VALID (within 16.7 %)", "VALID (within 3.0 %)"]
    assert "3 runs: 3 VALID (2 of them within 16.7 %)" in _note(arrange(runs))
    assert "2 runs: 2 VALID (all of them within 16.7 %)" in _note(arrange(runs[1:]))
    assert "2 runs: 2 VALID (within 16.7 %)" in _note(arrange([runs[1], make(9, tolerance={"latency_share": 0.167})]))
    assert "verdict VALID (within 16.7 %)" in _note(arrange(runs[1:2]))
    console = Console(file=io.StringIO(), width=100)
    console.print(table(runs, 100))
    assert "VALID (within 16.7 %)" in console.file.getvalue()  # type: ignore[attr-defined]


def test_numbers_in_names_count() -> None:
    assert sorted(["drive-10", "drive-9", "drive"], key=natural) == ["drive", "drive-9", "drive-10"]


# --- The distribution ----------------------------------------------------------------------------------------------


def test_two_latencies_make_a_curve(make: Make) -> None:
    """A virtual run at a low depth: two buckets, of which the old panel drew one point, that is nothing."""
    figures = {"mean": 50_100, "min": 49_920, "p50": 50_047, "p90": 50_300, "p99": 50_300, "p999": 50_300}
    figures |= {"p9999": 50_300, "p99999": 50_300, "max": 50_300}
    result = make(latency_ns=figures, latency_cdf=[[50_048, 0.599], [50_304, 1.0]], ios=20_000)
    points = curve(result).points
    assert points[0] == (1.0, 50_048)
    assert points[-1] == (1 / 20_000, 50_300)
    assert {ns for above, ns in points if above > 0.402} == {50_048}
    assert {ns for above, ns in points if above < 0.4} == {50_300}
    axes = panels(flashmob.plot(result))["Distribution of latencies"]
    (drawn,) = [line for line in axes.get_lines() if len(line.get_xdata()) > 5]
    assert min(drawn.get_xdata()) == 1 / 20_000


@pytest.mark.parametrize("cdf", [[], [[100, 1.0]]])
def test_a_distribution_of_one_bucket_is_a_curve_too(cdf: list[list[float]], make: Make) -> None:
    figures = dict.fromkeys(("mean", "min", "p50", "p90", "p99", "p999", "max"), 100)
    points = curve(make(latency_ns=figures, latency_cdf=cdf, ios=1000)).points
    assert points[0] == (1.0, 100)
    assert points[-1] == (1e-3, 100)


def test_tails_end_where_the_requests_do(make: Make) -> None:
    for ios, last in ((150, "p99"), (20_000, "p99.99"), (12_345_678, "p99.99999")):
        axes = panels(flashmob.plot(make(ios=ios)))["Distribution of latencies"]
        assert labels(axes.xaxis)[:3] == ["min", "p50", "p90"]
        assert labels(axes.xaxis)[-1] == last
    assert latency("p999")(make(ios=150)) is None
    assert latency("p99")(make(ios=150)) == 60_000


def test_a_distribution_never_falls_and_keeps_its_ends(make: Make) -> None:
    cdf = [[50_000 + 10 * i, i / 1000] for i in range(1, 1000)] + [[121_000, 1.0]]
    points = curve(make(latency_cdf=cdf)).points
    assert all(left[0] >= right[0] and left[1] <= right[1] for left, right in pairwise(points))
    assert points[-1][1] == 120_000
    assert (1e-4, 80_000) in points
    assert (1e-5, 90_000) in points


def test_runs_in_which_nothing_succeeded_are_left_out(make: Make) -> None:
    zero = {"mean": 0, "p50": 0, "p99": 0, "p999": 0, "max": 0}
    none = make(1, ios=0, iops=0.0, bw_bytes=0.0, latency_ns=zero, latency_cdf=[], model=None, cancelled=True)
    with pytest.raises(ConfigError, match="no request succeeded in these runs"):
        flashmob.plot([none, none])
    shown = panels(flashmob.plot([none, make(8), make(16)]))
    assert labels(shown["Rate"].xaxis) == ["8", "16"]


def test_what_is_no_result_is_said() -> None:
    for nothing in (5, [5], [None]):
        with pytest.raises(ConfigError, match="result"):
            flashmob.plot(nothing)  # type: ignore[arg-type]


def test_runs_that_ended_early_are_said(make: Make) -> None:
    figure = flashmob.plot([make(8), make(16, cancelled=True)])
    assert any("1 of 2 ended early" in text.get_text() for text in figure.texts)


# --- What is drawn -------------------------------------------------------------------------------------------------


def test_panels_of_a_series(make: Make) -> None:
    shown = panels(flashmob.plot([make(qd) for qd in (1, 2, 8, 32, 64, 128)]))
    expected = ["Rate", "Bandwidth", "Mean latency", "p99 latency", "p99.9 latency", "Off the model"]
    assert list(shown) == [*expected, "Distribution of latencies", "Where the time goes"]
    for title in expected:
        assert labels(shown[title].xaxis) == ["1", "2", "8", "32", "64", "128"]
        assert shown[title].get_xlabel() == "queue depth"
        assert shown[title].get_ylabel()
    assert [y for _, y in marked(shown["Rate"], "VALID")] == [20_000 * qd for qd in (1, 2, 8, 32, 64, 128)]


def test_tick_labels_differ_however_little_the_values_do(make: Make) -> None:
    """It read "50.2 us" four times."""
    results = []
    for qd in (1, 2, 4):
        figures = dict.fromkeys(("mean", "min", "p50", "p90", "p99", "p999", "max"), 50200 + qd)
        results.append(make(qd, latency_ns=figures, latency_cdf=[[50_200 + qd, 1.0]]))
    for axes in panels(flashmob.plot(results)).values():
        for axis in (axes.xaxis, axes.yaxis):
            found = labels(axis)
            assert len(found) == len(set(found)), (axes.get_title(loc="left"), found)
            assert found or not axes.lines


def test_ticks_close_together_get_the_digits_that_they_need() -> None:
    from flashmob.canvas import LabelFormatter

    formatter = LabelFormatter(latency_label)
    assert formatter.format_ticks([50_200, 50_210, 50_220]) == ["50.2 µs", "50.21 µs", "50.22 µs"]
    assert formatter.format_ticks([50_000, 100_000]) == ["50 µs", "100 µs"]


def test_verdicts_have_markers_of_their_own(make: Make) -> None:
    verdicts = ("VALID", "VALID (lateness only)", "NOT JUDGED", "NONE", "INVALID")
    figure = flashmob.plot([make(1 << index, verdict=verdict) for index, verdict in enumerate(verdicts)])
    rate = panels(figure)["Rate"]
    looks = set()
    for verdict in verdicts:
        (line,) = lines(rate, f"_{verdict}")
        looks.add((line.get_markerfacecolor(), line.get_fillstyle(), verdict == "INVALID"))
        open_ = verdict in ("NONE", "INVALID")
        assert (line.get_markerfacecolor() == "white") is open_
    assert len(looks) == len(verdicts)
    assert len(lines(rate, "_crossed")) == 1
    legend = [text.get_text() for text in figure.subfigs[0].legends[0].get_texts()]
    assert legend[-5:] == list(verdicts)


def test_no_firm_line_leads_to_an_invalid_run(make: Make) -> None:
    verdicts = {1: "VALID", 2: "VALID", 4: "INVALID", 8: "VALID", 16: "VALID"}
    rate = panels(flashmob.plot([make(qd, verdict=verdict) for qd, verdict in verdicts.items()]))["Rate"]
    (firm,) = lines(rate, "_d7-ps1010")
    assert 4 not in firm.get_xdata()
    assert {1, 2, 8, 16} <= set(firm.get_xdata())
    (hint,) = lines(rate, "_doubtful")
    assert {x for x in hint.get_xdata() if not math.isnan(x)} == {2, 4, 8}


def test_repeated_runs_show_each_and_their_spread(make: Make) -> None:
    results = [make(qd, iops=1000.0 * qd + turn) for qd in (1, 2) for turn in (0, 10, 90)]
    figure = flashmob.plot(results)
    rate = panels(figure)["Rate"]
    assert marked(rate, "VALID") == [(1, 1010), (2, 2010)]
    assert [sorted(line.get_ydata()) for line in lines(rate, "_run")] == [[1000, 1010, 1090], [2000, 2010, 2090]]
    assert len(rate.containers) == 2
    legend = [text.get_text() for text in figure.subfigs[0].legends[0].get_texts()]
    assert "several runs: their median, least and most" in legend


def test_the_model_is_drawn_beside_what_was_measured(make: Make) -> None:
    model = {"iops": 10_000.0, "latency_ns": {"mean": 50_000, "p50": 50_000, "p99": 55_000, "p999": 60_000}}
    tolerance = {"iops_share": 0.02, "mean_ns": 1000, "p99_ns": 1100}
    shown = panels(flashmob.plot([make(qd, iops=9_900.0, model=model, tolerance=tolerance) for qd in (1, 2)]))
    heights = {"Rate": 10_000, "Mean latency": 50_000, "p99 latency": 55_000, "p99.9 latency": 60_000}
    for title, height in heights.items():
        (line,) = lines(shown[title], "_model")
        assert list(line.get_ydata()) == [height, height]
    off = shown["Off the model"]
    (line,) = lines(off, "_rate")
    assert list(line.get_ydata()) == pytest.approx([-1.0, -1.0])
    (line,) = lines(off, "_p99 latency")
    assert list(line.get_ydata()) == pytest.approx([100 * 5 / 55] * 2)
    assert "allowed for the rate" in [text.get_text() for text in off.get_legend().get_texts()]
    alone = panels(flashmob.plot(make(model=model)))["Distribution of latencies"]
    (line,) = lines(alone, "the model")
    assert list(line.get_ydata()) == [50_000, 55_000, 60_000]


@pytest.mark.parametrize("latency_ns", [50_000.0, 5_000_000.0])
def test_no_legend_hides_how_far_a_run_is_off(make: Make, latency_ns: float) -> None:
    model = {"iops": 100_000.0, "latency_ns": {"mean": latency_ns, "p50": 50_000, "p99": latency_ns, "p999": 60_000}}
    figure = flashmob.plot([make(qd, iops=1_000.0 * qd, model=model) for qd in (1, 8, 64)])
    figure.canvas.draw()
    off = panels(figure)["Off the model"]
    frame = off.get_legend().get_window_extent()
    dots = [
        tuple(off.transData.transform(dot))
        for name in ("rate", "mean latency")
        for line in lines(off, f"_{name}")
        for dot in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    assert len(dots) == 6
    assert not [dot for dot in dots if frame.contains(*dot)]
    assert all(off.bbox.contains(*dot) for dot in dots)


def test_the_models_of_several_series_are_told_apart(make: Make) -> None:
    model = {"iops": 10_000.0, "latency_ns": {"mean": 50_000, "p50": 50_000, "p99": 55_000, "p999": 60_000}}
    results = [make(qd, device={"profile": name}, model=model) for qd in (1, 2) for name in ("one", "other")]
    rate = panels(flashmob.plot(results))["Rate"]
    assert len({line.get_color() for line in lines(rate, "_model")}) == 2
    # Beside each other without an axis, too.
    distribution = panels(flashmob.plot(results[:2]))["Distribution of latencies"]
    models = [*lines(distribution, "the model"), *lines(distribution, "_model")]
    assert len({line.get_color() for line in models}) == 2
    # One series needs no colours, and black is seen best.
    alone = panels(flashmob.plot(results[::2]))["Rate"]
    assert [line.get_color() for line in lines(alone, "_model")] == [INK]


def test_bars_of_reads_and_writes_look_different_and_stay_with_their_result(make: Make) -> None:
    ways = {"read": direction(700.0), "write": direction(300.0)}
    results = [make(rw="randrw", device={"profile": name}, **ways) for name in ("one", "other")]
    rate = panels(flashmob.plot(results))["Rate"]
    colours = [bar.get_facecolor() for bar in rate.patches]
    assert colours[:3] == colours[3:]
    assert len(set(colours)) == 3
    assert [line.get_ydata()[0] for line in lines(rate, "_between")] == [2.5]
    plain = panels(flashmob.plot([make(device={"profile": name}) for name in ("one", "other")]))["Rate"]
    assert not lines(plain, "_between")


def test_without_a_model_there_is_no_panel_of_it(make: Make) -> None:
    known = {"target_ns": None, "processing_ns": None, "lateness_ns": None, "lateness_no_gaps_ns": None, "gaps": None}
    results = [make(qd, model_iops=None, model=None, verdict="NOT JUDGED", **known) for qd in (1, 2)]
    shown = panels(flashmob.plot(results))
    assert "Off the model" not in shown
    assert "Where the time goes" not in shown
    assert list(shown)[-1] == "Distribution of latencies"


def test_reads_and_writes_stand_apart(make: Make) -> None:
    results = [make(qd, rw="randrw", read=direction(700.0 * qd), write=direction(300.0 * qd)) for qd in (1, 2)]
    assert all(map(mixed, results))
    figure = flashmob.plot(results)
    rate = panels(figure)["Rate"]
    (reads,), (writes,) = lines(rate, "_d7-ps1010 read"), lines(rate, "_d7-ps1010 write")
    assert list(reads.get_ydata())[:2] == [700, 1400]
    assert list(writes.get_ydata())[:2] == [300, 600]
    assert reads.get_linestyle() != writes.get_linestyle() or reads._dash_pattern != writes._dash_pattern
    legend = [text.get_text() for text in figure.subfigs[0].legends[0].get_texts()]
    assert legend[-2:] == ["reads", "writes"]
    one = panels(flashmob.plot(results[0]))["Distribution of latencies"]
    assert {"d7-ps1010, reads", "d7-ps1010, writes"} <= {text.get_text() for text in one.get_legend().get_texts()}
    assert not mixed(make(read=direction(700.0), write=None))
    assert not mixed(make(read=direction(700.0), write=direction(0.0, ios=0)))


def test_results_without_an_axis_are_rows(make: Make) -> None:
    verdicts = ("VALID", "INVALID", "NONE")
    results = [make(8, device={"profile": f"drive-{index}"}, verdict=verdicts[index % 3]) for index in range(12)]
    shown = panels(flashmob.plot(results[::-1]))
    assert list(shown) == ["Rate", "Latency, mean and tail", "Where the time goes, mean", "Distribution of latencies"]
    assert labels(shown["Rate"].yaxis) == [f"drive-{index}" for index in range(12)]
    hatches = [patch.get_hatch() for patch in shown["Rate"].patches]
    assert hatches == [None, "////", ""] * 4
    assert len(shown["Distribution of latencies"].get_legend().get_texts()) == 12


@pytest.mark.parametrize("count", [1, 2, 6, 30])
def test_any_number_of_results_is_laid_out(count: int, make: Make, recwarn: pytest.WarningsRecorder) -> None:
    figure = flashmob.plot([make(qd, iops=10.0 ** (qd % 9)) for qd in range(1, count + 1)])
    shown = panels(figure)
    assert all(axes.get_lines() or axes.patches for axes in shown.values())
    for axes in shown.values():
        corners = axes.get_position().extents
        assert corners.min() >= 0
        assert corners.max() <= 1
    assert not [str(warning.message) for warning in recwarn.list]


def test_long_names_are_folded_and_leave_room(make: Make, recwarn: pytest.WarningsRecorder) -> None:
    names = [f"nvme-tcp:127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:0123-4567-89ab-cdef:{end}" for end in "ab"]
    for depths in ((8,), (1, 8, 64)):
        results = [make(qd, device={"profile": name}) for name in names for qd in depths]
        for axes in panels(flashmob.plot(results)).values():
            box = axes.get_position()
            assert min(box.width, box.height) > 0.1
    assert not recwarn.list


def test_huge_ranges(make: Make) -> None:
    results = []
    for index in range(13):
        mean = 10.0 ** (index % 7 + 2)
        figures = {"mean": mean, "min": mean, "p50": mean, "p99": mean * 1e3, "p999": mean * 1e4, "max": mean * 1e5}
        results.append(make(requesters=4**index, iops=10.0 ** (index % 9), latency_ns=figures, latency_cdf=[]))
    shown = panels(flashmob.plot(results))
    for axes in shown.values():
        assert 2 <= len(labels(axes.yaxis)) <= 12
        assert not [label for label in (*labels(axes.xaxis), *labels(axes.yaxis)) if "$" in label]
        assert len(set(labels(axes.yaxis))) == len(labels(axes.yaxis))
    assert shown["Rate"].get_yscale() == "log"


def test_a_series_of_its_own_colour_and_marker(make: Make) -> None:
    results = [make(qd, device={"profile": f"drive-{index}"}) for index in range(14) for qd in (1, 8)]
    rate = panels(flashmob.plot(results))["Rate"]
    looks = {(line.get_color(), line.get_marker()) for line in lines(rate, "_VALID")}
    assert len(looks) == 14


def test_colours_differ_for_people_who_see_fewer() -> None:
    """Viénot's and Brettel's matrices for missing red, green and blue cones, on linear light."""
    from matplotlib.colors import to_rgb

    missing = (
        ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
        ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
        ((1.01277, 0.13548, -0.14826), (-0.01243, 0.86812, 0.14431), (0.07589, 0.805, 0.11911)),
    )
    for matrix in missing:
        seen = []
        for colour in SERIES:
            light = [part**2.2 for part in to_rgb(colour)]
            mixed_ = [sum(a * b for a, b in zip(row, light, strict=True)) for row in matrix]
            seen.append([min(max(part, 0.0), 1.0) ** (1 / 2.2) for part in mixed_])
        apart = [math.dist(seen[i], seen[j]) for i in range(len(seen)) for j in range(i)]
        assert min(apart) > 0.08


def test_a_title_may_hold_any_sign(make: Make, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    draw_results([make()], tmp_path / "title.svg", title="costs $5 to $6 {x}_^ 温度")
    odd = make(device={"profile": "$a$"}), make(device={"profile": "$b"}, verdict="INVALID", verdict_cause="$c$")
    draw_results(odd, tmp_path / "odd.svg")
    for name in ("$a$", "$b", "INVALID: $c$"):
        assert f">{name}<" in (tmp_path / "odd.svg").read_text(encoding="utf-8")
    assert "costs $5 to $6 {x}_^ 温度" in (tmp_path / "title.svg").read_text(encoding="utf-8")
    assert not recwarn.list


def test_a_notebook_shows_the_figure(make: Make) -> None:
    figure = flashmob.plot([make(1), make(2)])
    assert isinstance(figure, matplotlib.figure.Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_names_of_served_ssds_lie_beside_each_other(make: Make, tmp_path: Path) -> None:
    """An address takes several lines, in rows as well as in legends."""
    doors = [
        f"nvme-tcp:127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-55555555555{n}" for n in "012"
    ]
    doors += [f"vfio-user:/run/user/1000/flashmob/a-rather-long-folder/drive-{n}/cntrl" for n in "abc"]
    loads = [{"rw": "randread"}, {"rw": "randwrite", "read": direction(1e4), "write": direction(1e4)}]
    for results in (
        [make(8, jobname=door, device={}, verdict="NOT JUDGED") for door in doors],
        [make(8, jobname=door, device={}, **load) for door in doors[:4] for load in loads],
        [make(qd, jobname=door, device={}) for door in doors for qd in (1, 8)],
    ):
        figure = flashmob.plot(results)
        shown = panels(figure)
        draw_results(results, tmp_path / "a.png")
        boxes = [text.get_window_extent() for text in shown["Rate"].get_yticklabels() if text.get_text()]
        assert boxes
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))
        # Nor does a legend reach into the panels below or above it.
        legend = shown["Distribution of latencies"].get_legend().get_window_extent()
        others = [axes.get_tightbbox() for title, axes in shown.items() if not title.startswith("Distribution")]
        key = figure.subfigs[0].legends[0].get_window_extent()
        assert not any(box.overlaps(other) for box in (legend, key) for other in others)
