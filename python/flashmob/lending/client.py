"""The asking side: takes leases of an orchestrator, lists and releases them."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from flashmob.errors import ConfigError
from flashmob.units import parse_rate, parse_size

DEFAULT_SOCKET = "/run/flashmob/lend.sock"
SOCKET_VARIABLE = "FLASHMOB_LEND"
_ANSWER_BYTES = 1 << 20
_TIMEOUT_S = 30.0


class Connection:
    """A connection to an orchestrator. Leases that are taken by it, and not kept, end with it."""

    def __init__(self, path: str | None = None) -> None:
        """Connects to `path`, else to the socket that FLASHMOB_LEND names, else to /run/flashmob/lend.sock.

        Raises:
            ConfigError: where nobody answers there.
        """
        self._path = path or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            # By the kernel's time-out: with Python's, a moment's queue at the socket would be an error.
            self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_TIMEOUT_S), 0))
            self._channel.connect(self._path)
            self._channel.settimeout(_TIMEOUT_S)
        except OSError as error:
            self._channel.close()
            raise ConfigError(
                f"no orchestrator answers at {self._path}: {error.strerror or error}; start `flashmob orchestrate`, or "
                f"name its socket (--socket, {SOCKET_VARIABLE})"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and the leases that were taken by it and are not kept."""
        self._channel.close()

    def ask(self, op: str, **values: Any) -> dict[str, Any]:
        """Sends a request and returns the answer.

        Raises:
            ConfigError: with the orchestrator's reason, or where it has gone.
        """
        try:
            self._channel.send(json.dumps({"op": op, **values}).encode())
            packet = self._channel.recv(_ANSWER_BYTES)
        except OSError as error:
            raise ConfigError(f"the orchestrator at {self._path} did not answer: {error.strerror or error}") from None
        if not packet:
            raise ConfigError(f"the orchestrator at {self._path} hung up")
        answer: dict[str, Any] = json.loads(packet)
        if not answer.pop("ok", False):
            raise ConfigError(str(answer.get("error", "the orchestrator does not say why not")))
        return answer

    def take(self, ssd: str, **wanted: Any) -> dict[str, Any]:
        """Takes a lease, with the keywords of the function of that name."""
        lease: dict[str, Any] = self.ask("take", ssd=ssd, **asked(wanted))["lease"]
        return lease

    def leases(self) -> list[dict[str, Any]]:
        """The leases that this user has; for an operator all."""
        found: list[dict[str, Any]] = self.ask("list")["leases"]
        return found

    def release(self, lease: str) -> None:
        """Ends a lease."""
        self.ask("release", lease=lease)


class Lease:
    """A part of an SSD, ours until it is closed."""

    def __init__(self, connection: Connection, said: Mapping[str, Any]) -> None:
        self._connection = connection
        self.name: str = said["name"]
        self.path: str = said["path"]
        self.target: str = said["target"]
        self.size_bytes: int = said["size_bytes"]
        self.queue_pairs: int = said["queue_pairs"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the lease, unless it is kept. Idempotent."""
        self._connection.close()


def take(
    ssd: str,
    *,
    size: int | str | None = None,
    first: int | str | None = None,
    queue_pairs: int = 1,
    read_only: bool = False,
    iops: float | str | None = None,
    bandwidth: int | str | None = None,
    keep: bool = False,
    uid: int | None = None,
    socket_path: str | None = None,
) -> Lease:
    """Takes a part of an SSD, until close() or the end of this process.

    Args:
        ssd: its name.
        size: bytes, or text such as "4G", in whole MiB; left out, as much as there is in one piece.
        first: the first byte; left out, the orchestrator finds room.
        queue_pairs: I/O queue pairs.
        read_only: others may then read the same bytes.
        iops: at most so many commands a second; left out, what the policy says.
        bandwidth: at most so many bytes a second, the same.
        keep: it outlives this process, until it is released.
        uid: who will use it, where we are an operator.
        socket_path: the orchestrator's socket.

    Raises:
        ConfigError: with the orchestrator's reason.
    """
    connection = Connection(socket_path)
    try:
        said = connection.take(
            ssd,
            size=size,
            first=first,
            queue_pairs=queue_pairs,
            read_only=read_only,
            iops=iops,
            bandwidth=bandwidth,
            keep=keep,
            uid=uid,
        )
    except BaseException:
        connection.close()
        raise
    return Lease(connection, said)


def asked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into the request: without what was left out, with sizes and rates as numbers.

    Raises:
        ConfigError: naming what is no size or rate.
    """
    request = {}
    for key, value in wanted.items():
        if value is None or value is False:
            continue
        try:
            if key in ("size", "first", "bandwidth"):
                request[key] = parse_size(value)
            elif key == "iops":
                request[key] = int(parse_rate(value))
            else:
                request[key] = value
        except ValueError as error:
            raise ConfigError(f"{key} = {value} is not possible: {error}") from None
    return request
