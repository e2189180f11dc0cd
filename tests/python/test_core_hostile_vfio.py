"""Clients of the vfio-user door that mean it ill, and tenants of both doors: the others notice nothing."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from hostile import IDENTIFY, READ, ROUNDS, WRITE, Server, drained, others_notice_nothing, reads, send, until
from raw_hosts import CAPSULE_RESP, RawHost, RawVfioHost, entry

FORMAT, NAMESPACE_MANAGEMENT = 0x80, 0x0D


def raw_vfio(server: Server) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(server.vfio)
    return connection


def message(kind: int, payload: bytes, *, length: int | None = None, flags: int = 0, number: int = 1) -> bytes:
    return struct.pack("<HHIII", number, kind, 16 + len(payload) if length is None else length, flags, 0) + payload


VERSION = message(1, struct.pack("<HH", 0, 1) + b"{}\0")


def messages_that_lie(server: Server) -> None:
    for kind in (*range(20), 0xFFFF):
        for length in (0, 15, 16, 17, 48, 0xFFFFFFFF):
            with raw_vfio(server) as connection:
                send(connection, VERSION + message(kind, bytes(32), length=length))
                connection.shutdown(socket.SHUT_WR)
                assert drained(connection)


def versions_that_are_none(server: Server) -> None:
    for text in (
        b"",
        b"{",
        b"{}",
        b"[" * 60000 + b"\0",
        b'{"capabilities":' * 3000 + b"\0",
        b'{"capabilities":{"max_msg_fds":-1}}\0',
        b"\xff\0",
    ):
        for major, minor in ((0, 1), (0xFFFF, 0xFFFF)):
            with raw_vfio(server) as connection:
                send(connection, message(1, struct.pack("<HH", major, minor) + text) + VERSION)
                connection.shutdown(socket.SHUT_WR)
                assert drained(connection)


def memory_that_is_none(server: Server) -> None:
    """Descriptors of everything that is no memory, and ranges that are none."""
    with ExitStack() as stack:
        guest = stack.enter_context(RawVfioHost(server.vfio))
        guest.enable()
        read_end, write_end = os.pipe()
        sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
        os.ftruncate(sealed, 1 << 20)
        fcntl.fcntl(sealed, 1033, 0xF & ~1)  # F_ADD_SEALS: neither shrinks, nor grows, nor can be written to
        paths = [("/dev/zero", os.O_RDWR), ("/dev/null", os.O_RDWR), ("/proc/self/mem", os.O_RDWR), ("/", os.O_RDONLY)]
        paths += [("/proc/self/maps", os.O_RDONLY), ("/", os.O_PATH), ("/etc/passwd", os.O_RDONLY)]
        fds = [read_end, write_end, sealed, *(os.open(path, flags) for path, flags in paths)]
        fds += [os.eventfd(0), socket.socketpair()[0].detach()]
        for fd in fds:
            for size in (4096, 1 << 40):
                with suppress(OSError):
                    guest.ask(guest.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 1 << 32, size), [fd])
                    # What is mapped, and cannot be used, is a failed transfer.
                    guest.admin(IDENTIFY, prp1=1 << 32, dwords=(1,))
                    guest.unmap(1 << 32, size)
            os.close(fd)
        ranges = ((0, 0), (0, 1), (1, 4096), (1 << 63, 1 << 63), ((1 << 64) - 4096, 8192), (0x1000, 4096), (0, 1 << 62))
        for iova, size in ranges:
            for offset in (0, 1, 4096, 1 << 62, (1 << 64) - 4096):
                with suppress(OSError):
                    guest.ask(guest.DMA_MAP, struct.pack("<IIQQQ", 32, 3, offset, iova, size), [guest.fd])
        assert guest.admin(IDENTIFY, prp1=0x310000, dwords=(1,))[0] == 0


def interrupts_that_are_none(server: Server) -> None:
    """Descriptors that are no eventfds, or are full; ranges and kinds of every size."""
    with RawVfioHost(server.vfio) as guest:
        guest.enable()
        full = os.eventfd(0, os.EFD_NONBLOCK)
        os.eventfd_write(full, 2**64 - 2)
        read_end, write_end = os.pipe()
        fds = [full, read_end, write_end, os.open("/dev/null", os.O_RDWR), os.open("/", os.O_RDONLY), guest.fd]
        for index in (0, 1, 2, 3, 4, 5, 0xFFFFFFFF):
            for start, count in ((0, 1), (0, 9), (8, 1), (9, 1), (0xFFFFFFFF, 2), (0, 0xFFFFFFFF)):
                for flags in (0x21, 0x22, 0x24, 0x3F, 0x0C, 0x14, 0):
                    payload = struct.pack("<IIIII", 20, flags, index, start, count)
                    with suppress(OSError):
                        guest.ask(8, payload, fds[: min(count, len(fds))])
        guest.create_queue(1, 0x200000, 16, 0x210000, 16)
        for number in range(15):
            at = 0x210000 + 64 * number
            guest.memory[at : at + 64] = entry(READ, number, nsid=1, prp1=0x300000, dwords=(0, 0, 7))
        guest.ring(1, 15)
        until(lambda: guest.memory[0x200000 + 16 * 14 + 14] & 1, "Reads wait for an interrupt that nobody takes")
        for fd in {full, read_end, write_end, *fds[3:5]}:
            os.close(fd)


def regions_of_every_kind(server: Server) -> None:
    """Accesses beyond regions, of every size, to configuration space, MSI-X table and registers."""
    with RawVfioHost(server.vfio) as guest:
        for region in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xFFFFFFFF):
            for offset in (0, 1, 0x10, 0x14, 0x34, 0x1000, 0x2000, 0x3FFC, 0x4000, (1 << 64) - 1, (1 << 63)):
                for count in (0, 1, 3, 8, 4096, 0xFFFFFFFF):
                    with suppress(OSError):
                        guest.ask(guest.REGION_READ, struct.pack("<QII", offset, region, count))
                    if count <= 4096 and not (region == 0 and offset == 0x20):
                        with suppress(OSError):
                            guest.ask(guest.REGION_WRITE, struct.pack("<QII", offset, region, count) + b"\xa5" * count)


def registers_that_flap(server: Server) -> None:
    """Enabled with queues that are nowhere, reset amid that, with the function's reset between."""
    with RawVfioHost(server.vfio) as guest:
        for number in range(ROUNDS):
            guest.write_register(0x24, (0xFFF0FFF, 0, 1, 0x1F001F)[number % 4])
            guest.write_register(0x28, (0x10000, 1 << 63, (1 << 64) - 4096, guest.MEMORY_BYTES - 4096)[number % 4], 8)
            guest.write_register(0x30, (0x20000, 0xFFFF000000000000, 0x10000, 0)[number // 4 % 4], 8)
            for value in (0x460001, 0x460000, 0x460001, 0x464001, 0x468001, 0x460001):
                guest.write_register(0x14, value)
                guest.ring(0, number)
            if number % 5 == 0:
                guest.ask(13, b"")  # DEVICE_RESET
            guest.write_register(0x14, 0x460000)
        until(lambda: guest.read_register(0x1C) & 1 == 0, "it is not disabled")


def pointers_in_circles(server: Server) -> None:
    """PRP lists that name themselves, queues as data, data as queues, and one memory for everything."""
    with RawVfioHost(server.vfio) as guest:
        guest.enable()
        guest.create_queue(1, 0x200000, 64, 0x200000, 64)  # its completions are its commands
        guest.create_queue(2, 0x220000, 64, 0x230000, 64)
        guest.memory[0x400000:0x401000] = struct.pack("<Q", 0x400000) * 512
        for number, (prp1, prp2) in enumerate(
            [
                (0x400000, 0x400000),
                (0x230000, 0x220000),
                (0x220000, 0x400000),
                (0x10000, 0x20000),
                (0x400FF8, 0x400FF8),
                (1, 2),
            ]
            * 8
        ):
            at = 0x230000 + 64 * number
            opcode = (READ, WRITE, 5, 8, 9, 0x0C, 0x19)[number % 7]
            guest.memory[at : at + 64] = entry(opcode, number, nsid=1, prp1=prp1, prp2=prp2, dwords=(4096, 0, 63))
        guest.ring(2, 48)
        guest.ring(1, 63)
        time.sleep(0.2)


def tenants_who_share_their_memory(server: Server) -> None:
    """Two clients with one memory, which one of them cuts while the other's Reads go there."""
    with RawVfioHost(server.vfio) as first, RawVfioHost(server.vfio) as second:
        second.unmap(0, second.MEMORY_BYTES)
        with suppress(OSError):
            second.ask(second.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 0, first.MEMORY_BYTES), [first.fd])
        second.memory, theirs = first.memory, second.memory
        first.enable()
        second.memory = theirs
        first.create_queue(1, 0x200000, 64, 0x210000, 64)
        for number in range(60):
            at = 0x210000 + 64 * number
            first.memory[at : at + 64] = entry(READ, number, nsid=1, prp1=0x800000, dwords=(0, 0, 7))
        first.ring(1, 30)
        os.ftruncate(first.fd, 0x300000)
        with suppress(OSError):
            first.ring(1, 60)
        os.ftruncate(first.fd, first.MEMORY_BYTES)
        with suppress(OSError):
            drained(first.socket, 1)


def two_who_speak_at_once(server: Server) -> None:
    """One connection in two processes' hands: halves of messages in any order."""
    with raw_vfio(server) as connection:
        send(connection, VERSION)
        for number in range(200):
            part = message(9, struct.pack("<QII", 0, 7, 4), number=number)
            send(connection, part[: number % len(part)])
        connection.shutdown(socket.SHUT_WR)
        assert drained(connection)


def descriptors_with_every_message(server: Server) -> None:
    """Descriptors where none belong, as many as one may send, again and again."""
    fds = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(16)])
    for count in (1, 8, 16):
        with raw_vfio(server) as connection:
            send(connection, VERSION)
            for number in range(20):
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds[:count])]
                with suppress(OSError):
                    connection.sendmsg([message(9, struct.pack("<QII", 0, 7, 4), number=number)], rights)
            drained(connection, 0.5)
    for fd in fds:
        os.close(fd)


def replies_to_no_question(server: Server) -> None:
    for flags in (1, 2, 0x10, 0x21, 0xFFFFFFFF):
        with raw_vfio(server) as connection:
            send(connection, VERSION + message(11, bytes(64), flags=flags) * 50)
            connection.shutdown(socket.SHUT_WR)
            assert drained(connection)


def memory_that_is_taken_away_amid_work(server: Server) -> None:
    """Mapped and unmapped under Reads, and punched full of holes."""
    with RawVfioHost(server.vfio) as guest:
        guest.enable()
        guest.create_queue(1, 0x200000, 64, 0x210000, 64)
        second = os.memfd_create("second")
        os.ftruncate(second, 1 << 20)
        tail = 0
        for number in range(ROUNDS):
            guest.ask(guest.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 1 << 32, 1 << 20), [second])
            for _ in range(20):
                at = 0x210000 + 64 * tail
                guest.memory[at : at + 64] = entry(READ, number, nsid=1, prp1=1 << 32, dwords=(0, 0, 7))
                tail = (tail + 1) % 64
            guest.ring(1, tail)
            guest.write_register(0x1000 + 12, tail)
            guest.unmap(1 << 32, 1 << 20)
        os.close(second)


def namespaces_that_come_and_go(server: Server) -> None:
    """Formats, protection, creation and deletion by one tenant, under another's Reads, by both doors."""
    with RawVfioHost(server.vfio) as guest, RawHost(server.tcp) as admin, RawHost(server.tcp) as io:
        guest.enable()
        cntlid = admin.attach(b"nqn.reads")
        io.initialize()
        assert io.connect(b"nqn.reads", qid=1, cntlid=cntlid)[0] == 0
        for number in range(ROUNDS):
            send(io.socket, reads(20, 4096))
            guest.memory[0x320000:0x321000] = struct.pack("<QQ", 8, 8) + bytes(4096 - 16)
            guest.admin(NAMESPACE_MANAGEMENT, prp1=0x320000)
            guest.admin(NAMESPACE_MANAGEMENT, nsid=2, dwords=(1,))
            assert guest.admin(FORMAT, nsid=1, dwords=(number % 2,))[0] == 0
            for protected in (1, 0):
                assert guest.admin(0x09, nsid=1, dwords=(0x84, protected))[0] == 0
            answered = 0
            while answered < 20:
                kind, body = io.receive()
                answered += kind == CAPSULE_RESP
                if kind == CAPSULE_RESP:
                    assert struct.unpack("<IIHHHH", body)[5] >> 1 & 0x7FF in (0, 0x84, 0x02, 0x0F)
        assert guest.admin(FORMAT, nsid=1, dwords=(0,))[0] == 0


def features_that_are_saved_without_end(server: Server) -> None:
    """Several tenants who save all that can be saved, and are gone before it is."""
    for _ in range(4):
        with ExitStack() as stack:
            guests = [stack.enter_context(RawVfioHost(server.vfio)) for _ in range(6)]
            for guest in guests:
                guest.enable()
                for number, feature in enumerate((1, 2, 4, 5, 0x0A, 0x0B)):
                    at = guest.ADMIN_SQ + 64 * number
                    guest.memory[at : at + 64] = entry(9, number, dwords=(feature | 1 << 31, 0))
                guest.ring(0, 6)


def scrapers_of_every_kind(server: Server) -> None:
    """Half requests, long ones, others' methods, and many who never read."""
    host, _, port = server.metrics.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    texts = (b"", b"G", b"GET /metrics HTTP/1.1\r\n", b"GET " + b"/" * 70000, b"POST / HTTP/1.1\r\n\r\n", b"\xff" * 100)
    with ExitStack() as stack:
        for number in range(60):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 10))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            send(connection, texts[number % len(texts)])


CASES = [
    raw_vfio,
    messages_that_lie,
    versions_that_are_none,
    memory_that_is_none,
    interrupts_that_are_none,
    regions_of_every_kind,
    registers_that_flap,
    pointers_in_circles,
    tenants_who_share_their_memory,
    two_who_speak_at_once,
    descriptors_with_every_message,
    replies_to_no_question,
    memory_that_is_taken_away_amid_work,
    namespaces_that_come_and_go,
    features_that_are_saved_without_end,
    scrapers_of_every_kind,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("hostile"))
    yield one
    one.end()


@pytest.mark.parametrize("attack", CASES, ids=lambda case: case.__name__)
def test_the_others_notice_nothing(server: Server, attack: Callable[[Server], None]) -> None:
    others_notice_nothing(server, attack)
