"""A server with both doors, a host of each that goes on working, and what tests of hostile ones share."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from raw_hosts import RawHost, RawVfioHost, command, entry

ROUNDS = 40
WRITE, READ = 1, 2
IDENTIFY = 0x06


class Server:
    """The process, and what it holds."""

    def __init__(self, folder: Path) -> None:
        arguments = ["unlimited", "--size", "4M", "--tcp", "0", "--vfio-user", ".", "--metrics", "0"]
        arguments += ["--allow", "manage", "--media", f"file:{folder}/disk", "--interval", "100ms"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flashmob", "serve", *arguments],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
        )
        self.errors = folder / "errors"
        self.tcp = self.vfio = self.metrics = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            address = line.strip().rpartition(" ")[2]
            if address.startswith("nvme-tcp:"):
                self.tcp = address
            elif address.startswith("vfio-user:"):
                self.vfio = str(folder / address.removeprefix("vfio-user:"))
            elif address.startswith("http:"):
                self.metrics = address
            elif address == "ready":
                return
        pytest.fail(f"it never was ready: {self.errors.read_text()}")

    def end(self) -> None:
        """By SIGTERM, and without a word."""
        self.process.terminate()
        try:
            assert self.process.wait(timeout=20) == 0
        finally:
            self.process.kill()
        assert not self.errors.read_text()

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


class Victim:
    """A host of each door that goes on with what it does."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.guest = stack.enter_context(RawVfioHost(server.vfio))
        self.guest.enable()
        self.guest.create_queue(1, 0x200000, 64, 0x210000, 64)
        self.admin = stack.enter_context(RawHost(server.tcp))
        cntlid = self.admin.attach(b"nqn.victim")
        self.io = stack.enter_context(RawHost(server.tcp))
        self.io.initialize()
        assert self.io.connect(b"nqn.victim", qid=1, cntlid=cntlid)[0] == 0
        self.tail = self.round = 0

    def works(self) -> None:
        """Writes by one door and reads by the other, and asks both who they are."""
        self.round += 1
        data = struct.pack("<Q", self.round) * 512
        assert self.io.ask(command(WRITE, 2, nsid=1, dwords=(self.round % 8 * 8, 0, 7), data=data))[0] == 0
        at = 0x210000 + 64 * self.tail
        read = entry(READ, self.round & 0xFFF, nsid=1, prp1=0x300000, dwords=(self.round % 8 * 8, 0, 7))
        self.guest.memory[at : at + 64] = read
        place, phase = 0x200000 + 16 * self.tail, 1 - (self.round - 1) // 64 % 2
        self.tail = (self.tail + 1) % 64
        self.guest.ring(1, self.tail)
        until(lambda: self.guest.memory[place + 14] & 1 == phase, "a Read is not answered")
        assert struct.unpack_from("<H", self.guest.memory, place + 14)[0] >> 1 == 0
        self.guest.write_register(0x1000 + 12, self.tail)
        assert self.guest.memory[0x300000:0x301000] == data
        assert self.guest.admin(IDENTIFY, prp1=0x310000, dwords=(1,))[0] == 0
        assert self.admin.ask(command(IDENTIFY, 3, dwords=(1,), wanted=4096))[0] == 0


def until(found: Callable[[], object], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def send(connection: socket.socket, data: bytes) -> None:
    """What may be refused, or find that there is nobody any more."""
    with suppress(OSError):
        connection.sendall(data)


def drained(connection: socket.socket, timeout_s: float = 5) -> bool:
    """Whether the other side ends the connection, and does not merely say something."""
    connection.settimeout(timeout_s)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def reads(count: int, length: int) -> bytes:
    """Commands of an NVMe/TCP host that reads from the beginning."""
    return b"".join(command(READ, cid, nsid=1, dwords=(0, 0, length // 512 - 1), wanted=length) for cid in range(count))


def raw_tcp(server: Server) -> socket.socket:
    host, _, port = server.tcp.removeprefix("nvme-tcp:").partition("/")[0].rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def others_notice_nothing(server: Server, attack: Callable[[Server], None]) -> None:
    """Runs an attack beside hosts that work, and waits until what it held is given back."""
    assert server.process.poll() is None, "an earlier one has ended it"
    with ExitStack() as stack:
        victim = Victim(server, stack)
        victim.works()
        before = server.descriptors(), server.threads()
        attack(server)
        assert server.process.poll() is None, server.errors.read_text()
        for _ in range(3):
            victim.works()
        # What hostile ones held goes when the server sees that they have gone.
        until(lambda: server.descriptors() <= before[0] and server.threads() <= before[1] + 1, "something stays open")
    text = server.errors.read_text()
    assert "Traceback" not in text, text
