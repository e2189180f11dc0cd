"""An emulated SSD in this process: queues that read and write NumPy arrays, with futures.

Example:
    with flashmob.Ssd.from_profile("d7-ps1010", size="1G", media="generated") as ssd:
        queue = ssd.queue(depth=128)
        buffer = numpy.empty(4096, numpy.uint8)
        queue.read(0, buffer).result()
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from flashmob.device import core_device, core_module
from flashmob.errors import NvmeError
from flashmob.faults import FaultCount
from flashmob.models import Profile
from flashmob.profiles import load_profile, namespace_overrides, with_overrides

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from flashmob import _core

_CNS_NAMESPACE = 0
_CNS_CONTROLLER = 1
# Polls between two looks at the clock while a future waits with a timeout.
_POLLS_PER_CLOCK = 64


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of a device. Sizes in bytes."""

    nsid: int
    size_bytes: int
    lba_bytes: int

    @property
    def blocks(self) -> int:
        """How many logical blocks it has; LBAs are 0 to blocks - 1."""
        return self.size_bytes // self.lba_bytes


class Future:
    """The outcome of one command. Completions arrive while its queue is polled, which result() and done() do."""

    __slots__ = ("_command", "_queue", "_status")

    def __init__(self, queue: Queue, command: str) -> None:
        self._queue = queue
        self._command = command
        self._status: int | None = None

    def done(self) -> bool:
        """Whether the command has completed; polls the queue once if it had not."""
        if self._status is None:
            self._queue.poll()
        return self._status is not None

    def result(self, timeout_s: float | None = None) -> None:
        """Waits until the command has completed.

        Raises:
            NvmeError: if the device completed it with an error.
            TimeoutError: if it has not completed after `timeout_s` seconds; it stays outstanding.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        polls = 0
        while self._status is None:
            polls += 1
            if self._queue.poll() == 0 and polls % _POLLS_PER_CLOCK == 0:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise TimeoutError(f"{self._command} has not completed within {timeout_s} s")
                # Lets the device's threads run where cores are scarce, and signals be handled.
                time.sleep(0)
        if self._status != 0:
            raise NvmeError(self._status, self._command)

    def status(self) -> int | None:
        """The completion's status field, 0 for success; None while the command is outstanding."""
        return self._status

    def _complete(self, status: int) -> None:
        self._status = status


class Queue:
    """One I/O queue pair, for one thread at a time. Made by Ssd.queue()."""

    def __init__(self, core: _core.Queue, namespace: Namespace) -> None:
        self._open_core: _core.Queue | None = core
        self._namespace = namespace
        self._outstanding: dict[int, Future] = {}

    def read(self, lba: int, buffer: Buffer | NDArray[Any], *, namespace: Namespace | None = None) -> Future:
        """Starts a read of the blocks at `lba` into all of `buffer`.

        Args:
            lba: the first logical block.
            buffer: writable, contiguous, a multiple of the LBA size; kept alive until the command is done.
            namespace: which namespace; by default the device's first.
        """
        target = namespace or self._namespace
        token = self._core.read(target.nsid, lba, buffer)
        return self._started(token, f"read of namespace {target.nsid} at LBA {lba}")

    def write(self, lba: int, buffer: Buffer | NDArray[Any], *, namespace: Namespace | None = None) -> Future:
        """Starts a write of all of `buffer` to the blocks at `lba`; leave the buffer alone until it is done."""
        target = namespace or self._namespace
        token = self._core.write(target.nsid, lba, buffer)
        return self._started(token, f"write to namespace {target.nsid} at LBA {lba}")

    def flush(self, *, namespace: Namespace | None = None) -> Future:
        """Starts a flush: what was completed before it is on the medium once it is done."""
        target = namespace or self._namespace
        return self._started(self._core.flush(target.nsid), f"flush of namespace {target.nsid}")

    def poll(self) -> int:
        """Takes in completions; returns how many there were."""
        completed = self._core.poll()
        for token, status in completed:
            future = self._outstanding.pop(token, None)
            if future is not None:
                future._complete(status)
        return len(completed)

    def outstanding(self) -> int:
        """Commands that have not completed."""
        return len(self._outstanding)

    def drain(self, timeout_s: float | None = None) -> None:
        """Waits until nothing is outstanding. Errors stay with their futures.

        Raises:
            TimeoutError: if commands are outstanding after `timeout_s` seconds.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._outstanding:
            if self.poll() == 0:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise TimeoutError(f"{len(self._outstanding)} commands have not completed within {timeout_s} s")
                time.sleep(0)

    @property
    def _core(self) -> _core.Queue:
        if self._open_core is None:
            raise RuntimeError("the SSD is closed")
        return self._open_core

    def _close(self) -> None:
        # Destroying the queue waits for what is outstanding, so that no buffer is written to any more.
        self._open_core = None

    def _started(self, token: int, command: str) -> Future:
        future = Future(self, command)
        self._outstanding[token] = future
        return future


class Ssd:
    """A running emulated SSD; use it as a context manager, or call close()."""

    def __init__(self, profile: Profile) -> None:
        """Starts the device that a profile describes.

        Raises:
            ConfigError: naming what is wrong and the fix.
        """
        self.profile = profile
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._open_core: _core.Ssd | None = core_module().Ssd(core_device(profile))
        self.namespaces = tuple(
            Namespace(nsid, self._core.namespace_bytes(nsid), self._core.lba_bytes(nsid))
            for nsid in range(1, self._core.namespace_count() + 1)
        )

    @classmethod
    def from_profile(
        cls,
        name_or_path: str | os.PathLike[str] | Profile,
        *,
        size: str | int | None = None,
        media: str | None = None,
        seed: int | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002  (named as on the command line)
    ) -> Self:
        """Starts a device from a packaged profile's name, a path, or a Profile.

        Args:
            name_or_path: for example "d7-ps1010".
            size: of the first namespace: bytes, or text such as "8G". Memory is taken only for what is written.
            media: of the first namespace: memory, generated, file:PATH or cow:PATH.
            seed: names generated content.
            set: dotted key -> value, other changes of the profile.
        """
        wanted: dict[str, Any] = {**namespace_overrides(size, media)}
        if seed is not None:
            wanted["seed"] = seed
        wanted |= set or {}
        if isinstance(name_or_path, Profile):
            return cls(with_overrides(name_or_path, wanted))
        return cls(load_profile(name_or_path, wanted))

    @property
    def namespace(self) -> Namespace:
        """The first namespace."""
        return self.namespaces[0]

    def queue(self, depth: int = 128) -> Queue:
        """A queue pair for up to `depth` commands at once."""
        made = Queue(self._core.queue(depth), self.namespace)
        self._queues.add(made)
        return made

    def identify_controller(self) -> bytes:
        """Identify Controller (CNS 01h): 4096 bytes."""
        return self._core.identify(_CNS_CONTROLLER, 0)

    def identify_namespace(self, nsid: int = 1) -> bytes:
        """Identify Namespace (CNS 00h): 4096 bytes."""
        return self._core.identify(_CNS_NAMESPACE, nsid)

    def log_page(self, lid: int, size_bytes: int, nsid: int = 0xFFFFFFFF) -> bytes:
        """The first bytes of a log page: 2 = SMART/health, 1 = error information, ..."""
        return self._core.log_page(lid, size_bytes, nsid)

    def set_faults(self, rules: Sequence[str]) -> None:
        """Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md).

        Raises:
            ConfigError: naming the rule, the word and the fix; then nothing has changed.
        """
        self._core.set_faults(list(rules))

    @property
    def faults(self) -> tuple[FaultCount, ...]:
        """The rules in force, how many commands each was meant for, and how many of these it hit."""
        return tuple(FaultCount(one.rule, one.matched, one.injected) for one in self._core.faults())

    def close(self) -> None:
        """Stops the device's threads and frees its memory and files; its queues fail from then on. Idempotent."""
        if self._open_core is None:
            return
        for queue in self._queues:
            queue._close()
        self._open_core.close()
        self._open_core = None

    @property
    def _core(self) -> _core.Ssd:
        if self._open_core is None:
            raise RuntimeError("the SSD is closed")
        return self._open_core

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
