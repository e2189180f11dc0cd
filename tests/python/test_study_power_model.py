"""Joules that are calculated from CPU time, and are called a model wherever they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flashmob import cli
from flashmob.errors import ConfigError
from flashmob.study.interfaces import figures
from flashmob.study.power_model import MODELS, PowerModel
from flashmob.study.report import findings, summary

MODEL = PowerModel("m", "nowhere", 10.0, (20.0, 30.0))


def test_watts_lie_between_those_of_whole_cores() -> None:
    assert [MODEL.watts_above_idle(busy) for busy in (0, 0.5, 1, 1.5, 2, 3)] == [0, 10, 20, 25, 30, 30]


def result(own_ns: int, helpers_ns: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "supported": True,
        "seconds": 2.0,
        "ios": 1000,
        "iops": 500.0,
        "latency_ns": dict.fromkeys(("mean", "min", "p50", "p90", "p99", "p999", "max"), 1000.0),
        "threads_cpu": {"user_ns": own_ns, "system_ns": 0},
        "helpers_cpu": {"cpu_ns": helpers_ns},
    } | more


def test_energy_is_that_of_the_cores_that_did_the_io() -> None:
    found = MODEL.energy(result(1_000_000_000, 1_000_000_000, emulator_cpu={"cpu_ns": 2_000_000_000}))
    assert found == {
        "source": "model",
        "meter": "m",
        "joules": 60.0,
        "watts": 30.0,
        "idle_watts": 10.0,
        "joules_above_idle": 40.0,
    }


class Meter:
    name, absent, is_energy = "x", "", True

    def read(self, _: Any) -> dict[str, Any]:
        return {"joules": 5.0, "watts": 2.5}


def test_what_is_measured_goes_before_what_is_calculated() -> None:
    row = figures(result(10**9), [], {}, MODEL)
    assert (row["energy.source"], row["energy.meter"], row["watts"]) == ("model", "m", 20.0)
    assert row["ios_per_joule_above_idle"] == pytest.approx(1000 / 20)
    measured: Any = [Meter()]
    assert figures(result(10**9), measured, {}, MODEL)["energy.source"] == "measured"
    assert figures(result(10**9), [], {})["energy.source"] == "none"


def test_findings_call_it_a_model() -> None:
    point = {"rw": "randread", "block_bytes": 4096, "threads": 1, "depth": 1, "cpu_us_per_io": 1.0}
    rows = [
        point | {"interface": name} | figures(result(own_ns), [], {}, MODEL)
        for name, own_ns in (("a", 10**9), ("b", 2 * 10**9))
    ]
    (said,) = findings(summary(rows))
    assert "most per joule (model, m) by a" in said


def test_packaged_models_say_where_they_come_from() -> None:
    names = [path.stem for path in MODELS.glob("*.toml")]
    assert "xeon-e3-1230" in names
    for name in names:
        model = PowerModel.read(name)
        assert len(model.source) > 20
        assert model.watts_above_idle(1) < model.watts_above_idle(4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("idle_w = 1\ncores_w = [1]", "source is missing"),
        ('source = " "\nidle_w = 1\ncores_w = [1]', "source is missing"),
        ('source = "x"\ncores_w = [1]', "idle_w = None is not possible"),
        ('source = "x"\nidle_w = -1\ncores_w = [1]', "idle_w = -1 is not possible"),
        ('source = "x"\nidle_w = nan\ncores_w = [1]', "idle_w = nan is not possible"),
        ('source = "x"\nidle_w = 1', "cores_w is missing"),
        ('source = "x"\nidle_w = 1\ncores_w = []', "cores_w is missing"),
        ('source = "x"\nidle_w = 1\ncores_w = [true]', "cores_w is missing"),
        ('source = "x"\nidle_w = 1\ncores_w = [2, 1]', "falls"),
        ('source = "x"\nidle_w = 1\ncores_w = [1]\nwatts = 3', "watts is not known"),
        ("no toml", "cannot be read"),
    ],
)
def test_a_model_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        PowerModel.read(str(path))
    with pytest.raises(ConfigError, match=r"name a \.toml file, or one of xeon-e3-1230"):
        PowerModel.read("none")


def test_a_study_takes_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "study interfaces optane-p4800x --size 64M --interfaces driver-poll --runtime 100ms --ramp 0s --json"
    asked = [*words.split(), "--out", str(tmp_path / "out"), "--power-model", "xeon-e3-1230"]
    assert cli.run(lambda: cli.app(asked)) == 0
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert (row["energy.source"], row["energy.meter"]) == ("model", "xeon-e3-1230")
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "power model" in report
    assert "Intel's TDP" in report
    assert cli.run(lambda: cli.app([*asked[:-1], "nope"])) == 2
    assert "--power-model nope" in capfd.readouterr().err
