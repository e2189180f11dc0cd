"""The metrics' door against scrapers that are many, slow, or gone."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
from flashmob import metrics_door
from flashmob.metrics_door import MOST_CONNECTIONS, MetricsEndpoint
from flashmob.units import split_address


@pytest.fixture
def door() -> Iterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint("127.0.0.1:0")
    yield endpoint
    endpoint.close()


def connect(door: MetricsEndpoint) -> socket.socket:
    address = door.url.removeprefix("http://").removesuffix("/metrics")
    return socket.create_connection(split_address(address), timeout=60)


def scraped(door: MetricsEndpoint) -> str:
    with urllib.request.urlopen(door.url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def answer_to(connection: socket.socket) -> bytes:
    """What comes until the connection ends; b"" for one that is reset."""
    text = b""
    try:
        while more := connection.recv(1 << 16):
            text += more
    except ConnectionError:
        pass
    return text


def test_idle_connections_are_few(door: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_door, "REQUEST_S", 600.0)
    idle = [connect(door) for _ in range(MOST_CONNECTIONS)]
    for connection in idle:
        connection.sendall(b"G")
    beyond = [connect(door) for _ in range(5)]
    for connection in beyond:
        connection.settimeout(60)
        assert answer_to(connection).startswith(b"HTTP/1.0 503 "), "it is held like the others"
    for connection in [*idle, *beyond]:
        connection.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert "flashmob_valid" in scraped(door)
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("those who have left still count")


def test_nobody_who_hangs_outlives_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its threads hold of the compiled module would be reported as leaked when the process ends."""
    monkeypatch.setattr(metrics_door, "REQUEST_S", 600.0)
    door = MetricsEndpoint("127.0.0.1:0")
    before = {thread.ident for thread in threading.enumerate()}
    half = [connect(door) for _ in range(MOST_CONNECTIONS)]
    for connection in half:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
    deadline = time.monotonic() + 60
    while len({thread.ident for thread in threading.enumerate()} - before) < MOST_CONNECTIONS:
        assert time.monotonic() < deadline, "they are not served"
        time.sleep(0.01)
    door.close()
    left = [thread for thread in threading.enumerate() if thread.ident not in before]
    for thread in left:
        thread.join(60)  # One that is at its end.
    assert not any(thread.is_alive() for thread in left)
    assert door._known == ({}, {})
    for connection in half:
        connection.close()


def test_a_dripping_request_has_a_deadline(door: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_door, "REQUEST_S", 1.0)
    started_s = time.monotonic()
    with connect(door) as connection:
        connection.settimeout(0.1)
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        while time.monotonic() - started_s < 60:
            try:
                connection.sendall(b"X-Drip: x\r\n")
                if connection.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("it may drip for ever")
    assert time.monotonic() - started_s > 0.9


def test_a_scraper_that_hangs_up_is_no_news(
    door: MetricsEndpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than the sockets' buffers take, so that the answer is still being sent.
    monkeypatch.setattr(metrics_door, "prometheus_text", lambda *_: "x" * (32 << 20))
    for _ in range(3):
        with connect(door) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            connection.recv(100)
    with connect(door) as connection:
        connection.sendall(b"GET /no")
    monkeypatch.undo()
    deadline = time.monotonic() + 60
    while door._server._until_s and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not door._server._until_s
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_what_is_wrong_here_is_one_line(
    door: MetricsEndpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> str:
        raise KeyError("iops")

    monkeypatch.setattr(metrics_door, "prometheus_text", wrong)
    with connect(door) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert answer_to(connection) == b""
    assert capsys.readouterr().err == "note: metrics: a request could not be answered: KeyError('iops')\n"
