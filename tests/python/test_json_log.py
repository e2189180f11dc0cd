"""The JSON log: whatever it is written to, nobody waits for it."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from io import StringIO
from pathlib import Path

import pytest
from flashmob import ConfigError, json_log
from flashmob.json_log import JsonLog


def pipe(folder: Path) -> tuple[Path, int]:
    """A pipe with a name, and the reader's end of it."""
    path = folder / "log"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def within(seconds: float, work: threading.Thread) -> bool:
    work.daemon = True
    work.start()
    work.join(seconds)
    return not work.is_alive()


def test_a_reader_that_stands_still_costs_records_and_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_log, "_MOST_WAITING_BYTES", 1 << 16)
    path, reader = pipe(tmp_path)
    log = JsonLog(str(path), StringIO())

    def write() -> None:
        for number in range(4000):
            log.write("stats", number=number, filler="x" * 100)

    assert within(60, threading.Thread(target=write)), "it waits for a reader that does not read"
    assert capsys.readouterr().err == (
        "note: records are missing from the JSON log: whoever reads it, or its disk, does not keep up\n"
    )
    # What was taken comes when the reader reads again: whole lines, in order, from the first.
    text = b""
    until_s = time.monotonic() + 60
    while not log.flush(0.01) and time.monotonic() < until_s:
        if select.select([reader], [], [], 0.1)[0]:
            text += os.read(reader, 1 << 16)
    log.write("stop")
    assert log.flush(60)
    log.close()
    while more := os.read(reader, 1 << 16):
        text += more
    os.close(reader)
    records = [json.loads(line) for line in text.splitlines()]
    assert records[-1]["event"] == "stop"
    numbers = [record["number"] for record in records[:-1]]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert len(numbers) < 4000


def test_closing_does_not_wait_for_it_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, reader = pipe(tmp_path)
    log = JsonLog(str(path), StringIO())
    log.write("stats", filler="x" * 200_000)
    assert within(60, threading.Thread(target=log.close)), "it waits for a reader that does not read"
    assert "did not take the last lines" in capsys.readouterr().err
    os.close(reader)


def test_a_reader_that_reads_slowly_gets_the_last_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pipe is full at each look, because whoever writes fills it again at once."""
    path, reader = pipe(tmp_path)
    log = JsonLog(str(path), StringIO())
    for number in range(40):
        log.write("stats", number=number, filler="x" * 10_000)
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    text = b""
    while select.select([reader], [], [], 5)[0] and (more := os.read(reader, 4096)):
        text += more
        time.sleep(0.02)
    os.close(reader)
    closing.join(60)
    assert [json.loads(line)["number"] for line in text.splitlines()] == list(range(40))
    assert capsys.readouterr().err == ""


def test_a_disk_that_hangs_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaving is to take two seconds, of which this is what is left."""
    hangs = threading.Event()
    monkeypatch.setattr(json_log.os, "write", lambda *_: hangs.wait(60))
    log = JsonLog(str(tmp_path / "log"), StringIO())
    log.write("stop")
    begin = time.monotonic()
    log.close(0.4)
    assert time.monotonic() - begin < 5
    hangs.set()
    assert "did not take the last lines" in capsys.readouterr().err


def test_standard_output_that_is_closed_is_no_log() -> None:
    with pytest.raises(ConfigError) as raised:
        JsonLog("-", None)
    assert str(raised.value) == "JSON log - is standard output, and that is closed; leave it open, or name a file"


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    raised: list[ConfigError] = []

    def begin() -> None:
        try:
            JsonLog(str(tmp_path / "log"), StringIO())
        except ConfigError as error:
            raised.append(error)

    assert within(60, threading.Thread(target=begin)), "it waits for a reader, without a word"
    assert str(raised[0]) == (
        f"JSON log {tmp_path / 'log'} is a pipe that nobody reads; start its reader first, or name a file"
    )


def test_a_pipe_may_get_another_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, reader = pipe(tmp_path)
    log = JsonLog(str(path), StringIO())
    os.close(reader)
    for _ in range(3):
        log.write("stats")
    assert log.flush(60)
    assert capsys.readouterr().err == "note: records are missing from the JSON log: nobody reads it\n"
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log.write("stop")
    assert log.flush(60)
    log.close()
    assert json.loads(os.read(reader, 1 << 16))["event"] == "stop"
    os.close(reader)


def test_a_reader_of_standard_output_that_has_left_ends_the_process() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out:
        log = JsonLog("-", out)
        log.write("ready")
        assert log.flush(60)
        os.close(reader)
        log.write("stats")
        assert log.flush(60)
        with pytest.raises(BrokenPipeError):
            log.write("stats")
        log.close()


def test_half_a_line_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    real, calls = os.write, 0

    def half(handle: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        return real(handle, data[: len(data) // 2] if calls == 1 else data)

    monkeypatch.setattr(json_log.os, "write", half)
    log = JsonLog(str(path), StringIO())
    log.write("stats")
    log.write("stop")
    log.close()
    torn, whole = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(whole)["event"] == "stop"
    with pytest.raises(json.JSONDecodeError):
        json.loads(torn)


def test_half_a_line_of_an_earlier_run_does_not_either(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"event":"sta', encoding="utf-8")
    log = JsonLog(str(path), StringIO())
    log.write("ready")
    log.close()
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[1])["event"] == "ready"


def test_a_slow_disk_gets_the_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def slowly(handle: int, data: memoryview) -> int:
        time.sleep(0.8)
        return real(handle, data)

    monkeypatch.setattr(json_log.os, "write", slowly)
    log = JsonLog(str(tmp_path / "log"), StringIO())
    log.write("stats")
    log.write("stop")
    log.close()
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    assert events == ["stats", "stop"]


def test_nobody_is_told_where_that_would_have_to_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output and standard error are one pipe, and it is full."""
    reader, writer = os.pipe()
    monkeypatch.setattr(json_log, "_READER_S", 0.2)
    with os.fdopen(reader, "rb"), os.fdopen(writer, "w") as both:
        monkeypatch.setattr("sys.stderr", both)
        log = JsonLog("-", both)
        log.write("stats", filler="x" * (1 << 20))
        assert within(60, threading.Thread(target=log.close)), "its complaint waits for the reader"
