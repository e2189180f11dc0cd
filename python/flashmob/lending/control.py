"""The control socket of an orchestrator: it hands out leases, and sees none of their data.

A SOCK_SEQPACKET socket: a packet is a request or an answer, whole or not at all, a JSON object of at most 16 KiB. Who
asks is what the kernel says of the process that connected (SO_PEERCRED, SO_PEERGROUPS). A lease that is not kept ends
with the connection that took it, and so, however that dies, with the process.

One thread serves all connections, and waits for none of them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import selectors
import socket
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError
from flashmob.lending.lender import Asker, Lender, RefusedError

MAX_PACKET_BYTES = 16 << 10
MAX_CONNECTIONS = 256
# Of one user who is neither root nor our own.
MAX_CONNECTIONS_OF_A_USER = 32
# A connection without a lease that says nothing for so long is closed.
PATIENCE_S = 30.0
_LOOK_S = 1.0
_PACKETS_PER_TURN = 4
_SO_PEERGROUPS = 59
_MAX_GROUPS = 4096


class _Connection:
    def __init__(self, channel: socket.socket, asker: Asker) -> None:
        self.channel = channel
        self.asker = asker
        self.leases: set[str] = set()
        self.heard_s = time.monotonic()


class ControlSocket:
    """Listens from start() to close()."""

    def __init__(self, path: str, lender: Lender, *, is_for_others: bool) -> None:
        """`is_for_others`: users other than ours may connect; what they get, the lender decides.

        Raises:
            ConfigError: where it cannot listen there.
        """
        self._path = Path(path)
        self._lender = lender
        self._connections: dict[int, _Connection] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._lock = _take_lock(self._path)
            self._listener = _listen(self._path, 0o666 if is_for_others else 0o600)
        except OSError as error:
            raise ConfigError(f"socket = {path} cannot be used: {error.strerror or error}") from None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="flashmob-lend", daemon=True)

    def start(self) -> None:
        """Serves from now on."""
        self._thread.start()

    def close(self) -> None:
        """Hangs up on everybody. Leases stay as they are: the SSDs' end ends them. Idempotent."""
        if self._wake_write < 0:
            return
        os.write(self._wake_write, b"x")
        if self._thread.is_alive():
            self._thread.join()
        for one in self._connections.values():
            one.channel.close()
        self._connections.clear()
        self._selector.close()
        self._listener.close()
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            Path(f"{self._path}.lock").unlink()
        os.close(self._lock)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_write = -1

    def _run(self) -> None:
        looked_s = time.monotonic()
        while True:
            for key, _ in self._selector.select(_LOOK_S):
                if key.fileobj == self._wake_read:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._serve(key.fileobj.fileno())
            now_s = time.monotonic()
            if now_s - looked_s >= _LOOK_S:
                looked_s = now_s
                for handle in [
                    handle
                    for handle, one in self._connections.items()
                    if not one.leases and now_s - one.heard_s > PATIENCE_S
                ]:
                    self._drop(handle, "it said nothing for too long")

    def _accept(self) -> None:
        try:
            channel, _ = self._listener.accept()
        except OSError as error:
            # What waits keeps the listener readable: without descriptors there is nothing to do but to wait, too.
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                time.sleep(0.05)
            return
        channel.setblocking(False)
        asker = _asker(channel)
        of_user = sum(one.asker.uid == asker.uid for one in self._connections.values())
        full = len(self._connections) >= MAX_CONNECTIONS
        if full or (not asker.is_operator and of_user >= MAX_CONNECTIONS_OF_A_USER):
            _answer(channel, {"ok": False, "error": "there are as many connections as allowed; close one first"})
            channel.close()
            return
        self._connections[channel.fileno()] = _Connection(channel, asker)
        self._selector.register(channel, selectors.EVENT_READ)

    def _serve(self, handle: int) -> None:
        one = self._connections.get(handle)
        if one is None:
            return
        for _ in range(_PACKETS_PER_TURN):
            try:
                # Descriptors that come along are the kernel's to close.
                packet, _, flags, _ = one.channel.recvmsg(MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                packet, flags = b"", 0
            if not packet:
                self._drop(handle, "whoever took it has gone")
                return
            one.heard_s = time.monotonic()
            said = self._said(one, packet, is_cut=bool(flags & socket.MSG_TRUNC))
            # Who does not read his answers has no use for more.
            if not _answer(one.channel, said):
                self._drop(handle, "whoever took it reads no answers")
                return

    def _said(self, one: _Connection, packet: bytes, *, is_cut: bool) -> dict[str, Any]:
        if is_cut:
            return {"ok": False, "error": f"a request has at most {MAX_PACKET_BYTES} bytes"}
        try:
            request = json.loads(packet)
        except (ValueError, RecursionError):
            return {"ok": False, "error": "a request is a JSON object"}
        if not isinstance(request, dict):
            return {"ok": False, "error": "a request is a JSON object"}
        try:
            return {"ok": True, **self._done(one, request)}
        except RefusedError as error:
            return {"ok": False, "error": str(error)}
        except (OSError, RuntimeError, MemoryError) as error:
            # What one asks for, and the machine has not, must not end the thread that serves all.
            return {"ok": False, "error": f"the orchestrator could not do that: {error}"}

    def _done(self, one: _Connection, request: dict[str, Any]) -> dict[str, Any]:
        op = request.pop("op", None)
        if op == "take":
            terms = self._lender.take(self._on_behalf(one.asker, request), request)
            if not terms.is_kept:
                one.leases.add(terms.name)
            return {"lease": self._lender.said(terms)}
        if op == "list":
            return {"leases": self._lender.listed(one.asker)}
        if op == "release":
            name = request.get("lease")
            if not isinstance(name, str):
                raise RefusedError("lease must be the name of one")
            self._lender.release(one.asker, name)
            for other in self._connections.values():
                other.leases.discard(name)
            return {}
        raise RefusedError("op must be take, list or release")

    def _on_behalf(self, asker: Asker, request: dict[str, Any]) -> Asker:
        """Who will use the lease: an operator may take one for another user."""
        uid = request.pop("uid", None)
        if uid is None or uid == asker.uid:
            return asker
        if not asker.is_operator:
            raise RefusedError("only an operator takes leases for other users; leave uid out")
        if not isinstance(uid, int) or isinstance(uid, bool) or not 0 <= uid < (1 << 32) - 1 or os.geteuid() != 0:
            raise RefusedError("uid must be a user's number, and lending to others needs an orchestrator that is root")
        return Asker(uid, frozenset(), asker.pid)

    def _drop(self, handle: int, why: str) -> None:
        one = self._connections.pop(handle)
        self._selector.unregister(one.channel)
        one.channel.close()
        for name in sorted(one.leases):
            self._lender.end(name, why)


def _answer(channel: socket.socket, said: dict[str, Any]) -> bool:
    try:
        channel.send(json.dumps(said, separators=(",", ":")).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return False
    return True


def _asker(channel: socket.socket) -> Asker:
    pid, uid, gid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups = {gid & 0xFFFFFFFF}
    with suppress(OSError):  # Kernels before 4.13 do not tell them.
        text = channel.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MAX_GROUPS)
        groups |= {number for (number,) in struct.iter_unpack("I", text)}
    return Asker(uid & 0xFFFFFFFF, frozenset(groups), pid)


def _take_lock(path: Path) -> int:
    """Held while the process lives; the path is then ours to replace."""
    found = path.parent.stat()
    if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
        raise ConfigError(f"others may write to {path.parent}, and put a socket of theirs there; choose another folder")
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(f"socket = {path} is another orchestrator's; stop that one, or choose another path") from None
    return lock


def _listen(path: Path, mode: int) -> socket.socket:
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise ConfigError(f"socket = {path} exists and is no socket; choose another path")
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listener.fileno(), mode)  # Before the file is there, so that it never has a wider one.
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener
