"""The choice of engine: what it changes in a profile, what it refuses, and a run on each."""

from __future__ import annotations

import json
from pathlib import Path

import flashmob
import pytest
from flashmob import ConfigError, cli
from flashmob.device import engine_note, on_engine
from flashmob.profiles import load_profile
from flashmob.runner import prepare


def test_limits_follow_the_gpu_engine() -> None:
    profile, _ = prepare("d7-ps1010", {"engine": "gpu", "sms": 2, "clock": "virtual"})
    assert (profile.engine.kind, profile.engine.sms) == ("gpu", 2)
    assert profile.controller.max_queue_pairs <= 512
    assert profile.controller.max_transfer_bytes == 128 << 10
    assert "fibres" in engine_note(profile, "virtual")


def test_what_is_set_by_hand_stays_and_is_judged() -> None:
    given = {"controller.max_transfer_bytes": 1 << 20}
    profile = on_engine(load_profile("d7-ps1010", overrides=given), "gpu", None, given)
    assert profile.controller.max_transfer_bytes == 1 << 20
    with pytest.raises(ConfigError, match="131072"):
        flashmob.bench(profile, clock="virtual", ios=10)


def test_the_host_engine_knows_no_multiprocessors() -> None:
    with pytest.raises(ConfigError, match="sms"):
        prepare("d7-ps1010", {"sms": 2})
    profile, _ = prepare("d7-ps1010", {"engine": "host"})
    assert profile.engine.kind == "host"
    assert engine_note(profile, "real") == ""


def test_a_run_on_the_gpu_engine_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    command = "bench d7-ps1010 --engine gpu --clock virtual --queues 1 --qd 4 --ios 500 --size 1M --verify 100"
    command += " --set fidelity.max_error_ns=3us"  # of a kernel on fibres
    assert cli.run(lambda: cli.app([*command.split(), "--json", str(out)], standalone_mode=False)) == 0
    assert "fibres" in capsys.readouterr().out
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["verify_errors"] == 0
    assert result["device"]["engine"]["kind"] == "gpu"
    assert result["verdict"] == "VALID"
