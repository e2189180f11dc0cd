"""Hosts that abuse TLS, before they have proved who they are and after: others notice nothing, and nothing is kept."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest
from hostile import drained, until
from raw_hosts import IC_REQ, RawHost, command, pdu
from test_core_tls import HOST, key_file, place_of, served, tls_psk
from tls_hosts import RawTlsHost, TlsSocket, openssl

IDENTIFY = 0x06
HANDSHAKE, ALERT, DATA = 0x16, 0x15, 0x17
MANY = 200
ATTACKER = "127.0.0.2"

try:
    openssl()
except OSError:
    pytest.skip("there is no libssl.so.3", allow_module_level=True)


class Site:
    """A server that talks TLS alone, and a host that goes on with what it does."""

    def __init__(self, process: subprocess.Popen[str], door: str, key: bytes, stack: ExitStack) -> None:
        self.process = process
        self.door = door
        identity, psk = tls_psk(key, HOST, place_of(door)[2])
        self.identity, self.psk = identity, bytes.fromhex(psk)
        self.victim = stack.enter_context(RawTlsHost(door, self.identity, self.psk))
        self.victim.attach(HOST.encode())

    def works(self) -> None:
        """The victim's connection does, and a new one."""
        assert self.process.poll() is None
        assert self.victim.ask(command(IDENTIFY, 3, dwords=(1,), wanted=4096))[0] == 0
        with RawTlsHost(self.door, self.identity, self.psk) as another:
            another.initialize()

    def plain(self) -> socket.socket:
        """A connection of the attacker's without TLS."""
        host, port, _ = place_of(self.door)
        return socket.create_connection((host, port), 10, source_address=(ATTACKER, 0))

    def host(self) -> RawTlsHost:
        """A connection of the attacker's with TLS: he is one who knows the key."""
        return RawTlsHost(self.door, self.identity, self.psk, ATTACKER)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, key = tmp_path_factory.mktemp("tls"), os.urandom(32)
    arguments = ("--tls", "required", "--tls-key", key_file(folder, key))
    with served(folder, *arguments) as (process, door), ExitStack() as hosts:
        yield Site(process, door, key, hosts)


def record(kind: int, data: bytes, length: int = -1) -> bytes:
    """A record as it goes over the wire in the clear, of any length that it says it has."""
    return struct.pack(">BHH", kind, 0x0301, len(data) if length < 0 else length) + data


def client_hello(site: Site, identity: bytes = b"") -> bytes:
    """The message, without its record: OpenSSL's, with another identity of the same length put in place of ours."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), 10)
        there, _ = listener.accept()

    def shake() -> None:
        with suppress(ConnectionError):
            TlsSocket(ours, site.identity, site.psk)

    thread = Thread(target=shake)
    thread.start()
    with there:
        head = there.recv(5, socket.MSG_WAITALL)
        message = there.recv(struct.unpack(">H", head[3:])[0], socket.MSG_WAITALL)
    thread.join()
    name = site.identity.encode()
    assert name in message
    return message.replace(name, identity.ljust(len(name), b"\0")[: len(name)]) if identity else message


# --- What they do: each returns when it has done so ---


def half_handshakes(site: Site) -> None:
    hello = record(HANDSHAKE, client_hello(site))
    with ExitStack() as stack:
        for number in range(MANY):
            one = stack.enter_context(site.plain())
            with suppress(OSError):  # the oldest of them may have been sent away
                one.sendall(hello[: 1 + number % (len(hello) - 1)])
        site.works()


def handshakes_that_stop_before_finished(site: Site) -> None:
    hello = record(HANDSHAKE, client_hello(site))
    with ExitStack() as stack:
        for _ in range(MANY // 4):
            one = stack.enter_context(site.plain())
            one.sendall(hello)
            one.recv(1)  # the server's answer begins
        site.works()


def identities_of_nobody(site: Site) -> None:
    for identity in (b"\xff" * 300, b"NVMe1R01 ", b"NVMe0R02 a b", b"NVMe1R01 " + b"\xfe" * 50 + b" x y", b"%s%n" * 40):
        with site.plain() as one:
            one.sendall(record(HANDSHAKE, client_hello(site, identity)))
            assert drained(one), identity


def records_that_are_wrong(site: Site) -> None:
    hello = client_hello(site)
    for data in (
        record(HANDSHAKE, hello[:10], 0xFFFF) + bytes(70_000),
        record(HANDSHAKE, b""),
        record(ALERT, b"\1\0") * 50,
        record(ALERT, b"\2\x28"),
        record(DATA, bytes(16384)),
        record(HANDSHAKE, hello[:1] + b"\xff\xff\xff" + hello[4:]) + record(HANDSHAKE, bytes(16384)) * 20,
        record(HANDSHAKE, hello) + record(HANDSHAKE, hello),
        record(HANDSHAKE, hello) + record(DATA, bytes(16640)),
        bytes([HANDSHAKE]) + os.urandom(4000),
    ):
        with site.plain() as one:
            with suppress(OSError):
                one.sendall(data)
            with suppress(OSError):
                one.shutdown(socket.SHUT_WR)
            assert drained(one, 15), data[:20]


def a_hello_of_one_byte_records(site: Site) -> None:
    hello = b"".join(record(HANDSHAKE, bytes([byte])) for byte in client_hello(site))
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(site.plain()).sendall(hello)
        site.works()


def plain_text(site: Site) -> None:
    with RawHost(site.door, ATTACKER) as one:
        one.initialize()
        assert one.connect(HOST.encode())[0] != 0, "TLS is required"
    with site.host() as secured:
        secured.plain.sendall(pdu(IC_REQ, bytes(120)))  # amid what is encrypted
        assert secured.tls.recv(1) == b""


def leave_amid_a_pdu(site: Site) -> None:
    for count in (1, 7, 8, 60, 127):
        with site.host() as one:
            one.tls.sendall(pdu(IC_REQ, bytes(120))[:count])
            one.tls.take_leave()
            assert drained(one.plain), count


def one_byte_records(site: Site) -> None:
    with site.host() as one:
        for byte in pdu(IC_REQ, bytes(120)):
            one.tls.sendall(bytes([byte]))
        assert one.receive()[0] == 1
        connect = command(IDENTIFY, 1)
        with suppress(ConnectionError):
            for _ in range(200):
                for byte in connect:  # sequence errors end it before long
                    one.tls.sendall(bytes([byte]))


def largest_records(site: Site) -> None:
    with site.host() as one:
        one.initialize()
        with suppress(ConnectionError):
            for _ in range(200):
                one.tls.sendall(os.urandom(16384))
        assert drained(one.plain)


def key_updates(site: Site) -> None:
    with site.host() as one:
        with suppress(ConnectionError):
            for _ in range(5000):
                one.tls.update_key()
        assert drained(one.plain)


def a_forged_record(site: Site) -> None:
    for forged in (record(DATA, bytes(32)), record(DATA, b"", 17), record(DATA, bytes(16640), 16641), b"\0" * 100):
        with site.host() as one:
            one.initialize()
            one.plain.sendall(forged + bytes(20_000))
            assert drained(one.plain), forged[:8]


def many_at_once(site: Site) -> None:
    with ExitStack() as stack:
        for _ in range(MANY):
            try:
                stack.enter_context(site.host()).initialize()
            except ConnectionError:
                break  # more than his share
        site.works()


@pytest.mark.parametrize(
    "attack",
    [
        half_handshakes,
        handshakes_that_stop_before_finished,
        identities_of_nobody,
        records_that_are_wrong,
        a_hello_of_one_byte_records,
        plain_text,
        leave_amid_a_pdu,
        one_byte_records,
        largest_records,
        key_updates,
        a_forged_record,
        many_at_once,
    ],
)
def test_others_notice_nothing(site: Site, attack: Callable[[Site], None]) -> None:
    site.works()
    before = site.descriptors()
    attack(site)
    for _ in range(3):
        site.works()
    until(lambda: site.descriptors() <= before, "something stays open")
