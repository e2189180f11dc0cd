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
from types import TracebackType

import pytest

IC_REQ, IC_RESP, CAPSULE_CMD, CAPSULE_RESP, C2H_DATA, R2T = 0x00, 0x01, 0x04, 0x05, 0x07, 0x09
CONNECT, PROPERTY_SET, PROPERTY_GET = 0x01, 0x00, 0x04
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
CONTROLLER_BUSY, INVALID_PARAMETERS = 0x181, 0x182
TIMEOUT_S = 10


def pdu(kind: int, header: bytes, data: bytes = b"") -> bytes:
    """A PDU without digests."""
    length = 8 + len(header)
    return struct.pack("<BBBBI", kind, 0, length, length if data else 0, length + len(data)) + header + data


def command(
    opcode: int, cid: int, *, nsid: int = 0, dwords: tuple[int, ...] = (), data: bytes = b"", wanted: int = 0
) -> bytes:
    """A command capsule: data goes in the capsule, `wanted` bytes come back or are asked for by R2T."""
    sgl = struct.pack("<QI3xB", 0, len(data) or wanted, 0x01 if data else 0x5A)
    entry = struct.pack("<BBHIQQ", opcode, 0x40, cid, nsid, 0, 0) + sgl
    return pdu(CAPSULE_CMD, entry + struct.pack("<6I", *(*dwords, *[0] * (6 - len(dwords)))), data)


class RawHost:
    """One connection of an NVMe/TCP host that says what the tests want it to say, legal or not."""

    def __init__(self, address: str, source: str = "127.0.0.1") -> None:
        """Connects to "nvme-tcp:HOST:PORT/NQN" from an address of this machine."""
        place, _, self.nqn = address.removeprefix("nvme-tcp:").partition("/")
        name, _, port = place.rpartition(":")
        self.socket = socket.create_connection((name, int(port)), TIMEOUT_S, source_address=(source, 0))

    def __enter__(self) -> RawHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def receive(self) -> tuple[int, bytes]:
        """The next PDU: its type, and what follows the common header."""
        kind, _, _, _, length = struct.unpack("<BBBBI", self._exactly(8))
        return kind, self._exactly(length - 8)

    def closed(self) -> bool:
        """Whether the target has ended the connection, before long."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def initialize(self) -> None:
        """ICReq and ICResp."""
        self.socket.sendall(pdu(IC_REQ, bytes(120)))
        kind, _ = self.receive()
        assert kind == IC_RESP

    def connect(
        self, host_nqn: bytes, *, nqn: str = "", qid: int = 0, cntlid: int = 0xFFFF, entries: int = 32, kato_ms: int = 0
    ) -> tuple[int, int]:
        """Connect: status and DW0, which is the controller's identifier where it succeeds."""
        data = bytearray(1024)
        struct.pack_into("<H", data, 16, cntlid)
        for at, text in ((256, (nqn or self.nqn).encode()), (512, host_nqn)):
            data[at : at + len(text)] = text
        dwords = (qid << 16, entries - 1, kato_ms)
        return self.ask(command(0x7F, 1, nsid=CONNECT, dwords=dwords, data=bytes(data)))

    def enable(self) -> None:
        """CC.EN, with entries of the usual sizes, and until CSTS.RDY."""
        status, _ = self.ask(command(0x7F, 2, nsid=PROPERTY_SET, dwords=(0, 0x14, 0x460001)))
        assert status == 0
        while self.ask(command(0x7F, 2, nsid=PROPERTY_GET, dwords=(0, 0x1C)))[1] & 1 == 0:
            time.sleep(0.01)

    def attach(self, host_nqn: bytes = b"nqn.raw", kato_ms: int = 0) -> int:
        """An admin queue with its controller enabled. The controller's identifier."""
        self.initialize()
        status, cntlid = self.connect(host_nqn, kato_ms=kato_ms)
        assert status == 0
        self.enable()
        return cntlid & 0xFFFF

    def ask(self, capsule: bytes) -> tuple[int, int]:
        """Status and DW0 of a command; data that comes is dropped."""
        self.socket.sendall(capsule)
        while True:
            kind, body = self.receive()
            if kind == CAPSULE_RESP:
                dw0, _, _, _, _, status = struct.unpack("<IIHHHH", body)
                return (status >> 1) & 0x7FF, dw0

    def _exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise ConnectionResetError("the target has closed the connection")
            out += piece
        return out


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
    """Five hosts have more asked for than there are buffers, and send none of it."""
    with served(tmp_path) as (_, door, _), ExitStack() as stack:
        for number in range(2, 7):
            large_writes(stack.enter_context(io_queue(door, f"127.0.0.{number}")), 300)
        sixth = stack.enter_context(io_queue(door, "127.0.0.1"))
        large_writes(sixth, 1)
        assert sixth.receive()[0] == R2T


def test_five_addresses_full_of_associations(tmp_path: Path) -> None:
    """They stay as long as they like: no keep alive timer ends them."""
    with served(tmp_path, descriptors=300) as (_, door, _), ExitStack() as stack:
        for number in range(2, 7):
            with suppress(OSError):  # until no more are taken
                for _ in range(60):
                    host = stack.enter_context(RawHost(door, f"127.0.0.{number}"))
                    host.socket.settimeout(3)
                    host.attach()
        sixth = stack.enter_context(RawHost(door))
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
