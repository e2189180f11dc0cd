"""Memory and numbers that callers give: anybody's contiguous memory on the host, and whole numbers of anybody's."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

from flashmob.device import core_module
from flashmob.explain import short

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from flashmob import _core
    from flashmob.queues import Namespace


class SupportsDLPack(Protocol):
    """An array of any library's that offers DLPack, such as a torch.Tensor."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...


# Contiguous memory of the host's: bytes, bytearray, memoryview, NumPy arrays, tensors on the CPU.
BufferLike: TypeAlias = "Buffer | SupportsDLPack"


def whole(name: str, value: SupportsIndex) -> int:
    """A whole number, of NumPy's or Python's; raises with one sentence where it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {short(value)} is not possible: use a whole number") from None


def held_buffer(buffer: BufferLike, target: Namespace, *, writable: bool) -> _core.HeldBuffer:
    """The memory of somebody's array, pinned; raises with one sentence where it cannot hold whole blocks."""
    if target.lba_bytes == 0:
        raise ValueError(f"namespace {target.nsid} holds keys and values (command set kv), and has no blocks")
    need = "writable, contiguous memory" if writable else "contiguous memory"
    if isinstance(buffer, str):
        raise TypeError(f"text cannot be used as a buffer: give bytes, such as {short(buffer)}.encode()")
    if buffer is None:
        raise TypeError(f"None cannot be used as a buffer: give {need}")
    try:
        held: _core.HeldBuffer = core_module().HeldBuffer(buffer, writable)
    except (TypeError, ValueError, BufferError) as error:
        raise type(error)(
            f"a buffer of type {type(buffer).__name__} cannot be used ({error}); give {need} on the CPU, such as "
            f"numpy.empty({target.lba_bytes}, numpy.uint8)"
        ) from None
    if held.nbytes == 0 or held.nbytes % target.lba_bytes:
        raise ValueError(
            f"a buffer of {held.nbytes} bytes is no whole number of blocks; namespace {target.nsid} has blocks of "
            f"{target.lba_bytes} bytes"
        )
    return held
