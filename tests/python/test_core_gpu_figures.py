"""The evaluation of the GPU's engine at its smallest: what it writes, that data are checked, that it repeats itself."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError
from flashmob.gpu import evaluation
from flashmob.gpu.evaluation import ON_FIBRES, ON_GPU, QUICK, Point, Run, bars_of, points, run_figures
from flashmob.result import Result
from rich.console import Console


def figures(out: Path) -> tuple[bool, dict[str, Any], str]:
    text = io.StringIO()
    console = Console(file=text, width=200)
    right = run_figures(out, backend_name="fibres", quick=True, console=console, command="test")
    return right, json.loads((out / "gpu-figures.json").read_text()), text.getvalue()


def lasting(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each point, all that does not depend on machine and wall time."""
    for point in document["points"]:
        del point["result"]["provenance"], point["result"]["wall_seconds"]
    return document["points"]  # type: ignore[no-any-return]


def test_writes_results_and_says_what_they_are(tmp_path: Path) -> None:
    right, document, text = figures(tmp_path)
    assert right
    assert document["schema"] == "flashmob-gpu-figures"
    assert document["measured_on_gpu"] is False
    assert document["bars"] == []
    assert document["failed"] == []
    assert "simulated: fibres on the CPU, in virtual time" in text
    assert document["simulated"].startswith("simulated")
    assert "model and code behave, not the speed" in text
    assert (tmp_path / "gpu-figures.png").stat().st_size > 10_000
    series = {point["series"] for point in document["points"]}
    expected = "threads targets-host targets-device ablation queues block-sizes units-host units-device statistics"
    assert series == set(expected.split())
    for point in document["points"]:
        result = Result.from_dict(point["result"])
        assert result.clock == "virtual"
        assert result.verified > 0
        assert result.verify_errors == 0
        assert result.verdict.startswith(("VALID", "INVALID")) or point["series"] == "statistics"
        assert result.lateness_ns is None or result.lateness_ns.p99 > 0
        assert result.ios > 0
    assert text.count("lateness p99") == len(document["points"])


def test_repeats_itself(tmp_path: Path) -> None:
    assert lasting(figures(tmp_path / "a")[1]) == lasting(figures(tmp_path / "b")[1])


def test_what_takes_too_long_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_BUDGET_S", -1.0)
    right, document, text = figures(tmp_path)
    assert not right
    assert document["left_out"] == len(list(points(QUICK)))
    assert f"{document['left_out']} left out" in text


def test_all_sweeps_name_possible_points() -> None:
    from flashmob import _core

    for sizes in (ON_GPU, ON_FIBRES, QUICK):
        for point in points(sizes):
            options = _core.GpuPointOptions()
            for key, value in point.options.items():
                setattr(options, key, value)
            assert options.units * 256 >= options.queues
            assert options.ramp_ns + options.measure_ns < 5e9


def test_an_impossible_point_names_its_mistake() -> None:
    from flashmob import _core

    options = _core.GpuPointOptions()
    options.bytes = 768
    with pytest.raises(ConfigError, match="bytes must be a power of two"):
        _core.gpu_open_evaluation("fibres").run(options, "test")


def run_at(series: str, x: float, reached: float, **options: Any) -> Run:
    point = Point(series, x, f"{x}", {"iops": 40e6} | options)
    engine = {"media": "host", "latency_mean_ns": 1e9 * x / reached, "threads_at_once": x}
    return Run(point, Result(iops=reached, verdict="VALID", clock="real"), engine, {})


def test_bars_are_held_against_what_was_reached() -> None:
    runs = [
        run_at("targets-host", 40.0, 39.8e6),
        run_at("block-sizes", 512, 60e6),
        run_at("block-sizes", 4096, 10e6),
        run_at("threads", 1 << 14, 2.5e6, iops=2.47e6),
        run_at("queues", 256, 200e6),
        run_at("queues", 4096, 191e6),
        run_at("statistics", 1, 97e6),
        run_at("statistics", 0, 100e6),
    ]
    runs[1] = replace(runs[1], result=replace(runs[1].result, bw_bytes=60e6 * 512))
    runs[2] = replace(runs[2], result=replace(runs[2].result, bw_bytes=10e6 * 4096))
    bars = {bar["what"]: bar for bar in bars_of(runs, {"host": {"512": 30e9, "4096": 51.2e9}})}
    assert bars["host media, 40 M target: share off"]["met"]
    assert bars["host media, unlimited, 512 B: share of copies alone"]["met"]
    assert not bars["host media, unlimited, 4096 B: share of copies alone"]["met"]
    assert bars["GPU memory, unlimited: IOPS"]["got"] is None
    assert not bars["GPU memory, unlimited: IOPS"]["met"]
    assert not bars["2.47 M, 16384: IOPS share off"]["met"]
    assert bars["2.47 M, 16384: mean latency share off"]["met"]
    assert bars["4,096 queues of 256 queues' IOPS"]["met"]
    assert bars["statistics' share of IOPS"]["got"] == pytest.approx(0.03)
    assert not bars["statistics' share of IOPS"]["met"]


def test_bandwidth_is_a_share_of_what_copies_alone_reach() -> None:
    run = run_at("block-sizes", 512, 40e6)
    half = replace(run, result=replace(run.result, bw_bytes=20e9))
    assert evaluation.bandwidth_share(half, {"host": {"512": 30e9, "65536": 40e9}}) == pytest.approx(0.5)
    assert evaluation.bandwidth_share(half, {}) is None
