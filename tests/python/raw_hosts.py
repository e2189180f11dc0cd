"""Hosts that say what one wants them to say, legal or not: over NVMe/TCP, and over vfio-user.

For tests, and for bench/attacks.py.
"""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType

IC_REQ, IC_RESP, CAPSULE_CMD, CAPSULE_RESP, C2H_DATA, R2T = 0x00, 0x01, 0x04, 0x05, 0x07, 0x09
CONNECT, PROPERTY_SET, PROPERTY_GET = 0x01, 0x00, 0x04
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
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


def entry(opcode: int, cid: int, *, nsid: int = 0, prp1: int = 0, prp2: int = 0, dwords: tuple[int, ...] = ()) -> bytes:
    """A submission queue entry with PRPs."""
    dwords = (*dwords, *[0] * (6 - len(dwords)))
    return struct.pack("<BBHIQQQQ6I", opcode, 0, cid, nsid, 0, 0, prp1, prp2, *dwords)


class RawVfioHost:
    """A client of the vfio-user door, with one admin queue and what its caller makes of its memory.

    Doorbells are rung by messages. Without `shares`, the server asks for its memory by messages, and finds it empty.
    """

    MEMORY_BYTES = 16 << 20
    ADMIN_SQ, ADMIN_CQ, ADMIN_ENTRIES = 0x10000, 0x20000, 32
    QUEUES = 0x100000  # from here on, the caller's
    VERSION, DMA_MAP, DMA_UNMAP, REGION_READ, REGION_WRITE = 1, 2, 3, 9, 10

    def __init__(self, path: str, *, shares: bool = True) -> None:
        self.fd = os.memfd_create("host")
        os.ftruncate(self.fd, self.MEMORY_BYTES)
        self.memory = mmap.mmap(self.fd, self.MEMORY_BYTES)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(path)
        self._message_id = self._tail = self._head = self._cid = 0
        self._phase = 1
        self.ask(self.VERSION, struct.pack("<HH", 0, 1) + b"{}\0")
        self.map(0, self.MEMORY_BYTES, shares)

    def close(self) -> None:
        self.socket.close()
        self.memory.close()
        os.close(self.fd)

    def __enter__(self) -> RawVfioHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, command: int, payload: bytes, fds: Sequence[int] = ()) -> bytes:
        """One message and the payload of its reply; what the server asks meanwhile is answered with zeroes."""
        self._message_id = (self._message_id + 1) & 0xFFFF
        header = struct.pack("<HHIII", self._message_id, command, 16 + len(payload), 0, 0)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([header + payload], rights)
        while True:
            number, asked, length, flags, error = struct.unpack("<HHIII", self._exactly(16))
            body = self._exactly(length - 16)
            if flags & 0xF == 0:
                address, count = struct.unpack_from("<QQ", body)
                data = bytes(count) if asked == 11 else b""  # DMA_READ
                reply = struct.pack("<QQ", address, count) + data
                self.socket.sendall(struct.pack("<HHIII", number, asked, 16 + len(reply), 1, 0) + reply)
            elif flags & 0x20:
                raise OSError(error, os.strerror(error))
            else:
                return body

    def map(self, iova: int, size: int, shares: bool = True) -> None:
        self.ask(self.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, iova, size), [self.fd] if shares else ())

    def unmap(self, iova: int, size: int) -> None:
        self.ask(self.DMA_UNMAP, struct.pack("<IIQQ", 24, 0, iova, size))

    def read_register(self, offset: int) -> int:
        return int.from_bytes(self.ask(self.REGION_READ, struct.pack("<QII", offset, 0, 4))[16:20], "little")

    def write_register(self, offset: int, value: int, size: int = 4) -> None:
        self.ask(self.REGION_WRITE, struct.pack("<QII", offset, 0, size) + value.to_bytes(size, "little"))

    def ring(self, qid: int, tail: int) -> None:
        """The doorbell of a submission queue."""
        self.write_register(0x1000 + 8 * qid, tail)

    def enable(self, *, all_command_sets: bool = False) -> None:
        entries = self.ADMIN_ENTRIES - 1
        self.write_register(0x24, entries | entries << 16)
        self.write_register(0x28, self.ADMIN_SQ, 8)
        self.write_register(0x30, self.ADMIN_CQ, 8)
        self.write_register(0x14, 0x460061 if all_command_sets else 0x460001)
        self._wait_until_ready(1)

    def disable(self) -> None:
        self.write_register(0x14, 0x460000)
        self._wait_until_ready(0)

    def admin(self, opcode: int, *, nsid: int = 0, prp1: int = 0, dwords: tuple[int, ...] = ()) -> tuple[int, int]:
        """Status and DW0 of an admin command."""
        self._cid += 1
        at = self.ADMIN_SQ + 64 * self._tail
        self.memory[at : at + 64] = entry(opcode, self._cid & 0xFFF, nsid=nsid, prp1=prp1, dwords=dwords)
        self._tail = (self._tail + 1) % self.ADMIN_ENTRIES
        self.ring(0, self._tail)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            # The word with the phase bit first: only what is read after it belongs to the same entry.
            at = self.ADMIN_CQ + 16 * self._head
            (status,) = struct.unpack_from("<H", self.memory, at + 14)
            if status & 1 != self._phase:
                time.sleep(0.0005)
                continue
            (dw0,) = struct.unpack_from("<I", self.memory, at)
            self._head = (self._head + 1) % self.ADMIN_ENTRIES
            if self._head == 0:
                self._phase ^= 1
            self.write_register(0x1004, self._head)
            return status >> 1 & 0x7FF, dw0
        raise TimeoutError("an admin command is not answered")

    def create_queue(self, qid: int, cq: int, cq_entries: int, sq: int, sq_entries: int) -> None:
        for opcode, at, entries, word in ((0x05, cq, cq_entries, 1), (0x01, sq, sq_entries, 1 | qid << 16)):
            status, _ = self.admin(opcode, prp1=at, dwords=(qid | (entries - 1) << 16, word))
            if status != 0:
                raise OSError(f"a queue of {entries} entries is refused: {status:#x}")

    def _wait_until_ready(self, ready: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.read_register(0x1C) & 1 != ready:
            if time.monotonic() > deadline:
                raise TimeoutError("the controller does not get ready")
            time.sleep(0.0005)

    def _exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise ConnectionResetError("the server has closed the connection")
            out += piece
        return out
