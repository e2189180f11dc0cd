"""Names of served SSDs: one holder each, nothing left of the dead, nothing taken from strangers."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flashmob import registry
from flashmob.errors import ConfigError
from flashmob.registry import NameTakenError, UnusableError, claim, folders, server, servers

STATE = {"profile": "unlimited", "addresses": [], "stats": {}}


def folder() -> Path:
    return folders()[0]


@contextmanager
def other_process(name: str, *, publish: bool = True) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a name, and has said so if `publish`."""
    program = textwrap.dedent(f"""
        import sys, time
        from flashmob.registry import claim
        held = claim({name!r})
        if {publish}:
            held.publish({STATE!r})
        print("held", flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_name_has_one_holder(runtime_folder: Path) -> None:
    with other_process("a") as other:
        with pytest.raises(NameTakenError, match=f"a is served by process {other.pid} already.*--name") as raised:
            claim("a")
        assert raised.value.state["profile"] == "unlimited"
        claim("b").release()
        other.kill()
        other.wait()
        assert servers() == [], "a lock ends with its process, however that ends"
        assert list(folder().iterdir()) == []
        held = claim("a")
    assert stat.S_IMODE(folder().stat().st_mode) == 0o700
    assert folder().is_relative_to(runtime_folder)
    held.release()
    held.release()
    assert list(folder().iterdir()) == []


def test_a_process_that_was_stopped_does_not_answer(runtime_folder: Path) -> None:
    """At once, however fresh its news."""
    assert runtime_folder
    with other_process("a") as other:
        assert not registry.is_stopped(server("a"))
        other.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED)
        assert registry.is_stopped(server("a"))
        other.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, other.pid, os.WCONTINUED)
        assert not registry.is_stopped(server("a"))
    assert not registry.is_stopped({"pid": 1 << 30})


def test_many_that_want_a_name_at_once(tmp_path: Path) -> None:
    program = "from flashmob.registry import claim; import time; claim('a'); print('held', flush=True); time.sleep(3)"
    crowd = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(6)
    ]
    held = [process.communicate()[0] for process in crowd]
    assert sorted(held) == [b""] * 5 + [b"held\n"]


def test_what_a_server_says_is_read_whole() -> None:
    held = claim("a")
    assert servers() == [], "one that has not said anything yet is not shown"
    held.publish(STATE)
    held.publish(STATE | {"profile": "changed"})
    assert server("a")["profile"] == "changed"
    assert server("a")["pid"] == os.getpid()
    assert sorted(path.name for path in folder().iterdir()) == ["a.json", "a.lock"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder().iterdir())
    assert registry.silent_s(server("a")) < 5
    with pytest.raises(ConfigError, match="no SSD called b is served: there is a"):
        server("b")
    held.release()
    with pytest.raises(ConfigError, match="`flashmob serve` starts one"):
        server("a")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema":"other"}', '{"schema":"flashmob-server","schema_version":99,"name":"a"}', "\0"]
)
def test_a_state_that_we_did_not_write_is_none(text: str) -> None:
    held = claim("a")
    held.publish(STATE)
    (folder() / "a.json").write_text(text)
    assert servers() == []
    held.release()


def test_what_a_dead_server_left_is_cleared_away() -> None:
    claim("a").release()
    for name in ("a.json", "a.json.new", "a.lock", "b.json"):
        (folder() / name).write_text(json.dumps({"schema": "flashmob-server", "schema_version": 1, "name": "a"}))
    assert servers() == []
    assert list(folder().iterdir()) == []


def test_a_lock_that_was_removed_is_not_the_lock() -> None:
    first = claim("a")
    (folder() / "a.lock").unlink()
    second = claim("a")
    first.release()
    second.publish(STATE)
    assert server("a")["pid"] == os.getpid(), "the former holder takes nothing of the new one's along"
    second.release()


def test_links_are_not_followed(tmp_path: Path) -> None:
    held = claim("a")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder() / "a.json.new").symlink_to(victim)
    with pytest.raises(OSError, match=r"[Ss]ymbolic|loop"):
        held.publish(STATE)
    (folder() / "a.json").symlink_to(victim)
    assert servers() == []
    held.release()
    (folder() / "b.lock").symlink_to(victim)
    with pytest.raises(UnusableError):
        claim("b")
    assert victim.read_text() == "precious"


def test_folders_of_others_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for mode, words in ((0o755, "open to other users; chmod 700"), (0o770, "open to other users")):
        there = tmp_path / oct(mode)
        there.mkdir()
        there.chmod(mode)
        monkeypatch.setattr(registry, "folders", lambda there=there: [there])
        with pytest.raises(UnusableError, match=words):
            claim("a")
        assert servers() == []
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.setattr(registry, "folders", lambda: [link])
    with pytest.raises(UnusableError):
        claim("a")
    mine = tmp_path / "mine"
    mine.mkdir(0o700)
    monkeypatch.setattr(registry, "folders", lambda: [mine])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnusableError, match="belongs to another user"):
        claim("a")


def test_a_session_that_others_can_write_to_is_not_used(runtime_folder: Path) -> None:
    assert folders()[0].parent == runtime_folder
    runtime_folder.chmod(0o777)
    assert folders()[0].parent != runtime_folder
    assert folders()[-1] == Path(f"/tmp/flashmob-{os.geteuid()}")


def test_a_name_that_is_held_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session, fallback = tmp_path / "session", tmp_path / "fallback"
    monkeypatch.setattr(registry, "folders", lambda: [fallback])
    held = claim("a")  # Before its user has logged in.
    held.publish(STATE)
    monkeypatch.setattr(registry, "folders", lambda: [session, fallback])
    assert [state["name"] for state in servers()] == ["a"]
    with pytest.raises(NameTakenError):
        claim("a")
    held.release()


def test_readers_do_not_take_names_away() -> None:
    program = "from flashmob.registry import servers\nwhile True: servers()"
    claim("a").release()
    readers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            held = claim("a")
            held.publish(STATE)
            assert server("a")
            held.release()
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
