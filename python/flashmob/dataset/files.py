"""The iterator over a data set: orders, shards, read-ahead, batches, resumption, verification."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from flashmob.dataset.ahead import Part, read_ahead
from flashmob.dataset.manifest import CHECKSUMS_NAME, Entry, Manifest
from flashmob.dataset.order import Remainder, epoch_order, shard
from flashmob.dataset.readers import FileReadError, Place, Reader
from flashmob.errors import ConfigError
from flashmob.outputs import plain

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

_STATE_VERSION = 1
DEFAULT_AHEAD_BYTES = 64 << 20
# What verified() reads of a file at once.
_VERIFIED_BYTES = 8 << 20
# Readers that a child of a fork must neither use nor let go of.
_OF_PARENTS: list[Reader] = []


@dataclass(frozen=True, slots=True)
class Sample:
    """A file, or a piece of one; `data` is its own memory, and offers the buffer protocol and DLPack.

    Attributes:
        index: of the sample in the data set, whatever the order.
        path: of its file, from the source's root.
        offset: of its first byte in the file; 0 without piece_bytes.
        data: its bytes; none where there is an error.
        error: why it could not be read, fit for a terminal, with on_error="yield"; else None.
    """

    index: int
    path: str
    offset: int
    data: NDArray[np.uint8]
    error: str | None = None

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


@dataclass(frozen=True)
class _How:
    """What an iteration depends on."""

    seed: int
    shuffle: bool
    rank: int
    world: int
    remainder: Remainder
    ahead_bytes: int
    piece_bytes: int | None
    verify: bool
    on_error: Literal["raise", "yield"]
    allocate: Callable[[int], NDArray[np.uint8]]
    part: int = 0
    parts: int = 1


class FileDataset:
    """Files of a directory, an image, a block device or a served SSD, iterated over; use it as a context manager.

    An iteration yields the samples of one epoch that are this rank's, in their order; the next one is of the next
    epoch. For one thread at a time. It can be pickled, and other processes then read by readers of their own.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Place,
        *,
        pattern: str = "*",
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
        remainder: Remainder = "uneven",
        ahead_bytes: int = DEFAULT_AHEAD_BYTES,
        piece_bytes: int | None = None,
        verify: bool = False,
        on_error: Literal["raise", "yield"] = "raise",
        allocate: Callable[[int], NDArray[np.uint8]] | None = None,
        manifest: Manifest | None = None,
        **place: Any,
    ) -> None:
        """Lists the files; reads nothing of them yet.

        Args:
            source: see Place, whose other attributes are keywords here.
            pattern: of the paths, as a shell's.
            seed: of the orders.
            shuffle: whether an epoch has an order of its own; else paths are in theirs.
            rank: which of `world` readers this is.
            world: how many readers share the samples.
            remainder: see shard().
            ahead_bytes: the most memory that reads and samples not yet yielded hold; a larger sample is read alone.
            piece_bytes: files are cut into samples of so many bytes; None takes them whole.
            verify: checks whole files against their CRC-32 where one is known.
            on_error: "raise" ends the iteration with FileReadError, "yield" yields a sample with an error.
            allocate: makes the memory of a sample, an array of bytes; numpy.empty if it is left out.
            manifest: one that is known already, which saves listing.
            **place: attributes of Place, such as backend or depth.

        Raises:
            ConfigError, ExtentError: in one sentence.
        """
        self.place = source if isinstance(source, Place) else Place(os.fspath(source), **place)
        if isinstance(source, Place) and place:
            raise ConfigError(f"{', '.join(place)}: the Place says where; leave this out")
        for name, value in (("ahead_bytes", ahead_bytes), ("piece_bytes", piece_bytes)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value} is not possible: use 1 or more")
        if on_error not in ("raise", "yield"):
            raise ConfigError(f"on_error = {on_error} is not possible: use raise or yield")
        if verify and piece_bytes is not None:
            raise ConfigError("verify looks at whole files; leave piece_bytes out")
        self._how = _How(
            seed, shuffle, rank, world, remainder, ahead_bytes, piece_bytes, verify, on_error, allocate or _allocate
        )
        shard(np.arange(0), rank, world, remainder)
        self._reader: Reader | None = None
        self._owner = 0
        self._in_use = False
        self.epoch = 0
        self._position = 0
        self.manifest = manifest or self._open().manifest(pattern)
        if verify:
            self._refuse_bare()
        self._counts = [_pieces(one.size_bytes, piece_bytes) for one in self.manifest.entries]
        # The first sample of each file, and behind the last one how many there are.
        self._firsts = np.concatenate([[0], np.cumsum(np.array(self._counts, np.int64))]).astype(np.int64)

    def __enter__(self) -> Self:
        """Nothing happens here."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None, "_owner": 0, "_in_use": False}

    def __len__(self) -> int:
        """How many samples an epoch has for this rank, however far it is."""
        return len(self._order(self.epoch))

    def __iter__(self) -> Generator[Sample, None, None]:
        """Samples of this epoch, from where it was left on."""
        self._refuse_a_second()
        return self._iterate()

    @property
    def samples(self) -> int:
        """How many there are for all ranks together."""
        return int(self._firsts[-1])

    @property
    def ahead_bytes(self) -> int:
        """The most memory that reads and samples not yet yielded hold."""
        return self._how.ahead_bytes

    def close(self) -> None:
        """Gives up what is being read; an iteration opens what it needs again."""
        self._leave_to_parent()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch, from its begin on."""
        if epoch < 0:
            raise ConfigError(f"epoch = {epoch} is not possible: use 0 or more")
        self.epoch, self._position = epoch, 0

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[list[Sample]]:
        """The same as iterating, `size` samples at a time; the last batch may have fewer."""
        if size < 1:
            raise ConfigError(f"size = {size} is not possible: use 1 or more")
        return self._batches(size, drop_last)

    def verified(self) -> Generator[tuple[Entry, str], None, None]:
        """Every file, whatever the rank and order, with what is wrong with its bytes by its CRC-32, else an empty text.

        They are read in pieces: none need fit in memory. One without a checksum is not read, and that is what is wrong.

        Raises:
            ConfigError: where no file has a checksum.
        """
        if all(one.crc32 is None for one in self.manifest.entries):
            self._refuse_bare()
        return self._verify()

    def part(self, index: int, count: int) -> FileDataset:
        """One of `count` data sets that share this rank's samples, from its epoch's begin on: a loader's worker's."""
        if not 0 <= index < count:
            raise ConfigError(f"index = {index} is not possible: use 0 to {count - 1}")
        made = object.__new__(FileDataset)
        made.__dict__.update(self.__getstate__())
        made._how = replace(self._how, part=index, parts=count)
        # Places in its order are others than in ours.
        made._position = 0
        return made

    # --- Resumption ---

    def state_dict(self) -> dict[str, Any]:
        """Where it is: plain values, for json or torch.save. Samples that were yielded are not yielded again."""
        how = self._how
        return {
            "version": _STATE_VERSION,
            "epoch": self.epoch,
            "position": self._position,
            "fingerprint": self.manifest.fingerprint,
            "order": [how.seed, how.shuffle, how.rank, how.world, how.remainder, how.piece_bytes, how.part, how.parts],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another run was.

        Raises:
            ConfigError: where files or the order are others.
        """
        own = self.state_dict()
        for key, what in (("version", "is of another version"), ("fingerprint", "is of other files")):
            if state.get(key) != own[key]:
                raise ConfigError(f"this state {what}; begin anew, or take the data set that it was made with")
        if list(state["order"]) != own["order"]:
            raise ConfigError(
                "this state is of another order: (seed, shuffle, rank, world, remainder, piece_bytes, part, parts) was "
                f"{tuple(state['order'])} and is {tuple(own['order'])}; make them equal"
            )
        self.set_epoch(int(state["epoch"]))
        self._position = int(state["position"])

    # --- Iteration ---

    def _order(self, epoch: int) -> NDArray[np.int64]:
        how = self._how
        order = epoch_order(self.samples, how.seed, epoch, shuffle=how.shuffle)
        return shard(order, how.rank, how.world, how.remainder)[how.part :: how.parts]

    def _open(self) -> Reader:
        self._leave_to_parent()
        if self._reader is None:
            self._reader, self._owner = self.place.open(), os.getpid()
        return self._reader

    def _refuse_a_second(self) -> None:
        if self._in_use and self._owner == os.getpid():
            raise RuntimeError("an iteration is under way; end it, or take another FileDataset")

    def _leave_to_parent(self) -> None:
        """In the child of a fork the reader is the parent's: to let go of it would end the parent's queues."""
        if self._reader is not None and self._owner != os.getpid():
            _OF_PARENTS.append(self._reader)
            self._reader, self._in_use = None, False

    def _refuse_bare(self) -> None:
        bare = next((one.path for one in self.manifest.entries if one.crc32 is None), None)
        if bare is not None:
            self.close()
            raise ConfigError(f"verify needs checksums, and there is none of {plain(bare)}; leave verify out")

    def _sample(self, index: int) -> Part:
        at = int(np.searchsorted(self._firsts, index, side="right")) - 1
        entry, piece = self.manifest.entries[at], self._how.piece_bytes
        if piece is None:
            return Part(index, entry.path, 0, entry.size_bytes)
        offset = (index - int(self._firsts[at])) * piece
        return Part(index, entry.path, offset, min(piece, entry.size_bytes - offset))

    def _batches(self, size: int, drop_last: bool) -> Iterator[list[Sample]]:
        batch: list[Sample] = []
        for sample in self:
            batch.append(sample)
            if len(batch) == size:
                yield batch
                batch = []
        if batch and not drop_last:
            yield batch

    @contextmanager
    def _reading(
        self, parts: Iterator[Part], allocate: Callable[[int], NDArray[np.uint8]]
    ) -> Iterator[Generator[tuple[Part, NDArray[np.uint8], str], None, None]]:
        # Again, because another one may have begun meanwhile.
        self._refuse_a_second()
        reader = self._open()
        self._in_use = True
        try:
            with closing(read_ahead(reader, parts, self._how.ahead_bytes, allocate)) as read:
                yield read
        except GeneratorExit:
            raise
        except BaseException:
            # Reads that are under way would otherwise be told to the next iteration.
            self.close()
            raise
        finally:
            self._in_use = False

    def _iterate(self) -> Generator[Sample, None, None]:
        order = self._order(self.epoch)[self._position :]
        with self._reading((self._sample(int(index)) for index in order), self._how.allocate) as read:
            for part, data, error in read:
                sample = self._checked(part, data, error)
                del data
                self._position += 1
                yield sample
                del sample
        self.epoch, self._position = self.epoch + 1, 0

    def _checked(self, part: Part, data: NDArray[np.uint8], error: str) -> Sample:
        if not error and self._how.verify:
            expected = self.manifest.entries[int(np.searchsorted(self._firsts, part.number, side="right")) - 1].crc32
            error = _difference(zlib.crc32(data.data), expected)
        if not error:
            return Sample(part.number, part.path, part.offset, data)
        text = _named(part.path, error)
        if self._how.on_error == "raise":
            raise FileReadError(text)
        return Sample(part.number, part.path, part.offset, data[:0], text)

    def _verify(self) -> Generator[tuple[Entry, str], None, None]:
        self._refuse_a_second()
        entries = self.manifest.entries
        failed: set[int] = set()
        crc32 = 0

        def parts() -> Iterator[Part]:
            for at, entry in enumerate(entries):
                if entry.crc32 is None:
                    yield Part(at, entry.path, 0, 0)
                    continue
                for offset in range(0, max(entry.size_bytes, 1), _VERIFIED_BYTES):
                    yield Part(at, entry.path, offset, min(_VERIFIED_BYTES, entry.size_bytes - offset))
                    # What is wrong with one piece is wrong with the file; it may have a million more.
                    if at in failed:
                        break

        with self._reading(parts(), _allocate) as read:
            for part, data, failure in read:
                entry = entries[part.number]
                if part.number in failed:
                    continue
                if entry.crc32 is None:
                    yield entry, _named(entry.path, f"there is no checksum of it in {CHECKSUMS_NAME}")
                    continue
                crc32 = zlib.crc32(data.data, crc32 if part.offset else 0)
                is_last = part.offset + part.size_bytes == entry.size_bytes
                error = failure or (_difference(crc32, entry.crc32) if is_last else "")
                if error:
                    failed.add(part.number)
                if error or is_last:
                    yield entry, _named(entry.path, error) if error else ""


def _difference(found: int, expected: int | None) -> str:
    return "" if found == expected else f"its CRC-32 is {found:08x} and should be {expected:08x}"


def _named(path: str, error: str) -> str:
    """A sentence that names the file, once."""
    shown, text = plain(path), plain(error)
    return text if text.startswith(f"{shown}:") else f"{shown}: {text}"


def _allocate(length: int) -> NDArray[np.uint8]:
    try:
        return np.empty(length, np.uint8)
    except (ValueError, OverflowError):  # Of sizes that no machine's memory has.
        raise MemoryError from None


def _pieces(size_bytes: int, piece_bytes: int | None) -> int:
    return 1 if piece_bytes is None else max(1, -(-size_bytes // piece_bytes))
