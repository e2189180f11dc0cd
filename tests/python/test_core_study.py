"""flashmob study interfaces, on files of a temporary folder and on an emulated SSD."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, cli
from flashmob.study import Trial
from flashmob.study.interfaces import (
    Plan,
    check_interfaces,
    driver_document,
    figures,
    is_done,
    with_seed_of,
)
from flashmob.study.meters import CpuTime, machine_cpu
from flashmob.study.target import StudyTarget, is_own, study_target

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "own_study.py"
QUICK = ("--runtime", "20ms", "--ramp", "1ms")


def study(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["flashmob", "study", "interfaces", *arguments])
    return cli.run(lambda: cli.app(standalone_mode=True))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that is nobody's but the test's."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    return path


def points_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "points").iterdir())]


def test_a_study_of_a_file_measures_says_why_not_and_is_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target, out = tmp_path / "made", tmp_path / "out"
    asked = (
        *(str(target), "--size", "1M", "--rw", "randread,randwrite", "--depth", "1,2", "--buffered", *QUICK),
        *("--repeats", "2", "--out", str(out), "--json"),
    )
    assert study(*asked, monkeypatch=monkeypatch) == 0
    assert target.stat().st_size == 1 << 20
    document = json.loads(capfd.readouterr().out)
    assert document["is_whole"]
    rows = document["rows"]
    assert len(rows) == 15 * 2 * 2 * 2
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["interface"], []).append(row)
    for name in ("posix-sio", "mmap"):
        for row in by_name[name]:
            assert row["supported"] == (row["depth"] == 1), row
            assert row["reason"] == "" or "one request under way" in row["reason"]
    for row in rows:
        assert row["supported"] or row["reason"]
        if row["supported"]:
            assert row["energy.source"] in ("none", "measured")
            assert ("watts" in row) == (row["energy.source"] == "measured")
            assert row["errors"] == 0
    assert all(not row["supported"] for row in by_name["posix-sio-hipri"]), "buffered I/O is never polled"
    for result in (one["result"] for one in points_of(out) if one["result"]["supported"]):
        window = result["window"]
        assert window["end_ns"] - window["begin_ns"] == 20_000_000
        assert sum(count for _, count in result["latency_buckets"]) == result["ios"]
        assert result["provenance"]["kernel"]
    assert {path.name for path in out.iterdir()} >= {"points", "report.md", "report.html", "table.csv"}
    # What was not possible, and what nothing ended in, is tried again.
    done = [path for path in (out / "points").iterdir() if is_done(json.loads(path.read_text())["result"])]
    before = {path: path.stat().st_mtime_ns for path in done}
    assert study(*asked[:1], *asked[3:], monkeypatch=monkeypatch) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == before


def test_what_a_study_did_not_make_is_not_written_to(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content = file.read_bytes()
    asked = (str(file), "--rw", "randread,randwrite", "--interfaces", "posix-sio", "--buffered", *QUICK)
    out = ("--out", str(tmp_path / "out"))
    assert study(*asked, *out, monkeypatch=monkeypatch) == 2
    assert "would be overwritten, and nobody allowed that" in capfd.readouterr().err
    assert file.read_bytes() == content
    assert not list((tmp_path / "out" / "points").glob("*")), "nothing is measured before all is looked at"
    assert study(*asked, *out, "--allow-writes", monkeypatch=monkeypatch) == 0
    assert file.read_bytes() != content
    assert not is_own(file)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("FOLDER",), "is a folder; name a file or a block device"),
        (("/dev/null",), "is neither a file nor a block device"),
        (("none",), "none is no file, block device, profile or door; --size 1G makes it"),
        (("optane-p480x",), 'did you mean "optane-p4800x"'),
        (("FILE", "--size", "1G"), "is there; leave it out"),
        (("FILE", "--bs", "1000"), "--bs 1000 is not possible: use a multiple of"),
        (("FILE", "--bs", "4k,"), "a value is missing beside a comma"),
        (("FILE", "--bs", "8M"), "less than a block for each thread"),
        (("FILE", "--bs", "5G"), "--bs 5368709120 is not possible: that is beyond what can be counted"),
        (("FILE", "--depth", "0"), "--depth 0 is not possible: use at least 1"),
        (("FILE", "--depth", "many"), "--depth many is not possible"),
        (("FILE", "--threads", "1000"), "--threads 1000 is not possible: use 1 to 256"),
        (("FILE", "--rw", "trim"), "use some of randread"),
        (("FILE", "--interfaces", "io-uring"), "io_uring"),
        (("FILE", "--interfaces", "driver-poll"), "drives a profile or a door"),
        (("FILE", "--runtime", "5"), "--runtime"),
        (("FILE", "--runtime", "0s"), "--runtime 0s is not possible: use 1 to"),
        (("FILE", "--repeats", "0"), "use at least 1"),
        (("FILE", "--repeats", "100000000000"), "use at most 10000"),
        (("FILE", "--idle", "99999999999h"), "--idle"),
        (("FILE", "--power-offset", "nan"), "--power-offset nan is not possible"),
        (("FILE", "--out", "MINE"), "has a report.md that no study made"),
        (("FILE", "--power-offset", "3"), "is for a --power-log"),
        (("FILE", "--power-log", "none.csv"), "cannot be read"),
        (("d7-ps1010", "--interfaces", "libaio"), "use driver-poll, driver-interrupt, driver-hybrid"),
        (("d7-ps1010", "--threads", "0"), "--threads 0 is not possible: use at least 1"),
        (("d7-ps1010", "--threads", "5000"), "--threads 5000 is not possible: use at most 4096"),
        (("d7-ps1010", "--depth", "99999999"), "--depth 99999999 is not possible: use at most 65535"),
        (("d7-ps1010", "--bs", "64M"), "--bs 64M is not possible: use multiples of 512"),
        (("d7-ps1010", "--bs", "1000"), "--bs 1000 is not possible: use multiples of 512"),
        (("d7-ps1010", "--runtime", "0s"), "--runtime 0 is not possible: use a time above 0"),
        (("d7-ps1010", "--size", "10"), "--size 10 is not possible: 10 is not a multiple"),
        (("zn540", "--size", "4G", "--rw", "randwrite"), "--rw randwrite is not possible: the namespace's command set"),
        (("nvme-tcp:127.0.0.1:1/x", "--size", "1G"), "has a size"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    arguments: tuple[str, ...],
    why: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.md").write_text("mine")
    places = {"FILE": str(file), "FOLDER": str(tmp_path), "MINE": str(tmp_path / "mine")}
    named = [places.get(word, word) for word in arguments]
    assert study(*named, monkeypatch=monkeypatch) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert why in error


def test_a_file_that_somebody_wrote_to_is_no_longer_the_studys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made"
    target = study_target(str(path), size="64k", allow_writes=False).make()
    if not target.is_own:
        pytest.skip("this file system has no attributes")
    target.check_same()
    for content in (os.urandom(65536), os.urandom(100), b"", bytes(65536)):
        path.write_bytes(content)  # The inode and its mark stay.
        assert not is_own(path)
        with pytest.raises(ConfigError, match="holds what no study wrote"):
            target.check_same()
    asked = (str(path), "--rw", "randwrite", "--buffered", "--interfaces", "posix-sio", *QUICK)
    assert study(*asked, "--out", str(tmp_path / "out"), monkeypatch=monkeypatch) == 2
    assert "nobody allowed that" in capfd.readouterr().err
    assert path.read_bytes() == bytes(65536)
    (tmp_path / "other").write_bytes(bytes(65536))
    (tmp_path / "other").replace(path)
    with pytest.raises(ConfigError, match="is another file"):
        target.check_same()


def test_a_file_is_not_left_by_a_study_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for wrong in (("--interfaces", "io-uring"), ("--bs", "1000"), ("--threads", "1000")):
        made = tmp_path / "made"
        out = ("--out", str(tmp_path / "out"))
        assert study(str(made), "--size", "64k", *wrong, *out, monkeypatch=monkeypatch) == 2
        assert capfd.readouterr().err.count("\n") == 1
        assert not made.exists()


def test_a_file_that_is_there_has_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made, out = tmp_path / "made", ("--out", str(tmp_path / "out"))
    if not study_target(str(made), size="64k", allow_writes=False).make().is_own:
        pytest.skip("this file system has no attributes")
    for size in ("128k", "999999P"):
        assert study(str(made), "--size", size, *QUICK, *out, monkeypatch=monkeypatch) == 2
        assert f"--size {size} is not possible: {made} is there, with 64KiB; leave it out" in capfd.readouterr().err
    assert study_target(str(made), size="64KiB", allow_writes=False).is_own, "the same command goes on"


def test_options_are_checked_before_a_target_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from flashmob import _core

    def refuse(*_: object) -> None:
        raise AssertionError("a file was made before the options were checked")

    monkeypatch.setattr(_core, "create_interface_file", refuse)
    made = tmp_path / "made"
    out = ("--out", str(tmp_path / "out"))
    for wrong, why in (
        (("--interfaces", "io-uring"), 'did you mean "io_uring"'),
        (("--threads", "1000"), "--threads 1000 is not possible"),
        (("--bs", "128k"), str(made)),
        (("--repeats", "100000"), "repeats"),
        (("--idle", "999999s"), "at most 7 days"),
        (("--size", "0"), "no bytes"),
        (("--size", "1000"), "multiple of 512"),
    ):
        size = () if "--size" in wrong else ("--size", "64k")
        assert study(str(made), *size, *wrong, *out, monkeypatch=monkeypatch) == 2, wrong
        error = capfd.readouterr().err
        assert why in error
        assert ".flashmob-study" not in error, "a stand-in's name is nothing to a user"
    assert [path.name for path in tmp_path.iterdir() if path.name != "out"] == []


def test_each_target_has_a_folder_of_its_own(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_bytes(file.read_bytes())
    for path in (file, other / "file", file):
        asked = (str(path), "--buffered", "--interfaces", "posix-sio", *QUICK)
        assert study(*asked, monkeypatch=monkeypatch) == 0
    folders = sorted((tmp_path / "out" / "interfaces").iterdir())
    assert [folder.name.rpartition("-")[0] for folder in folders] == ["file", "file"]
    assert {one["settings"]["target"] for folder in folders for one in points_of(folder)} == {
        str(file),
        str(other / "file"),
    }
    assert all(len(points_of(folder)) == 1 for folder in folders)


def test_repeats_draw_places_of_their_own(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    asked = (str(file), "--buffered", "--interfaces", "posix-sio", *QUICK, "--repeats", "3", "--seed", "7")
    assert study(*asked, "--out", str(out), monkeypatch=monkeypatch) == 0
    seeds = {one["repeat"]: one["result"]["seed"] for one in points_of(out)}
    assert seeds[0] == 7
    assert len(set(seeds.values())) == 3
    assert {one["settings"]["seed"] for one in points_of(out)} == {7}, "repeats are of one point"
    again = {one: with_seed_of(Trial({"seed": 7}, one))["seed"] for one in range(3)}
    assert again == seeds, "the same command draws the same"


def test_stolen_time_is_in_the_table_and_a_reason_to_doubt() -> None:
    parts = {"user_ns": 60, "system_ns": 20, "interrupt_ns": 0, "idle_ns": 19, "stolen_ns": 1}
    quiet = figures(result_of(machine_cpu=parts), [], {})
    assert quiet["stolen_percent"] == pytest.approx(1)
    assert "doubt" not in quiet
    busy = figures(result_of(machine_cpu=parts | {"idle_ns": 0, "stolen_ns": 20}), [], {})
    assert "gave 20 % of the machine's CPU time to others" in busy["doubt"]
    assert "stolen_percent" not in figures(result_of(), [], {})
    before, after = machine_cpu(), machine_cpu()
    assert set(before) == set(parts)
    assert sum(after.values()) >= sum(before.values()) > 0


def result_of(**changes: Any) -> dict[str, Any]:
    latency = dict.fromkeys(("mean", "min", "p50", "p90", "p99", "p999", "max"), 1000)
    return {"supported": True, "ios": 1000, "iops": 1e3, "seconds": 1.0, "latency_ns": latency, "errors": {}} | changes


def test_what_is_to_be_doubted_is_said_and_what_is_not_done_is_measured_again() -> None:
    assert "doubt" not in figures(result_of(), [], {})
    late = {"requests": 1, "oldest_ns": 5_000, "total_ns": 5_000}
    assert "would be the longest" in figures(result_of(unfinished=late), [], {})["doubt"]
    many = {"requests": 64, "oldest_ns": 900, "total_ns": 32_000}
    assert "64 requests" in figures(result_of(unfinished=many), [], {})["doubt"]
    assert "device failed" in figures(result_of(device_failed=True), [], {})["doubt"]
    none = figures(result_of(ios=0, iops=0.0), [], {})
    assert "no request ended" in none["doubt"]
    assert "mean_us" not in none
    assert is_done(result_of())
    without = result_of()
    del without["latency_ns"]
    for again in (result_of(ios=0), {"supported": False, "reason": "ulimit"}, without, {}):
        assert not is_done(again)


def test_what_an_emulated_ssd_failed_is_in_the_errors() -> None:
    from flashmob.result import Result

    result = Result(iops=0.0, verdict="NONE", clock="real", errors={"0x281": 3}, unanswered=2, device_failed=True)
    document = driver_document(result)
    assert document["errors"] == {"0x281": 3, "unanswered": 2}
    assert document["device_failed"]


def test_an_emulated_ssd_is_driven_by_our_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    asked = ("optane-p4800x", "--size", "16M", "--rw", "randread,randwrite", *QUICK, "--out", str(out))
    before_ns = time.monotonic_ns()
    assert study(*asked, monkeypatch=monkeypatch) == 0
    found = points_of(out)
    names = ["driver-poll", "driver-interrupt", "driver-hybrid"]
    assert sorted(one["settings"]["interface"] for one in found) == sorted(names * 2)
    for one in found:
        result = one["result"]
        # How many requests there were is the machine's affair.
        assert result["iops"] >= 0
        assert result["seconds"] > 0
        assert result["emulator_cpu"]["cpu_ns"] > 0
        assert result["threads_cpu"]["cpu_ns"] > 0
        assert result["verdict"]
        window = result["window"]
        assert (window["end_ns"] - window["begin_ns"]) / 1e9 == pytest.approx(result["seconds"])
        assert before_ns < window["begin_ns"] < window["end_ns"] < time.monotonic_ns()
        assert abs(window["begin_ns"] + window["realtime_ahead_ns"] - time.time_ns()) < 600e9
    report = (out / "report.md").read_text()
    for name in names:
        assert name in report


def test_what_lies_behind_a_door_is_read_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], flashmob_serve: Any
) -> None:
    store = tmp_path / "store"
    served = flashmob_serve(media=f"file:{store}", size="1M")
    content = store.read_bytes()
    asked = (served.target, *QUICK, "--out", str(tmp_path / "out"))
    assert study(*asked, "--rw", "randread", monkeypatch=monkeypatch) == 0
    found = points_of(tmp_path / "out")
    assert len(found) == 3
    for one in found:
        assert one["result"]["supported"]
        assert one["result"]["emulator_cpu"]["cpu_ns"] is None, "that is its server's to say"
    assert store.read_bytes() == content
    assert study(*asked, "--rw", "randwrite", monkeypatch=monkeypatch) == 2
    assert "would be overwritten; add --allow-writes" in capfd.readouterr().err
    assert store.read_bytes() == content


def test_a_profile_that_keeps_a_file_is_not_written_to(tmp_path: Path, file: Path) -> None:
    profile = tmp_path / "kept.toml"
    profile.write_text(f'[[subsystem.namespaces]]\nmedia = "file:{file}"\n')
    target = study_target(str(profile), size=None, allow_writes=False)
    plan = Plan(target, ["driver-poll"], ["randwrite"], [4096], [1], [1], 1_000_000, 0)
    with pytest.raises(ConfigError, match="would be overwritten; add --allow-writes"):
        plan._check_writes()


def test_a_name_is_a_profile_unless_a_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert study_target("d7-ps1010", size=None, allow_writes=False).is_driver
    (tmp_path / "d7-ps1010").write_bytes(bytes(4096))
    assert not study_target("d7-ps1010", size=None, allow_writes=False).is_driver
    made = study_target("made", size="64k", allow_writes=False)
    assert made.allow_writes == is_own(tmp_path / "made")
    assert check_interfaces(StudyTarget("x", True, False), []) == ["driver-poll", "driver-interrupt", "driver-hybrid"]


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "flashmob", "study", "interfaces", str(file), "--interfaces", "posix-sio,mmap"]
    command += ["--buffered", "--ramp", "0s", "--out", str(out)]
    running = subprocess.Popen([*command, "--runtime", "1h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until_s = time.monotonic() + 60
    # It measures once the thread of the measurement is there.
    while "flashmob-study" not in _threads(running.pid) and running.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    running.send_signal(2)
    text, _ = running.communicate(timeout=60)
    assert b"stopped: 0 of 2 measurements are in" in text, text
    assert running.returncode in (-2, 130)
    assert list((out / "points").iterdir()) == []
    done = subprocess.run([*command, "--runtime", "10ms"], capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def _threads(process: int) -> str:
    """Names of a process's threads, as far as the kernel has room for them, or the number of I/O threads that run."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return ""
    # The main thread waits, the study's thread waits for the run, and the run's thread works.
    return "flashmob-study" if len(tasks) >= 3 else ""


def test_idle_power_is_read_once(file: Path, tmp_path: Path) -> None:
    plan = Plan(StudyTarget(str(file), False, False), ["mmap"], ["read"], [4096], [1], [1], 1_000_000, 0, False)
    still = plan.idle(0.05)
    assert still["window"]["end_ns"] - still["window"]["begin_ns"] >= 50_000_000
    assert set(still["energy_readings"]) == {"ipmi", "hwmon", "rapl", "nvml"}
    assert CpuTime().absent == ""


def test_a_loggers_file_adds_joules_to_what_was_measured_before(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flashmob.study.meters.POWERCAP", tmp_path)
    out = tmp_path / "out"
    asked = (
        str(file),
        "--buffered",
        "--interfaces",
        "posix-sio",
        *QUICK,
        "--idle",
        "10ms",
        "--out",
        str(out),
        "--json",
    )
    assert study(*asked, monkeypatch=monkeypatch) == 0
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert row["energy.source"] == "none"
    assert not any("joule" in name or "watts" in name for name in row)
    windows = [json.loads((out / "idle.json").read_text())["window"], points_of(out)[0]["result"]["window"]]
    begins = [(one["begin_ns"] + one["realtime_ahead_ns"]) / 1e9 for one in windows]
    # 30 W while it was idle, 50 W from the middle between; the logger's clock is 100 s behind.
    idle_end = (windows[0]["end_ns"] + windows[0]["realtime_ahead_ns"]) / 1e9  # of a busy machine, much later
    change = (idle_end + begins[1]) / 2
    times = [begins[0] - 1, change - 1e-4, change + 1e-4, begins[1] + 3]
    lines = [f"{at - 100:.6f},{watts}" for at, watts in zip(times, (30, 30, 50, 50), strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["time,watts", *lines]))
    again = (*asked, "--power-log", str(tmp_path / "log.csv"), "--power-offset", "100")
    assert study(*again, monkeypatch=monkeypatch) == 0
    (metered,) = json.loads(capfd.readouterr().out)["rows"]
    assert (metered["energy.source"], metered["energy.meter"]) == ("measured", "log")
    assert metered["iops"] == row["iops"]
    assert metered["watts"] == pytest.approx(50, rel=1e-2)
    assert metered["idle_watts"] == pytest.approx(30, rel=1e-2)
    assert metered["ios_per_joule"] == pytest.approx(row["iops"] / 50, rel=1e-2)
    assert metered["ios_per_joule_above_idle"] == pytest.approx(row["iops"] / 20, rel=3e-2)
    assert "measured" in (out / "report.md").read_text()


def test_the_example_of_a_study_of_ones_own_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    table = main(str(tmp_path / "out"))
    assert table.is_whole
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("d7-ps1010      depth   1:")
    assert len((tmp_path / "out" / "table.csv").read_text().splitlines()) == 13
    # Virtual time: every repeat is the same, and what is kept is what would be measured again.
    assert [row["iops"] for row in table.rows()[::2]] == [row["iops"] for row in table.rows()[1::2]]
    assert [row["iops"] for row in main(str(tmp_path / "out")).rows()] == [row["iops"] for row in table.rows()]


def test_flashmob_study_lists_studies(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["flashmob", "study"])
    assert cli.run(lambda: cli.app(standalone_mode=True)) == 0
    assert "interfaces" in capfd.readouterr().out
