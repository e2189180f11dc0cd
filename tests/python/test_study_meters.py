"""What meters of a study read: counters that wrap, RAPL, a logger's file, CPU time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError
from flashmob.study.meters import CpuTime, PerfCounters, Rapl, energy_of
from flashmob.study.power_log import PowerLog
from flashmob.study.window import Trace, unwrapped
from hypothesis import given
from hypothesis import strategies as st


def test_a_counter_that_wraps_goes_on() -> None:
    assert unwrapped([], 9) == []
    assert unwrapped([5, 7, 1, 3, 0], 9) == [5, 7, 11, 13, 20]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20), st.integers(0, 99))
def test_a_counter_that_wraps_is_as_one_that_does_not(steps: list[int], start: int) -> None:
    true = [start]
    for step in steps:
        true.append(true[-1] + step)
    assert unwrapped([value % 100 for value in true], 99) == true


def test_a_trace_is_read_between_its_readings() -> None:
    trace = Trace([0, 10, 20], [0.0, 10.0, 40.0])
    assert trace.grown(0, 20) == 40.0
    assert trace.grown(5, 15) == 20.0
    assert trace.grown(10, 20) == 30.0
    for begin, end in ((-1, 5), (5, 21)):
        assert "do not cover" in str(trace.grown(begin, end))
    assert "do not cover" in str(Trace([], []).grown(0, 1))
    assert "no reading for" in str(Trace([0, 10, 20], [0, 1, 2], widest_gap_ns=5).grown(5, 15))


def powercap(root: Path, zones: dict[str, tuple[str, int, int]]) -> Path:
    """Zones as the kernel shows them: folder -> name, energy, range."""
    for folder, (name, energy, range_) in zones.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "energy_uj").write_text(f"{energy}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{range_}\n")
    return root


def window_now() -> dict[str, int]:
    now = time.monotonic_ns()
    return {"begin_ns": now, "end_ns": now, "realtime_ahead_ns": 0}


def test_rapl_adds_packages_and_memory_and_follows_wraps(tmp_path: Path) -> None:
    root = powercap(
        tmp_path / "powercap",
        {
            "intel-rapl:0": ("package-0", 900_000, 999_999),
            "intel-rapl:0:0": ("core", 5, 999_999),
            "intel-rapl:0:1": ("dram", 0, 999_999),
            "intel-rapl:1": ("package-1", 0, 999_999),
            "intel-rapl-mmio:0": ("package-0", 7, 999_999),
        },
    )
    meter = Rapl(root)
    assert meter.absent == ""
    with meter:
        window = window_now()
        # Once around: 0.3 J in all.
        (root / "intel-rapl:0" / "energy_uj").write_text("200000\n")
        (root / "intel-rapl:0:1" / "energy_uj").write_text("50000\n")
        while len(meter.follower.readings) < 4:
            time.sleep(0.01)
        window["end_ns"] = time.monotonic_ns()
    # The counters stood still before the window and after their change, so lines between readings change nothing.
    window["begin_ns"] = meter.follower.readings[0][0]
    read = meter.read({"window": window})
    assert read["zones"] == {
        "package-0": pytest.approx(0.3),
        "dram-0": pytest.approx(0.05),
        "package-1": pytest.approx(0.0),
    }
    assert read["joules"] == pytest.approx(0.35)
    assert read["watts"] == pytest.approx(0.35 / ((window["end_ns"] - window["begin_ns"]) / 1e9))
    assert "no measured window" in meter.read({"window": None})["absent"]
    window["end_ns"] += 3_600_000_000_000
    assert "do not cover" in meter.read({"window": window})["absent"]


def test_rapl_says_why_it_is_absent(tmp_path: Path) -> None:
    assert "has no intel-rapl zone" in Rapl(tmp_path).absent
    assert "has no intel-rapl zone" in Rapl(tmp_path / "none").absent
    root = powercap(tmp_path / "a", {"intel-rapl:0": ("package-0", 1, 99)})
    (root / "intel-rapl:0" / "max_energy_range_uj").unlink()
    assert "cannot be read" in Rapl(root).absent
    root = powercap(tmp_path / "b", {"intel-rapl:0": ("package-0", 1, 99)})
    (root / "intel-rapl:0" / "energy_uj").write_text("much\n")
    meter = Rapl(root)
    assert "is no energy" in meter.absent
    with meter:
        pass
    assert meter.read({"window": window_now()})["absent"] == meter.absent


def test_energy_is_measured_or_none_and_idle_is_shown_beside() -> None:
    absent = {"absent": "there is no meter"}
    assert energy_of({"rapl": absent}, 2.0, {}) == {"source": "none", "absent": {"rapl": "there is no meter"}}
    read = {"joules": 100.0, "watts": 50.0}
    with_idle = energy_of({"log": absent, "rapl": read}, 2.0, {"rapl": 20.0, "log": 1.0})
    assert with_idle["source"] == "measured"
    assert (with_idle["meter"], with_idle["idle_watts"], with_idle["joules_above_idle"]) == ("rapl", 20.0, 60.0)
    assert energy_of({"rapl": read}, 2.0, {})["joules_above_idle"] is None


def log(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def result_at(begin_s: float, end_s: float) -> dict[str, Any]:
    """A window of the wall clock; CLOCK_MONOTONIC began 1000 s after 1970."""
    ahead_ns = 1000 * 10**9
    return {
        "window": {
            "begin_ns": round(begin_s * 1e9) - ahead_ns,
            "end_ns": round(end_s * 1e9) - ahead_ns,
            "realtime_ahead_ns": ahead_ns,
        }
    }


def test_a_loggers_watts_are_held_against_the_wall_clock(tmp_path: Path) -> None:
    rows = [f"{second},{10 if second < 5005 else 30},230" for second in range(5000, 5011)]
    path = log(tmp_path / "log.csv", "Plot Title: x", "time (s),Active Power (W),Volt", *rows)
    read = PowerLog(path).read(result_at(5001, 5003))
    assert (read["joules"], read["watts"]) == (pytest.approx(20.0), pytest.approx(10.0))
    assert PowerLog(path).read(result_at(5006, 5008.5))["watts"] == pytest.approx(30.0)
    assert PowerLog(path, offset_s=100.0).read(result_at(5101, 5103))["watts"] == pytest.approx(10.0)
    assert "log.csv: its readings do not cover" in PowerLog(path).read(result_at(5009, 5012))["absent"]
    assert "no measured window" in PowerLog(path).read({"window": None})["absent"]


def test_a_logger_that_lost_its_connection_has_no_energy(tmp_path: Path) -> None:
    path = log(tmp_path / "log.csv", "time,watts", "5000,10", "5001,10", "5060,10", "5061,10")
    assert "no reading for 59.0 s" in PowerLog(path).read(result_at(5000.5, 5060.5))["absent"]


def test_times_of_loggers_are_understood(tmp_path: Path) -> None:
    iso = log(tmp_path / "iso.csv", "Time;x,W", "1970-01-01T01:00:00+00:00,5", "1970-01-01T01:00:02Z,5", ",", "Logged,")
    assert PowerLog(iso).begin_ns == 3600 * 10**9
    hobo = log(
        tmp_path / "hobo.csv",
        '#,"Date Time, GMT-05:00","Power, W"',
        "1,07/09/23 02:00:01 PM,5",
        "2,07/09/23 02:00:03 PM,6",
    )
    assert PowerLog(hobo).end_ns - PowerLog(hobo).begin_ns == 2 * 10**9


@pytest.mark.parametrize(
    "heading",
    ["time,power_on,power_w", "time,Active Power (kW),Active Power (W)", "time,power factor,W", 'time,x,"Power, W"'],
)
def test_a_column_that_names_watts_goes_before_others(tmp_path: Path, heading: str) -> None:
    path = log(tmp_path / "log.csv", heading, "5000,1,10", "5001,1,10", "5002,1,10")
    assert PowerLog(path).read(result_at(5000.5, 5001.5))["watts"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["5000,10", "5001,10"], "no line names a column of times and one of watts"),
        (["time,watts", "5000,10"], "fewer than two readings"),
        (["time,watts", "5000,10", "5000,11"], "line 3 is not later"),
        (["time,watts", "yesterday,10"], "line 2 is not understood"),
        (["time,watts", "5000,ten"], "line 2 is not understood"),
        (["time,watts", "5000,nan", "5001,1"], "line 2 is not understood"),
        (["time,watts", "inf,1", "5001,1"], "line 2 is not understood"),
        (["time,power_kw", "5000,1", "5001,1"], "no line names"),
        (["time,power factor,energy (Wh)", "5000,1,1", "5001,1,1"], "no line names"),
        ([], "no line names"),
        (["time," + 200_000 * "p" + "power", "1,2", "2,3"], "is no table .*; name a logger's CSV file"),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PowerLog(log(tmp_path / "log.csv", *lines))
    with pytest.raises(ConfigError, match="cannot be read"):
        PowerLog(tmp_path / "none.csv")


def document(**changes: Any) -> dict[str, Any]:
    """A kernel interface's result, as far as meters look at it."""
    return {
        "ios": 1000,
        "threads_cpu": {
            "user_ns": 1_000_000,
            "system_ns": 3_000_000,
            "voluntary_switches": 900,
            "involuntary_switches": 100,
        },
        "helpers_cpu": {"cpu_ns": 2_000_000, "voluntary_switches": 1000, "involuntary_switches": 0},
        "system_calls": 2000,
        "counters": {"cycles": 5_000, "instructions": 7_000},
    } | changes


def test_cpu_time_is_of_all_who_helped() -> None:
    read = CpuTime().read(document())
    assert read["cpu_us_per_io"] == pytest.approx(6.0)
    assert (read["user_us_per_io"], read["system_us_per_io"], read["helpers_us_per_io"]) == (1.0, 3.0, 2.0)
    assert (read["switches_per_io"], read["system_calls_per_io"]) == (2.0, 2.0)
    assert read["emulator_us_per_io"] is None
    emulated = CpuTime().read({"ios": 10, "threads_cpu": {"cpu_ns": 10_000}, "emulator_cpu": {"cpu_ns": 20_000}})
    assert (emulated["cpu_us_per_io"], emulated["emulator_us_per_io"]) == (1.0, 2.0)
    assert emulated["switches_per_io"] is None
    assert CpuTime().read(document(system_calls=None))["system_calls_per_io"] is None
    assert CpuTime().read(document(ios=0)) == {"absent": "no request succeeded"}


def test_counters_say_why_there_are_none() -> None:
    assert PerfCounters().read(document()) == {"cycles_per_io": 5.0, "instructions_per_io": 7.0}
    assert PerfCounters().read(document(counters={"absent": "no"})) == {"absent": "no"}
