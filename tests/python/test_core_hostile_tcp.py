"""Hosts over NVMe/TCP that mean it ill, one after the other, at one server: its other hosts notice nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from hostile import IDENTIFY, READ, ROUNDS, Server, drained, others_notice_nothing, raw_tcp, send, until
from raw_hosts import CAPSULE_RESP, CONNECT, DISCOVERY, PROPERTY_GET, PROPERTY_SET, RawHost, command, pdu

GET_LOG, ABORT, EVENTS = 0x02, 0x08, 0x0C


def headers_that_lie(server: Server) -> None:
    """Lengths, offsets and kinds that do not fit, each on a connection of its own."""
    for kind in (0, 1, 2, 3, 4, 5, 6, 7, 9, 0xFF):
        for hlen, pdo, plen in ((0, 0, 0), (8, 0, 8), (255, 255, 0xFFFFFFFF), (128, 0, 127), (72, 4, 72)):
            with raw_tcp(server) as connection:
                send(connection, struct.pack("<BBBBI", kind, 0xFF, hlen, pdo, plen) + bytes(160))
                assert drained(connection)


def capsules_that_lie(server: Server) -> None:
    """As the second PDU: data offsets, digests that nobody agreed on, descriptors of every kind."""
    for hlen, pdo, plen in ((72, 72, 71), (72, 73, 80), (72, 200, 72), (64, 0, 72), (72, 72, 1 << 31)):
        with RawHost(server.tcp) as host:
            host.initialize()
            send(host.socket, struct.pack("<BBBBI", 4, 3, hlen, pdo, plen) + bytes(64))
            # One that is legal is a Connect without data, or waits for its rest.
            send(host.socket, bytes(8))
    with RawHost(server.tcp) as host:
        host.attach(b"nqn.sgl")
        for kind in range(256):
            sgl = struct.pack("<QI3xB", 1 << 63, 0xFFFFFFFF, kind)
            capsule = struct.pack("<BBHIQQ", IDENTIFY, 0x40, 9, 0, 0, 0) + sgl + struct.pack("<6I", 1, 0, 0, 0, 0, 0)
            assert host.ask(pdu(4, capsule))[0] != 0


def names_without_an_end(server: Server) -> None:
    """Connect data whose names fill their fields, are empty, or hold what no name holds."""
    for host_nqn in (b"", b"n" * 256, b"nqn.\0x", b"nqn.\x1b[2J", "nqn.ü".encode(), b"nqn." + b"y" * 252):
        with RawHost(server.tcp) as host:
            host.initialize()
            host.connect(host_nqn)
    with RawHost(server.tcp) as host:
        host.initialize()
        assert host.connect(b"nqn.x", nqn="z" * 256)[0] != 0


def connects_of_every_kind(server: Server) -> None:
    """Queues before there is a controller, of others' controllers, twice, of sizes that are none."""
    with RawHost(server.tcp) as owner, RawHost(server.tcp) as other:
        cntlid = owner.attach(b"nqn.owner")
        other.initialize()
        assert other.connect(b"nqn.thief", qid=1, cntlid=cntlid)[0] != 0
        for qid, entries in ((0, 1), (1, 1), (1, 65536), (0xFFFF, 32), (4095, 32)):
            with RawHost(server.tcp) as again:
                again.initialize()
                again.connect(b"nqn.owner", qid=qid, cntlid=cntlid, entries=entries)
        with RawHost(server.tcp) as first, RawHost(server.tcp) as second:
            first.initialize()
            second.initialize()
            assert first.connect(b"nqn.owner", qid=2, cntlid=cntlid)[0] == 0
            assert second.connect(b"nqn.owner", qid=2, cntlid=cntlid)[0] != 0
        assert owner.ask(command(0x7F, 2, nsid=CONNECT, dwords=(0, 31), data=bytes(1024)))[0] != 0


def properties_of_every_kind(server: Server) -> None:
    with RawHost(server.tcp) as host:
        host.attach(b"nqn.properties")
        for offset in (*range(0, 0x48, 4), 1, 0x1000, 0x1004, 0xFFFFFFFC, 0xFFFFFFFF):
            for size in (0, 1, 7):
                host.ask(command(0x7F, 4, nsid=PROPERTY_GET, dwords=(size, offset)))
                if offset != 0x14:
                    host.ask(command(0x7F, 4, nsid=PROPERTY_SET, dwords=(size, offset, 0xFFFFFFFF, 0xFFFFFFFF)))
        host.ask(command(0x7F, 4, nsid=PROPERTY_SET, dwords=(0, 0x14, 0xFFFFFFFF)))


def controllers_that_flap(server: Server) -> None:
    """CC.EN up and down without a look at CSTS, with queues and I/O."""
    with RawHost(server.tcp) as admin:
        cntlid = admin.attach(b"nqn.flaps")
        for number in range(ROUNDS):
            with RawHost(server.tcp) as io:
                io.initialize()
                io.connect(b"nqn.flaps", qid=1, cntlid=cntlid)
                send(
                    io.socket,
                    b"".join(command(READ, cid, nsid=1, dwords=(0, 0, 63), wanted=32768) for cid in range(30)),
                )
                for value in (0x460000, 0x460001, 0x464001, 0x460000, 0x460001)[: 3 + number % 3]:
                    admin.ask(command(0x7F, 5, nsid=PROPERTY_SET, dwords=(0, 0x14, value)))
            admin.ask(command(0x7F, 5, nsid=PROPERTY_SET, dwords=(0, 0x14, 0x460000)))
            until(lambda: admin.ask(command(0x7F, 6, nsid=PROPERTY_GET, dwords=(0, 0x1C)))[1] & 1 == 0, "not disabled")
            admin.enable()


def events_and_aborts(server: Server) -> None:
    """More event requests than there may be, and aborts of everything."""
    with RawHost(server.tcp) as host:
        host.attach(b"nqn.events")
        send(host.socket, b"".join(command(EVENTS, 100 + n) for n in range(20)))
        for cid in range(200):
            send(host.socket, command(ABORT, 500, dwords=(cid << 16 | cid % 3,)))
            kind, _ = host.receive()
            assert kind == CAPSULE_RESP


def logs_that_are_endless(server: Server) -> None:
    with RawHost(server.tcp) as host:
        host.attach(b"nqn.logs")
        for page in (*range(8), 0x70, 0x80, 0xFF):
            for low, high, offset in ((0xFFFF0000 | page, 0xFFFF, 0), (page | 0x3FF << 16, 0, (1 << 64) - 4)):
                dwords = (low, high, offset & 0xFFFFFFFF, offset >> 32)
                host.ask(command(GET_LOG, 7, nsid=0xFFFFFFFF, dwords=dwords, wanted=4096))


def identifies_of_everything(server: Server) -> None:
    with RawHost(server.tcp) as host:
        host.attach(b"nqn.identify")
        for cns in range(0x20):
            for nsid in (0, 1, 256, 257, 0xFFFFFFFE, 0xFFFFFFFF):
                host.ask(command(IDENTIFY, 8, nsid=nsid, dwords=(cns | 0xFFFF0000, 0xFFFF), wanted=4096))


def data_for_nobody(server: Server) -> None:
    """H2CData that nobody has asked for, and a termination of garbage."""
    for body in (
        struct.pack("<BBBBI", 6, 4, 24, 24, 24 + 4096) + struct.pack("<HHII4x", 1, 7, 0, 4096) + bytes(4096),
        struct.pack("<BBBBI", 2, 0, 24, 0, 24 + 128) + b"\xff" * 144,
        struct.pack("<BBBBI", 3, 0, 24, 0, 24 + 128) + b"\xff" * 144,
    ):
        with RawHost(server.tcp) as host:
            host.attach(b"nqn.data")
            send(host.socket, body)
            assert drained(host.socket)


def half_closed_amid_work(server: Server) -> None:
    """Connections that are shut for writing, reset, or have urgent data, with Reads on their way."""
    for how in ("half", "reset", "urgent", "both"):
        with RawHost(server.tcp) as admin, RawHost(server.tcp) as io:
            cntlid = admin.attach(b"nqn.leaves")
            io.initialize()
            assert io.connect(b"nqn.leaves", qid=1, cntlid=cntlid)[0] == 0
            send(
                io.socket, b"".join(command(READ, cid, nsid=1, dwords=(0, 0, 255), wanted=131072) for cid in range(30))
            )
            if how == "half":
                io.socket.shutdown(socket.SHUT_WR)
                assert drained(io.socket)
            elif how == "urgent":
                io.socket.send(b"!", socket.MSG_OOB)
            elif how == "reset":
                io.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                admin.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                admin.socket.close()
                assert drained(io.socket), "its association has ended"


def answers_by_the_byte(server: Server) -> None:
    """Windows of hardly anything, and 4 MiB of answers that nobody takes."""
    with RawHost(server.tcp) as admin:
        cntlid = admin.attach(b"nqn.window")
        host, _, port = server.tcp.removeprefix("nvme-tcp:").partition("/")[0].rpartition(":")
        with RawHost(server.tcp) as io:
            io.socket.close()
            io.socket = socket.socket()
            io.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            io.socket.settimeout(10)
            io.socket.connect((host, int(port)))
            io.initialize()
            assert io.connect(b"nqn.window", qid=1, cntlid=cntlid)[0] == 0
            send(
                io.socket, b"".join(command(READ, cid, nsid=1, dwords=(0, 0, 255), wanted=131072) for cid in range(30))
            )
            for _ in range(100):
                assert io.socket.recv(1)


def discovery_without_end(server: Server) -> None:
    """Hosts that ask the discovery controller for what it does not have, and come and go."""
    for number in range(ROUNDS):
        with RawHost(server.tcp) as host:
            host.initialize()
            assert host.connect(b"nqn.curious", nqn=DISCOVERY)[0] == 0
            host.enable()
            if number % 4 == 0:
                for opcode in (*range(0x20), 0x80, 0x84, 0xFF):
                    if opcode != EVENTS:
                        host.ask(command(opcode, 3, nsid=0xFFFFFFFF, dwords=(0xFFFFFFFF,) * 6, wanted=64))
                send(host.socket, b"".join(command(EVENTS, n) for n in range(100)))
            with RawHost(server.tcp) as queue:
                queue.initialize()
                assert queue.connect(b"nqn.curious", nqn=DISCOVERY, qid=1, cntlid=number)[0] != 0


def authentication_of_nobody(server: Server) -> None:
    """Security commands where there is no secret, before Connect and after."""
    with RawHost(server.tcp) as host:
        host.initialize()
        send(host.socket, command(0x7F, 1, nsid=5, dwords=(0xE9 << 24 | 0x0101 << 8, 1 << 20), data=bytes(512)))
        assert host.ask(command(0x7F, 2, nsid=6, dwords=(0xE9 << 24 | 0x0101 << 8, 4096), wanted=4096))[0] != 0


def handshakes_of_another_protocol(server: Server) -> None:
    """TLS, HTTP and a key exchange, where NVMe/TCP is spoken in the clear."""
    for text in (b"\x16\x03\x01\x40\x00" + bytes(0x4000), b"GET / HTTP/1.1\r\n\r\n" * 9, b"SSH-2.0-x\r\n" * 20):
        with raw_tcp(server) as connection:
            send(connection, text)
            assert drained(connection)


def keep_alives_that_end(server: Server) -> None:
    """The shortest keep alive timer: its host is dropped, with its queues."""
    with RawHost(server.tcp) as admin, RawHost(server.tcp) as io:
        cntlid = admin.attach(b"nqn.asleep", kato_ms=1)
        io.initialize()
        io.connect(b"nqn.asleep", qid=1, cntlid=cntlid)
        assert drained(admin.socket, 20)
        assert drained(io.socket, 20)


CASES = [
    headers_that_lie,
    capsules_that_lie,
    names_without_an_end,
    connects_of_every_kind,
    properties_of_every_kind,
    controllers_that_flap,
    events_and_aborts,
    logs_that_are_endless,
    identifies_of_everything,
    data_for_nobody,
    half_closed_amid_work,
    answers_by_the_byte,
    discovery_without_end,
    authentication_of_nobody,
    handshakes_of_another_protocol,
    keep_alives_that_end,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("hostile"))
    yield one
    one.end()


@pytest.mark.parametrize("attack", CASES, ids=lambda case: case.__name__)
def test_the_others_notice_nothing(server: Server, attack: Callable[[Server], None]) -> None:
    others_notice_nothing(server, attack)
