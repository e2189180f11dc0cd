"""`flashmob serve` beside files that block: it goes on looking at its SSDs, and says what is wrong."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from array import array
from pathlib import Path

import pytest
from flashmob.registry import servers
from raw_hosts import RawHost, command
from test_core_serve import SMALL, served, stopped

NAME = re.compile(r'^flashmob_(uptime|snapshot_age)_seconds\{ssd="ssd0"\} (\S+)$', re.MULTILINE)


def scraped(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return {name: float(value) for name, value in NAME.findall(answer.read().decode())}


def until_moved(url: str) -> None:
    """Fails unless metrics and state file are of now."""
    first = scraped(url).get("uptime", 0.0)
    seen = servers()[0]["stats"]["uptime_s"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.1)
        found = scraped(url)
        if found.get("uptime", 0.0) > first + 1 and servers()[0]["stats"]["uptime_s"] > seen:
            assert found["snapshot_age"] < 60
            return
    pytest.fail("the watch loop stands still")


def wait_until_full(reader: int) -> None:
    """Until nothing more is put there: of its sixteen pages half may stay empty, where the next record does not fit."""
    held, before = array("i", [0]), -1
    deadline = time.monotonic() + 60
    while held[0] < 32_768 or held[0] != before:
        assert time.monotonic() < deadline, f"{held[0]} bytes are all that came"
        before = held[0]
        time.sleep(1)
        fcntl.ioctl(reader, termios.FIONREAD, held)


def test_a_log_that_nobody_reads_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = (*SMALL[:-4], "--interval", "10ms", "--vfio-user", ".", "--metrics", "0", "--json-log", "log")
        with served(tmp_path, *command) as (process, doors):
            wait_until_full(reader)
            until_moved(doors["metrics http"])
            begin = time.monotonic()
            assert stopped(process, signal.SIGTERM) == 0
            assert time.monotonic() - begin < 6, "it promises two seconds, on a machine that is not busy"
    finally:
        os.close(reader)


def test_a_log_that_is_read_slowly(tmp_path: Path) -> None:
    """The end of the process waits for whoever reads, however slowly; the last line is there."""
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = (*SMALL[:-4], "--interval", "10ms", "--vfio-user", ".", "--json-log", "log")
        with served(tmp_path, *command) as (process, _):
            wait_until_full(reader)
            time.sleep(1)  # Lines that wait.
            process.send_signal(signal.SIGTERM)
            os.set_blocking(reader, True)
            text = b""
            while more := os.read(reader, 16_384):
                text += more
                time.sleep(0.02)
            assert process.wait(timeout=60) == 0
        records = [json.loads(line) for line in text.splitlines()]
        assert (records[0]["event"], records[-1]["event"]) == ("ready", "stop")
    finally:
        os.close(reader)


def test_a_faults_file_that_becomes_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("lose at=999999999\n", encoding="utf-8")
    with served(tmp_path, *SMALL, "--metrics", "0", "--faults-file", "rules") as (process, doors):
        until_moved(doors["metrics http"])
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "pipe").rename(tmp_path / "rules")
        time.sleep(0.5)
        until_moved(doors["metrics http"])
        assert stopped(process, signal.SIGTERM) == 0
        assert process.stdout is not None
        said = process.stdout.read()
    assert said.count("is no file but a pipe or a device; name a file of rules, one a line") == 1


def test_a_log_without_a_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    command = [sys.executable, "-m", "flashmob", "serve", *SMALL, "--json-log", "log"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: JSON log log is a pipe that nobody reads; start its reader first, or name a file\n",
    )


def test_the_age_of_a_snapshot_shows_that_nobody_looks(tmp_path: Path) -> None:
    """One that stands still is seen from outside: the SSD's own process, as its parent answers scrapes."""
    (tmp_path / "lab.toml").write_text(
        '[[ssd]]\nname = "ssd0"\nprofile = "unlimited"\nsize = "4M"\nvfio_user = "."\nisolate = true\n',
        encoding="utf-8",
    )
    with served(tmp_path, "--config", "lab.toml", "--interval", "50ms", "--metrics", "0") as (process, doors):
        url = doors["metrics http"]
        until_moved(url)
        child = servers()[0]["pid"]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        for pid in {int(one) for one in children} | ({child} - {process.pid}):
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(2)
            assert scraped(url)["snapshot_age"] > 1.5
        finally:
            for pid in {int(one) for one in children} | ({child} - {process.pid}):
                os.kill(pid, signal.SIGCONT)
        until_moved(url)
        assert stopped(process, signal.SIGTERM) == 0


def test_hosts_outlive_a_server_that_stood_still(tmp_path: Path) -> None:
    """Their Keep Alive lies in a socket while the server is stopped for longer than the timer runs."""
    with (
        served(tmp_path, "unlimited", "--size", "4M", "--tcp", "127.0.0.1:0") as (process, doors),
        RawHost(doors["ssd0 nvme-tcp"]) as host,
    ):
        host.attach(kato_ms=1_000)
        process.send_signal(signal.SIGSTOP)
        try:
            host.socket.sendall(command(0x18, 3))
            time.sleep(2.5)
        finally:
            process.send_signal(signal.SIGCONT)
        _, response = host.receive()
        assert int.from_bytes(response[14:16], "little") >> 1 == 0, "Keep Alive"
        assert host.ask(command(0x18, 4))[0] == 0
        assert stopped(process, signal.SIGTERM) == 0
