"""The NVMe/TCP door against hosts that mean it ill: the server stays, and so do its other hosts."""

from __future__ import annotations

import json
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from raw_hosts import (
    C2H_DATA,
    CAPSULE_RESP,
    DISCOVERY,
    IC_REQ,
    IC_RESP,
    PROPERTY_SET,
    R2T,
    TIMEOUT_S,
    RawHost,
    command,
    pdu,
)

CONTROLLER_BUSY, INVALID_PARAMETERS = 0x181, 0x182


@contextmanager
def served(
    folder: Path, *arguments: str, descriptors: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server process with an NVMe/TCP door and metrics: the process, and both addresses."""

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-m", "flashmob", "serve", "unlimited", "--size", "4M", "--interval", "50ms"]
    command += ["--tcp", "0", "--metrics", "0", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, text=True, stdout=pipe, stderr=pipe, preexec_fn=limit) as process:
        try:
            assert process.stdout is not None
            door = metrics = ""
            for line in process.stdout:
                if line == "ready\n":
                    break
                name, _, address = line.strip().partition(" ")
                if name == "metrics":
                    metrics = address
                else:
                    door = address
            else:
                assert process.stderr is not None
                pytest.fail(f"it never was ready: {process.stderr.read()}")
            yield process, door, metrics
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            if process.poll() is None:
                process.kill()


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    with served(tmp_path, "--json-log", "log.jsonl") as (process, door, metrics):
        for name in (b"nqn.\xff", b"nqn.\xed\xa0\x80", b"nqn.\x1b[2J"):
            with RawHost(door) as host:
                host.initialize()
                assert host.connect(name) == (INVALID_PARAMETERS, 1 << 16 | 512)
                assert host.connect(b"nqn.good")[0] == 0  # the connection is as good as before
                with urllib.request.urlopen(metrics, timeout=5) as answer:
                    answer.read().decode()
        with RawHost(door) as host:
            assert host.attach("nqn.café".encode())
            process.poll()
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert records[-1]["event"] == "stop"


def resident_bytes(process: subprocess.Popen[str]) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096


def test_answers_that_nobody_reads(tmp_path: Path) -> None:
    """Log pages are asked for without end, by a host that is on no list and reads nothing."""
    with served(tmp_path, "--host-nqn", "nqn.good") as (process, door, _), RawHost(door) as good, RawHost(door) as deaf:
        good.attach(b"nqn.good")
        deaf.initialize()
        assert deaf.connect(b"nqn.deaf", nqn=DISCOVERY)[0] == 0
        deaf.enable()
        before = resident_bytes(process)
        log_page = command(0x02, 7, dwords=(0x70 | 0x3FFF << 16,), wanted=65536)
        deaf.socket.settimeout(0.2)
        try:
            for _ in range(40):
                deaf.socket.sendall(log_page * 100)  # 256 MB of answers in all
        except TimeoutError:
            pass  # the target has stopped to read
        for cid in range(20):
            assert good.ask(command(0x06, 100 + cid, dwords=(1,), wanted=4096))[0] == 0
        assert resident_bytes(process) - before < 64 << 20
        # Who goes on to read gets every answer to what it has said.
        deaf.socket.settimeout(TIMEOUT_S)
        assert [deaf.receive()[0] for _ in range(200)] == [C2H_DATA, CAPSULE_RESP] * 100


def test_a_queue_for_which_there_is_no_memory(tmp_path: Path) -> None:
    with served(tmp_path) as (process, door, _), RawHost(door) as admin, RawHost(door) as io:
        cntlid = admin.attach()
        io.initialize()
        unlimited = resource.RLIM_INFINITY
        used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * 4096
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + (2 << 20), unlimited))
        try:
            answer = io.connect(b"nqn.raw", qid=1, cntlid=cntlid, entries=1024)
        finally:
            resource.prlimit(process.pid, resource.RLIMIT_AS, (unlimited, unlimited))
        assert answer == (CONTROLLER_BUSY, 0)
        assert io.connect(b"nqn.raw", qid=1, cntlid=cntlid, entries=1024)[0] == 0  # on the same connection


def large_writes(host: RawHost, count: int) -> None:
    """Writes of 1 MiB whose data the target is to ask for."""
    for cid in range(count):
        host.socket.sendall(command(0x01, 100 + cid, nsid=1, dwords=(0, 0, 2047), wanted=1 << 20))


@contextmanager
def io_queue(door: str, source: str) -> Iterator[RawHost]:
    with RawHost(door, source) as admin, RawHost(door, source) as io:
        cntlid = admin.attach()
        io.initialize()
        assert io.connect(b"nqn.raw", qid=1, cntlid=cntlid, entries=512)[0] == 0
        yield io


def test_data_that_nobody_sends(tmp_path: Path) -> None:
    """Five hosts have more asked for than there are buffers, and send none of it. All are one address."""
    with served(tmp_path) as (_, door, _), ExitStack() as stack:
        for number in range(2, 7):
            large_writes(stack.enter_context(io_queue(door, f"127.0.0.{number}")), 300)
        sixth = stack.enter_context(io_queue(door, "127.0.0.1"))
        large_writes(sixth, 1)
        assert sixth.receive()[0] == R2T


def address_besides_loopback() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])
    pytest.skip("this machine has no address besides its loopback's")


def test_an_address_full_of_associations(tmp_path: Path) -> None:
    """They stay as long as they like: no keep alive timer ends them. All addresses of the loopback count as one."""
    other = address_besides_loopback()
    with served(tmp_path, "--tcp", "0.0.0.0:0", descriptors=300) as (_, door, _), ExitStack() as stack:
        door = door.replace("0.0.0.0", "127.0.0.1")
        for number in range(2, 7):
            with suppress(OSError):  # until no more are taken
                for _ in range(60):
                    host = stack.enter_context(RawHost(door, f"127.0.0.{number}"))
                    host.socket.settimeout(3)
                    host.attach()
        sixth = stack.enter_context(RawHost(door.replace("127.0.0.1", other), other))
        sixth.socket.settimeout(5)
        assert sixth.attach()


def test_descriptors_that_run_out(tmp_path: Path) -> None:
    with served(tmp_path) as (process, door, _), RawHost(door) as before:
        before.attach()
        _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, most))
        with RawHost(door) as waiting:
            waiting.socket.sendall(pdu(IC_REQ, bytes(120)))
            for cid in range(20):
                assert before.ask(command(0x06, 100 + cid, dwords=(1,), wanted=4096))[0] == 0
                time.sleep(0.05)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
            assert waiting.receive()[0] == IC_RESP
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert process.stderr is not None
        assert process.stderr.read().count("cannot accept another connection now") == 1


FORMAT, NAMESPACE_MANAGEMENT, WRITE = 0x80, 0x0D, 0x01
INVALID_OPCODE, INVALID_FIELD, WRITE_PROTECTED, NO_CAPACITY = 0x01, 0x02, 0x20, 0x115
NSSR = 0x20


def test_a_shared_namespace_is_nobodys_to_manage(tmp_path: Path) -> None:
    """Unless somebody has been told so: what a host of the network finds with and without --allow manage."""
    reset = command(0x7F, 9, nsid=PROPERTY_SET, dwords=(0, NSSR, 0x4E564D65))
    with served(tmp_path) as (_, door, _), RawHost(door) as host:
        host.attach()
        assert host.ask(command(FORMAT, 1, nsid=1))[0] == INVALID_OPCODE
        assert host.ask(command(NAMESPACE_MANAGEMENT, 2, nsid=1, dwords=(1,)))[0] == INVALID_OPCODE
        assert host.ask(reset)[0] == INVALID_FIELD
        assert host.ask(command(0x06, 3, dwords=(1,), wanted=4096))[0] == 0
    with served(tmp_path, "--allow", "manage") as (_, door, _), RawHost(door) as host:
        host.attach()
        assert host.ask(command(FORMAT, 1, nsid=1))[0] == 0


def test_hosts_that_may_only_read(tmp_path: Path) -> None:
    with served(tmp_path, "--allow", "tcp=read-only") as (_, door, _), RawHost(door) as admin, RawHost(door) as io:
        cntlid = admin.attach()
        io.initialize()
        assert io.connect(b"nqn.raw", qid=1, cntlid=cntlid)[0] == 0
        assert io.ask(command(WRITE, 1, nsid=1, data=bytes(512)))[0] == WRITE_PROTECTED


def test_a_deleted_file_never_turns_into_memory(tmp_path: Path) -> None:
    """Nor does it grow what can be allocated; the file stays as it is."""
    media = ("--media", "file:disk", "--allow", "manage")
    with served(tmp_path, *media) as (_, door, _), RawHost(door) as host:
        host.attach()
        assert host.ask(command(NAMESPACE_MANAGEMENT, 1, nsid=1, dwords=(1,)))[0] == 0
        wanted = struct.pack("<QQ", 1, 1) + bytes(4096 - 16)
        assert host.ask(command(NAMESPACE_MANAGEMENT, 2, data=wanted))[0] == NO_CAPACITY
    assert (tmp_path / "disk").stat().st_size == 4 << 20
