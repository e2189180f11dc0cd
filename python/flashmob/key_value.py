"""Keys and values of an SSD that has a namespace of command set "kv": what Ssd's methods kv_... do."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flashmob.buffers import whole
from flashmob.errors import NvmeError

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.models import Profile
    from flashmob.queues import Namespace

_STORE, _RETRIEVE, _DELETE, _EXIST, _LIST = range(5)
_MUST_EXIST, _MUST_NOT_EXIST = 1, 2
_KEY_DOES_NOT_EXIST = 0x087
_STATUS_MASK = 0x7FF
# What is asked for first, where nobody says how long a value is: most are shorter.
_USUAL_BYTES = 4096
_LIST_BYTES = 64 << 10
_MAX_KEY_BYTES = 255


class KeyValueCommands:
    """The key-value half of an Ssd. Each call runs one command to its end; threads that call at once take turns."""

    if TYPE_CHECKING:
        profile: Profile
        namespaces: tuple[Namespace, ...]

        @property
        def _core(self) -> _core.Ssd: ...
        def _namespace(self, wanted: Namespace | int | None) -> Namespace: ...
        def _faults_hint(self) -> str: ...

    def kv_store(
        self,
        key: bytes,
        value: bytes | bytearray | memoryview,
        *,
        must_exist: bool = False,
        must_not_exist: bool = False,
        namespace: Namespace | int | None = None,
    ) -> None:
        """Gives a key a value, in place of the one that it had.

        Args:
            key: 1 to 16 bytes.
            value: up to the namespace's longest (ssd.identify_kv().vml).
            must_exist: fail with Key Does Not Exist instead of making a key.
            must_not_exist: fail with Key Exists instead of replacing a value.
            namespace: which one, or its NSID; by default the first of command set "kv".

        Raises:
            NvmeError: if the device answers with an error; the key is then as it was, unless the command was aborted.
            TimeoutError: if it does not answer.
            ValueError: if the value is more than one command carries.
        """
        data = _bytes("a value", value)
        self._check_bytes("a value", len(data))
        self._key_value(
            _STORE, key, namespace, data, options=must_exist * _MUST_EXIST | must_not_exist * _MUST_NOT_EXIST
        )

    def kv_retrieve(
        self, key: bytes, *, size_bytes: int | None = None, namespace: Namespace | int | None = None
    ) -> bytes:
        """A key's value: all of it, or the first `size_bytes` bytes.

        Raises:
            NvmeError: if there is no such key, or the device answers with another error.
        """
        if size_bytes is not None:
            if whole("size_bytes", size_bytes) < 0:
                raise ValueError(f"size_bytes = {size_bytes} is not possible: use 0 or more")
            self._check_bytes("size_bytes", size_bytes)
            return self._key_value(_RETRIEVE, key, namespace, b"", size_bytes)[1]
        room = min(_USUAL_BYTES, self._most())
        while True:
            length, data = self._key_value(_RETRIEVE, key, namespace, b"", room)
            if length <= room:
                return data
            # It may have been replaced by a longer one meanwhile.
            room = length

    def kv_delete(self, key: bytes, *, namespace: Namespace | int | None = None) -> None:
        """Removes a key and its value.

        Raises:
            NvmeError: if there is no such key, or the device answers with another error.
        """
        self._key_value(_DELETE, key, namespace)

    def kv_exist(self, key: bytes, *, namespace: Namespace | int | None = None) -> bool:
        """Whether there is such a key.

        Raises:
            NvmeError: if the device answers with another error than Key Does Not Exist.
        """
        try:
            self._key_value(_EXIST, key, namespace)
        except NvmeError as error:
            if error.status & _STATUS_MASK == _KEY_DOES_NOT_EXIST:
                return False
            raise
        return True

    def kv_list(self, prefix: bytes = b"", *, namespace: Namespace | int | None = None) -> Iterator[bytes]:
        """All keys that begin so, in the order of their bytes; asked for page by page as they are taken.

        Raises:
            NvmeError: if the device answers with an error.
        """
        prefix = _bytes("a prefix", prefix)
        start, room = prefix, min(_LIST_BYTES, self._most())
        first = True
        while True:
            page = list(_keys(self._key_value(_LIST, start, namespace, b"", room)[1]))
            # A page begins with the last key of the one before, unless that has been deleted.
            fresh = page if first or not page or page[0] != start else page[1:]
            for key in fresh:
                if not key.startswith(prefix):
                    return
                yield key
            if not fresh:
                return
            start, first = fresh[-1], False

    def _key_value(
        self,
        kind: int,
        key: bytes,
        namespace: Namespace | int | None,
        value: bytes = b"",
        room: int = 0,
        options: int = 0,
    ) -> tuple[int, bytes]:
        sent = _bytes("a key", key)
        if len(sent) > _MAX_KEY_BYTES:
            raise ValueError(f"a key of {len(sent)} bytes is not possible: use 1 to 16")
        nsid = self._kv_namespace(namespace).nsid
        what = f"{('store', 'retrieve', 'delete', 'exist', 'list')[kind]} of key {sent!r}"
        try:
            status, length, data = self._core.key_value(kind, nsid, sent, value, room, options)
        except TimeoutError as error:
            raise TimeoutError(f"{what}: {error}{self._faults_hint()}") from None
        if status:
            raise NvmeError(status, what)
        return length, data

    def _kv_namespace(self, wanted: Namespace | int | None) -> Namespace:
        if wanted is None:
            found = next((one for one in self.namespaces if one.command_set == "kv"), None)
            if found is None:
                raise ValueError("the SSD has no namespace of keys and values: give one command_set = kv")
            return found
        target = self._namespace(wanted)
        if target.command_set != "kv":
            raise ValueError(
                f"namespace {target.nsid} has blocks, and no keys: its command_set is {target.command_set}"
            )
        return target

    def _most(self) -> int:
        return self.profile.controller.max_transfer_bytes

    def _check_bytes(self, what: str, size: int) -> None:
        if size > self._most():
            raise ValueError(
                f"{what} of {size} bytes is more than one command carries: use at most "
                f"controller.max_transfer_bytes = {self._most()}"
            )


def _bytes(what: str, given: object) -> bytes:
    """`given`, which must be bytes: bytes(5) would be five zeroes."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    fix = f"{given!r}.encode()" if isinstance(given, str) and len(given) <= 40 else "bytes"
    raise TypeError(f"{what} of type {type(given).__name__} is not possible: give {fix}")


def _keys(page: bytes) -> Iterator[bytes]:
    """The keys in what List returned."""
    (count,) = struct.unpack_from("<I", page)
    at = 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", page, at)
        yield page[at + 2 : at + 2 + length]
        at += (2 + length + 3) // 4 * 4
