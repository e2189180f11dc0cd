"""SSDs of a lab file that have processes of their own: a crash takes one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob.errors import ConfigError
from flashmob.isolated import IsolatedServer, ServerEndedError
from flashmob.lab import checked_ssd
from flashmob.registry import servers

LOAD = {"queues": 1, "qd": 8, "ramp": "10ms", "runtime": "200ms", "verify": 100}
LAB = """
[[ssd]]
name = "own"
profile = "unlimited"
vfio_user = "."
size = "4M"
isolate = true
faults_file = "faults"

[[ssd]]
name = "second"
profile = "unlimited"
vfio_user = "."
size = "4M"
isolate = {second}
"""


def until(found: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.05)
    pytest.fail(what)


def records(folder: Path, event: str) -> list[dict[str, Any]]:
    path = folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [record for record in map(json.loads, lines) if record["event"] == event]


@contextmanager
def lab(folder: Path, *, second: bool = False) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """The server, and each SSD's process."""
    (folder / "lab.toml").write_text(LAB.format(second=str(second).lower()))
    command = [sys.executable, "-m", "flashmob", "serve", "--config", "lab.toml", "--json-log", "log"]
    with subprocess.Popen([*command, "--interval", "50ms"], cwd=folder, stdout=subprocess.DEVNULL) as process:
        pids: dict[str, int] = {}
        try:
            ready = until(lambda: records(folder, "ready"), "it never was ready")
            pids = {ssd["name"]: ssd["pid"] for ssd in ready[0]["ssds"]}
            yield process, pids
        finally:
            process.kill()
            for pid in set(pids.values()) - {process.pid}:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"


def test_a_crash_takes_one_drive(tmp_path: Path) -> None:
    with lab(tmp_path) as (process, pids):
        assert pids["second"] == process.pid != pids["own"]
        address = f"vfio-user:{tmp_path}/{{}}/cntrl"
        assert flashmob.bench(address.format("own"), **LOAD).verify_errors == 0
        own = until(lambda: [s for s in servers() if s["name"] == "own" and s["stats"]["read_commands"]], "no news")[0]
        assert own["addresses"] == [address.format("own")]

        os.kill(pids["own"], signal.SIGSEGV)
        said = until(lambda: records(tmp_path, "ended"), "nobody saw it end")[0]
        assert said["ssd"] == "own"
        assert said["said"] == f"own: its process ({pids['own']}) was ended by SIGSEGV; the others go on"
        assert flashmob.bench(address.format("second"), **LOAD).verify_errors == 0
        assert [state["name"] for state in servers()] == ["second"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


def test_the_last_drive_ends_the_server(tmp_path: Path) -> None:
    with lab(tmp_path, second=True) as (process, pids):
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=10) == 1
        assert len(records(tmp_path, "ended")) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_server(tmp_path: Path, number: signal.Signals) -> None:
    with lab(tmp_path, second=True) as (process, pids):
        process.send_signal(number)
        assert (
            process.wait(timeout=10) == {signal.SIGTERM: 0, signal.SIGINT: -signal.SIGINT, signal.SIGKILL: -9}[number]
        )
        until(lambda: all(map(gone, pids.values())), "a child is left")
        assert not list(tmp_path.glob("*/cntrl"))


def test_a_drive_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    with lab(tmp_path, second=True) as (process, pids):
        os.kill(pids["own"], signal.SIGSTOP)
        count = len(records(tmp_path, "stats"))
        until(lambda: len(records(tmp_path, "stats")) >= count + 4, "the view stands still, too")
        started_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) in (0, 1)
        assert time.monotonic() - started_s < 5
        until(lambda: all(map(gone, pids.values())), "a child is left")


def test_drives_that_stand_still_hold_up_the_end_together(tmp_path: Path) -> None:
    """Their times to leave are one time: the server ends by itself, before it is ended."""
    with lab(tmp_path, second=True) as (process, pids):
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert records(tmp_path, "stop")
        until(lambda: all(map(gone, pids.values())), "a child is left")


def test_faults_reach_it(tmp_path: Path) -> None:
    (tmp_path / "faults").write_text("")
    with lab(tmp_path):
        (tmp_path / "faults").write_text("error on=read every=1 status=0x281\n")
        until(lambda: records(tmp_path, "faults"), "nobody looked")
        result = flashmob.bench(f"vfio-user:{tmp_path}/own/cntrl", **{**LOAD, "verify": 0}, fill=False)
        assert result.errors


def test_faults_for_a_drive_that_stands_still_wait_for_it(tmp_path: Path) -> None:
    """More of them than a pipe takes, and changed meanwhile: nobody waits, and the last ones are what it shows."""
    with lab(tmp_path) as (process, pids):
        os.kill(pids["own"], signal.SIGSTOP)
        for told, value in enumerate((0x281, 0x282, 0x283), 1):
            rule = f"error on=read every=1 status={value:#x}\n"
            (tmp_path / "faults").write_text(rule * (1 if value == 0x283 else 3000))
            until(lambda: len(records(tmp_path, "faults")) >= told, "nobody looked")  # noqa: B023
            assert "does not answer" in records(tmp_path, "faults")[-1]["said"]
            count = len(records(tmp_path, "stats"))
            until(lambda: len(records(tmp_path, "stats")) >= count + 2, "the view stands still")  # noqa: B023
        os.kill(pids["own"], signal.SIGCONT)

        def errors() -> dict[str, int]:
            return flashmob.bench(f"vfio-user:{tmp_path}/own/cntrl", **{**LOAD, "verify": 0}, fill=False).errors

        until(lambda: "0x283" in errors(), "it does not show the last faults")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


def test_mistakes_are_told_by_the_server(tmp_path: Path) -> None:
    given = {"profile": "unlimited", "vfio_user": str(tmp_path), "isolate": True}
    missing = checked_ssd({**given, "media": f"cow:{tmp_path}/none"}, "test")
    with pytest.raises(ConfigError, match="none"):
        IsolatedServer(missing, None)

    ssd = checked_ssd({**given, "size": "1M"}, "test")
    first, second = IsolatedServer(ssd, None), IsolatedServer(ssd, None)
    try:
        first.start()
        with pytest.raises(ConfigError, match="cntrl"):
            second.start()
        with pytest.raises(ConfigError, match="fault"):
            first.set_faults(["nonsense"])
        assert first.stats().completions == 0
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(ServerEndedError, match="SIGKILL"):
            until(lambda: first.stats() and None, "it answers after its end")
    finally:
        first.stop()
        second.stop()
