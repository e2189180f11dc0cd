"""Reads ahead of who takes what was read: parts of files in their order, within bounds of memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmob.dataset.readers import Reader


class Part(NamedTuple):
    """Bytes of a file that are read at once. `number` is the caller's."""

    number: int
    path: str
    offset: int
    size_bytes: int


def read_ahead(
    reader: Reader, parts: Iterator[Part], ahead_bytes: int, allocate: Callable[[int], NDArray[np.uint8]]
) -> Generator[tuple[Part, NDArray[np.uint8], str], None, None]:
    """Parts with their bytes and what went wrong, while those behind them are being read.

    Where it is left early, what is being read ends first.

    Args:
        reader: the way to them.
        parts: in their order; the next one is asked for when there is room.
        ahead_bytes: the most memory that is held; a larger part is read alone.
        allocate: makes the memory of a part. MemoryError is what went wrong with that part alone.
    """
    process = os.getpid()
    waiting: deque[tuple[Part, NDArray[np.uint8]]] = deque()
    errors: dict[int, str] = {}
    held = begun = turn = unfinished = 0
    following = next(parts, None)
    while True:
        while following is not None and not (waiting and held + following.size_bytes > ahead_bytes):
            error = ""
            try:
                data = allocate(following.size_bytes)
            except MemoryError:
                if waiting:
                    # Once these are gone there may be room.
                    break
                data = np.empty(0, np.uint8)
                error = f"its {following.size_bytes} bytes are more than there is memory for; read it in pieces"
            waiting.append((following, data))
            held += data.nbytes
            if data.nbytes:
                reader.start(begun, following.path, following.offset, data)
                unfinished += 1
            else:
                errors[begun] = error
            del data
            begun += 1
            following = next(parts, None)
        if not waiting:
            return
        while turn not in errors:
            ended = reader.wait()
            if not ended:
                raise RuntimeError(f"the read of {waiting[0][0].path} was never told to have ended")
            unfinished -= len(ended)
            errors.update({one.tag: one.error for one in ended})
        held -= waiting[0][1].nbytes
        try:
            # No name here keeps the memory of what is handed on.
            yield *waiting.popleft(), errors.pop(turn)
        except GeneratorExit:
            # In the child of a fork the reader is the parent's.
            while unfinished > 0 and process == os.getpid() and (ended := reader.wait()):
                unfinished -= len(ended)
            raise
        turn += 1
