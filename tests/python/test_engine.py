"""The choice of engine: what it changes in a profile, what it refuses, and a run on each."""

from __future__ import annotations

import json
from pathlib import Path

import flashmob
import pytest
from flashmob import ConfigError, cli
from flashmob.device import engine_note, on_engine
from flashmob.lab import load_lab
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


def test_pauses_are_not_the_gpu_engines() -> None:
    """What virtual time skips, because nobody rings, counted as time in which a doorbell had not been looked at."""
    result = flashmob.bench(
        "optane-p5800x", engine="gpu", sms=1, rate=500, clock="virtual", queues=1, qd=4, ios=150, size="1M"
    )
    assert result.verdict == "VALID", result.verdict_cause


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("bench unlimited --engine gpu --media generated", "--media generated is not possible: use memory or cow:PATH"),
        ("bench unlimited --engine gpu --fault lose", "--fault lose is not possible: only the host's engine shows"),
        ("bench d7-ps1010 --engine gpu --set timing.per_request_updates=true", "--set timing.per_request_updates = "),
        ("serve unlimited --engine gpu --media generated --vfio-user x", "--media generated is not possible: use"),
        ("serve unlimited --engine gpu --fault lose --vfio-user x", "--fault lose is not possible: only the host's"),
        ("gpu serve unlimited --socket x --media generated", "--media generated is not possible: use memory or cow:"),
        ("gpu serve unlimited --socket x --media file:y --size 1M", "--media file:y is not possible: use memory or"),
        ("gpu run mean unlimited --engine gpu --size 900T", "--size 900T is not possible: use at most 64TiB"),
    ],
)
def test_what_the_gpu_engine_lacks_is_said_of_what_was_typed(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(lambda: cli.app(arguments.split(), standalone_mode=True)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {sentence}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_lab_names_its_own_keys(tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    for keys, words in (
        ("engine = 'gpu'\nmedia = 'generated'", "ssd0: media = 'generated' is"),
        ("size = '900T'", "900TiB"),
    ):
        lab.write_text(f"[[ssd]]\nprofile = 'unlimited'\nvfio_user = 'x'\n{keys}\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=words):
            load_lab(lab).ssd[0].server(tmp_path)


def test_a_profile_may_ask_for_a_gpu(tmp_path: Path) -> None:
    profile, _ = prepare("d7-ps1010", {"clock": "virtual"}, {"engine.kind": "gpu"})
    assert profile.controller.max_transfer_bytes == 128 << 10
    with pytest.raises(ConfigError, match=r"^set controller\.max_transfer_bytes = 1048576 is not possible"):
        prepare("d7-ps1010", {}, {"engine.kind": "gpu", "controller.max_transfer_bytes": "1M"})
    mine = tmp_path / "mine.toml"
    mine.write_text("[engine]\nkind = 'gpu'\n[controller]\nmax_queue_pairs = 4000\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"^{mine}: controller.max_queue_pairs = 4000 is not possible"):
        prepare(str(mine), {})
