"""A host by TLS that says what one wants it to say, by OpenSSL itself: Python 3.11's ssl knows no PSKs."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any

from raw_hosts import RawHost

KEY_UPDATE = 0
_PSK_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint
)


def openssl() -> Any:
    """The library, or OSError where it is not there."""
    library = ctypes.CDLL("libssl.so.3")
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("TLS_client_method", pointer, []),
        ("SSL_CTX_new", pointer, [pointer]),
        ("SSL_CTX_free", None, [pointer]),
        ("SSL_CTX_set_ciphersuites", ctypes.c_int, [pointer, ctypes.c_char_p]),
        ("SSL_CTX_set_psk_client_callback", None, [pointer, _PSK_CALLBACK]),
        ("SSL_new", pointer, [pointer]),
        ("SSL_free", None, [pointer]),
        ("SSL_set_fd", ctypes.c_int, [pointer, ctypes.c_int]),
        ("SSL_connect", ctypes.c_int, [pointer]),
        ("SSL_read", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_write", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_key_update", ctypes.c_int, [pointer, ctypes.c_int]),
        ("SSL_do_handshake", ctypes.c_int, [pointer]),
        ("SSL_shutdown", ctypes.c_int, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class TlsSocket:
    """As much of a socket as RawHost uses, and what an ill-meaning host does with TLS."""

    def __init__(self, plain: socket.socket, identity: str, psk: bytes) -> None:
        """Shakes hands; ConnectionError where the other side will not."""
        self._library = openssl()
        self.plain = plain
        timeout = struct.pack("ll", 10, 0)
        plain.setblocking(True)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

        def offer(_ssl: int, _hint: int, name: int, _name_room: int, key: int, _key_room: int) -> int:
            ctypes.memmove(name, identity.encode() + b"\0", len(identity) + 1)
            ctypes.memmove(key, psk, len(psk))
            return len(psk)

        self._offer = _PSK_CALLBACK(offer)  # the library does not keep it alive
        self._context = self._library.SSL_CTX_new(self._library.TLS_client_method())
        self._library.SSL_CTX_set_ciphersuites(self._context, b"TLS_AES_128_GCM_SHA256")
        self._library.SSL_CTX_set_psk_client_callback(self._context, self._offer)
        self._ssl = self._library.SSL_new(self._context)
        self._library.SSL_set_fd(self._ssl, plain.fileno())
        if self._library.SSL_connect(self._ssl) != 1:
            self.close()
            raise ConnectionError("no TLS")

    def sendall(self, data: bytes) -> None:
        """At most 16 KiB of it in a record."""
        if self._library.SSL_write(self._ssl, data, len(data)) != len(data):
            raise ConnectionError("nobody takes it")

    def recv(self, count: int) -> bytes:
        room = ctypes.create_string_buffer(count)
        got = self._library.SSL_read(self._ssl, room, count)
        return room.raw[:got] if got > 0 else b""

    def update_key(self) -> None:
        if self._library.SSL_key_update(self._ssl, KEY_UPDATE) != 1 or self._library.SSL_do_handshake(self._ssl) != 1:
            raise ConnectionError("nobody takes it")

    def take_leave(self) -> None:
        """A close_notify alert; the connection stays."""
        self._library.SSL_shutdown(self._ssl)

    def close(self) -> None:
        if self._ssl is not None:
            self._library.SSL_free(self._ssl)
            self._library.SSL_CTX_free(self._context)
            self._ssl = None
        self.plain.close()


class RawTlsHost(RawHost):
    """A RawHost whose bytes go through TLS."""

    def __init__(self, address: str, identity: str, psk: bytes, source: str = "127.0.0.1") -> None:
        super().__init__(address, source)
        self.plain = self.socket
        self.tls = TlsSocket(self.plain, identity, psk)
        self.socket = self.tls  # type: ignore[assignment]
