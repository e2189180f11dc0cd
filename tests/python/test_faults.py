"""Faults by profile, Python and file: given at the start, switched while a host works, seen in results."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import flashmob
import numpy
import pytest
from flashmob.faults import FaultFile, read_rules, write_rules

SHORT = {"size": "1M", "queues": 1, "qd": 8, "clock": "virtual", "ios": 2000, "verify": 100}


def test_results_name_the_faults() -> None:
    first = flashmob.bench("d7-ps1010", faults=["error on=read p=0.01 seed=3", "corrupt at=77"], **SHORT)
    again = flashmob.bench("d7-ps1010", faults=["error on=read p=0.01 seed=3", "corrupt at=77"], **SHORT)
    assert first.comparable == again.comparable
    assert [fault["rule"] for fault in first.faults] == ["error on=read p=0.01 seed=3", "corrupt at=77"]
    assert first.errors == {"0x281": first.faults[0]["injected"]}
    assert first.verify_errors == first.faults[1]["injected"] == 1
    assert flashmob.Result.from_json(first.to_json()) == first
    lost = flashmob.bench("d7-ps1010", faults=["lose at=100 times=1"], **SHORT)
    assert lost.unanswered == 1


def test_a_profile_may_have_faults(tmp_path: Path) -> None:
    profile = tmp_path / "faulty.toml"
    profile.write_text('faults = ["error on=write"]\n[timing]\nread_iops = 1e6\n', encoding="utf-8")
    result = flashmob.bench(profile, rw="randwrite", **SHORT | {"verify": None})
    assert sum(result.errors.values()) >= result.ios
    profile.write_text('faults = ["error on=nothing"]\n', encoding="utf-8")
    with pytest.raises(flashmob.ConfigError, match=r"faulty\.toml: fault .*use io, admin, read"):
        flashmob.bench(profile, **SHORT)


def test_a_running_ssd_is_switched() -> None:
    with flashmob.Ssd.from_profile("unlimited", size="1M") as ssd:
        queue, buffer = ssd.queue(4), numpy.empty(512, numpy.uint8)
        queue.read(0, buffer).result()
        ssd.set_faults(["error"])
        with pytest.raises(flashmob.NvmeError):
            queue.read(0, buffer).result()
        assert ssd.faults == (flashmob.FaultCount("error", 1, 1),)
        with pytest.raises(flashmob.ConfigError):
            ssd.set_faults(["errors"])
        ssd.set_faults([])
        queue.read(0, buffer).result()


def test_rules_that_are_wrong_are_not_written(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    write_rules(file, ["error", "delay delay=1ms"])
    assert read_rules(file) == ["error", "delay delay=1ms"]
    with pytest.raises(flashmob.ConfigError, match="delay="):
        write_rules(file, ["delay"])
    assert read_rules(file) == ["error", "delay delay=1ms"]
    assert [path.name for path in tmp_path.iterdir()] == ["rules"]
    file.write_text("# nothing\n\n  lose at=1  \n", encoding="utf-8")
    assert read_rules(file) == ["lose at=1"]


def test_a_file_is_read_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    watched = FaultFile(file)
    assert watched.changed() is None, "a file that was never there changes nothing"
    write_rules(file, ["error"])
    assert watched.changed() == ["error"]
    assert watched.changed() is None
    file.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(flashmob.ConfigError, match="rules: fault"):
        watched.changed()
    assert watched.changed() is None, "what is wrong is said once"
    file.unlink()
    assert watched.changed() == []


def test_a_pipe_in_its_place_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    write_rules(file, ["error"])
    watched = FaultFile(file)
    assert watched.changed() == ["error"]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").rename(file)
    said: list[str] = []

    def look() -> None:
        try:
            watched.changed()
        except flashmob.ConfigError as error:
            said.append(str(error))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "it waits for a writer"
    assert said == [f"{file}: is no file but a pipe or a device; name a file of rules, one a line"]
    assert watched.changed() is None, "what is wrong is said once"
    file.unlink()
    file.mkdir()
    with pytest.raises(flashmob.ConfigError, match="cannot be read"):
        watched.changed()
