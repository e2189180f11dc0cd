"""An emulated SSD in this process: whole blocks at once, or queues with futures.

Example:
    with flashmob.Ssd("d7-ps1010", size="1G") as ssd:
        ssd.write(0, b"hello".ljust(512))
        print(bytes(ssd.read(0))[:5])

        queue = ssd.queue(depth=128)
        buffer = numpy.empty(4096, numpy.uint8)
        queue.read(0, buffer).result()
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from flashmob import smart
from flashmob.buffers import BufferLike, held_buffer, whole
from flashmob.checks import PCI, checked_seconds
from flashmob.device import check_engine_keys, core_device, core_module
from flashmob.errors import ConfigError, ControllerFatalError
from flashmob.explain import short
from flashmob.faults import FaultCount, rule_list
from flashmob.identify import (
    IdentifyController,
    IdentifyNamespace,
    IdentifyNamespaceKeyValue,
    IdentifyNamespaceZoned,
)
from flashmob.key_value import KeyValueCommands
from flashmob.keywords import SizeLike, SsdKeywords
from flashmob.models import Profile, Timing
from flashmob.options import is_target
from flashmob.profiles import changes, changes_errors, load_profile, namespace_overrides, with_overrides
from flashmob.queues import Future, Namespace, Queue
from flashmob.smart import SmartLog
from flashmob.structures import html_facts
from flashmob.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmob import _core

__all__ = ["Future", "Namespace", "Queue", "Ssd"]

_CNS_NAMESPACE = 0
_CNS_SET_NAMESPACE = 5
_CSI_KEY_VALUE = 1
_CSI_ZONED = 2
_CNS_CONTROLLER = 1
# As long as Linux' driver waits (nvme_core.io_timeout).
DEFAULT_TIMEOUT_S = 30.0
# Beyond this a wait lasts longer than any machine.
_LONGEST_TIMEOUT_S = 1e9
_MAX_DEPTH = 1024
_MAX_LOG_BYTES = 1 << 20
# Keywords of Ssd() by the keys that they change.
_KEYWORDS = {"subsystem.namespaces.0.size_bytes": "size", "subsystem.namespaces.0.media": "media", "seed": "seed"}
# Enough that large reads and writes keep several commands in flight.
_OWN_DEPTH = 32


class Ssd(KeyValueCommands):
    """A running emulated SSD; use it as a context manager, or call close().

    Attributes:
        profile: the device as it runs.
        namespaces: its namespaces, in the order of their NSIDs.
        timeout_s: how long a wait lasts before TimeoutError, where it is not told otherwise.
    """

    def __init__(
        self,
        profile: str | os.PathLike[str] | Profile,
        *,
        size: SizeLike | None = None,
        media: str | None = None,
        seed: int | None = None,
        faults: Sequence[str] | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002  (named as on the command line)
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Starts a device from a packaged profile's name, a path, or a Profile.

        Args:
            profile: for example "d7-ps1010", "my-drive.toml" or load_profile("d7-ps1010").
            size: of the first namespace: bytes, or text such as "8G". Memory is taken only for what is written.
            media: of the first namespace: memory, generated, file:PATH, direct:PATH or cow:PATH.
            seed: names generated content, and steers faults drawn by chance.
            faults: what the SSD is to do wrong, one rule each (docs/guide/faults.md), instead of the profile's.
            set: dotted key -> value, other changes of the profile: {"timing.read_latency_ns": "20us"}.
            timeout_s: how long a wait lasts before TimeoutError, in seconds; math.inf waits forever.

        Raises:
            ConfigError: naming what is wrong and the fix.
        """
        self.timeout_s = checked_seconds("timeout_s", timeout_s)
        with changes_errors():
            self.profile = _checked_profile(profile, size, media, seed, faults, set)
            config = core_device(self.profile)
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._own: Queue | None = None
        self._own_lock = threading.Lock()
        self._open_core: _core.Ssd | None = core_module().Ssd(config)
        try:
            self._open_core.set_timeout(int(min(self.timeout_s, _LONGEST_TIMEOUT_S) * 1e9))
            sets = [one.command_set for one in self.profile.subsystem.namespaces]
            self.namespaces = tuple(
                self._described(nsid, sets[nsid - 1]) for nsid in range(1, self._core.namespace_count() + 1)
            )
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_profile(cls, name_or_path: str | os.PathLike[str] | Profile, **options: Unpack[SsdKeywords]) -> Self:
        """The same as Ssd(name_or_path, ...)."""
        return cls(name_or_path, **options)

    @property
    def namespace(self) -> Namespace:
        """The first namespace."""
        return self._namespace(None)

    def read(self, lba: int, blocks: int = 1, *, namespace: Namespace | int | None = None) -> NDArray[np.uint8]:
        """Reads blocks and waits for them. Any thread may call it; for several commands at once take a queue().

        Args:
            lba: the first logical block.
            blocks: how many.
            namespace: which one, or its NSID; by default the first.

        Returns:
            What was read, as bytes (numpy.uint8) in new memory; it offers the buffer protocol and DLPack.

        Raises:
            NvmeError: if the device answers with an error.
            TimeoutError: if it does not answer.
            ValueError: if the blocks do not exist.
        """
        target = self._namespace(namespace)
        count = whole("blocks", blocks)
        if count < 1:
            raise ValueError(f"blocks = {blocks} is not possible: use at least 1")
        self._check_range(target, lba, count)
        data = np.empty(count * target.lba_bytes, np.uint8)
        self._transfer("read", lba, held_buffer(data, target, writable=True), target)
        return data

    def read_into(self, lba: int, buffer: BufferLike, *, namespace: Namespace | int | None = None) -> None:
        """Reads into all of `buffer`, a whole number of blocks, and waits; see read() and Queue.read()."""
        target = self._namespace(namespace)
        self._transfer("read", lba, held_buffer(buffer, target, writable=True), target)

    def write(self, lba: int, data: BufferLike, *, namespace: Namespace | int | None = None) -> None:
        """Writes all of `data`, a whole number of blocks, and waits until it is written. Any thread may call it.

        Raises:
            NvmeError: if the device answers with an error.
            TimeoutError: if it does not answer.
            ValueError: if the data is no whole number of blocks, or the blocks do not exist.
        """
        target = self._namespace(namespace)
        self._transfer("write", lba, held_buffer(data, target, writable=False), target)

    def flush(self, *, namespace: Namespace | int | None = None) -> None:
        """Waits until everything written is on the medium."""
        target = self._namespace(namespace)
        self._at_once(lambda queue: queue.flush(namespace=target))

    def queue(self, depth: int = 128) -> Queue:
        """A queue pair for up to `depth` commands at once: 1 to 1024. Requests beyond that wait their turn.

        Raises:
            ConfigError: if there can be no such queue, or no further one.
        """
        if not 1 <= whole("depth", depth) <= _MAX_DEPTH:
            raise ConfigError(f"depth = {depth} is not possible: use 1 to {_MAX_DEPTH}")
        made = Queue(self, self._core.queue(depth), depth)
        self._queues.add(made)
        return made

    def identify_controller(self) -> IdentifyController:
        """Identify Controller (CNS 01h): its bytes, with fields as attributes."""
        return IdentifyController(self._core.identify(_CNS_CONTROLLER, 0))

    def identify_namespace(self, nsid: int = 1) -> IdentifyNamespace:
        """Identify Namespace (CNS 00h): its bytes, with fields as attributes."""
        return IdentifyNamespace(self._core.identify(_CNS_NAMESPACE, self._namespace(nsid).nsid))

    def identify_zoned(self, nsid: int = 1) -> IdentifyNamespaceZoned:
        """Identify Namespace of the Zoned Namespace command set (CNS 05h): zone size and limits.

        Raises:
            NvmeError: for a namespace of another command set.
        """
        return IdentifyNamespaceZoned(self._core.identify(_CNS_SET_NAMESPACE, self._namespace(nsid).nsid, _CSI_ZONED))

    def identify_kv(self, nsid: int = 1) -> IdentifyNamespaceKeyValue:
        """Identify Namespace of the Key Value command set (CNS 05h): size, what is used of it, and limits.

        Raises:
            NvmeError: for a namespace of another command set.
        """
        return IdentifyNamespaceKeyValue(
            self._core.identify(_CNS_SET_NAMESPACE, self._namespace(nsid).nsid, _CSI_KEY_VALUE)
        )

    def smart_log(self) -> SmartLog:
        """SMART / Health Information (LID 02h): its bytes, with fields as attributes."""
        return SmartLog(self.log_page(smart.LID, SmartLog.structure_bytes))

    def log_page(self, lid: int, size_bytes: int, nsid: int = 0xFFFFFFFF) -> bytes:
        """The first bytes of a log page: 2 = SMART/health, 1 = error information, ...

        Raises:
            NvmeError: if the device does not have it.
        """
        if not 0 <= whole("lid", lid) <= 0xFF:
            raise ValueError(f"lid = {lid} is not possible: use 0 to 255")
        if not 1 <= whole("size_bytes", size_bytes) <= _MAX_LOG_BYTES:
            raise ValueError(f"size_bytes = {size_bytes} is not possible: use 1 to {_MAX_LOG_BYTES}")
        return self._core.log_page(lid, size_bytes, nsid)

    def set_faults(self, rules: Sequence[str]) -> None:
        """Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md).

        Raises:
            ConfigError: naming the rule, the word and the fix; then nothing has changed.
        """
        self._core.set_faults(rule_list(rules))

    @property
    def faults(self) -> tuple[FaultCount, ...]:
        """The rules in force, how many commands each was meant for, and how many of these it hit."""
        return tuple(FaultCount(one.rule, one.matched, one.injected) for one in self._core.faults())

    @property
    def fatal(self) -> bool:
        """Whether the controller has died (CSTS.CFS); then every wait raises ControllerFatalError."""
        return self._core.fatal()

    def reset(self) -> None:
        """Resets the controller and enables it again: the way out of a fatal status, and of commands that are lost.

        What is outstanding is never completed, and the queues made before are closed. Data and faults stay.

        Raises:
            TimeoutError, ControllerFatalError: if the controller does not come back.
        """
        core = self._core
        for queue in list(self._queues):
            queue._abandon()
        core.reset()

    def close(self) -> None:
        """Stops the device's threads and frees its memory and files; its queues fail from then on.

        What is outstanding is waited for, at most until nothing has completed for timeout_s; what a fault has lost
        is not waited for. Idempotent.
        """
        core, queues = self._open_core, list(self._queues)
        if core is None:
            return
        try:
            for queue in queues:
                queue.close()
        finally:
            self._open_core = None
            core.close()

    def _described(self, nsid: int, command_set: str) -> Namespace:
        if command_set != "kv":
            return Namespace(nsid, self._core.namespace_bytes(nsid), self._core.lba_bytes(nsid), command_set)
        identify = IdentifyNamespaceKeyValue(self._core.identify(_CNS_SET_NAMESPACE, nsid, _CSI_KEY_VALUE))
        return Namespace(nsid, identify.nsze, 0, command_set)

    def _namespace(self, wanted: Namespace | int | None) -> Namespace:
        if wanted is None:
            if not self.namespaces:
                raise ValueError("the SSD has no namespace; add one to the profile's subsystem.namespaces")
            return self.namespaces[0]
        nsid = wanted.nsid if isinstance(wanted, Namespace) else wanted
        for one in self.namespaces:
            if one.nsid == nsid:
                return one
        raise ValueError(f"namespace {short(wanted)} does not exist: use 1 to {len(self.namespaces)}")

    def _check_range(self, target: Namespace, lba: int, blocks: int) -> None:
        first = whole("lba", lba)
        if target.lba_bytes == 0:
            raise ValueError(f"namespace {target.nsid} holds keys and values (command set kv), and has no blocks")
        if first < 0 or first + blocks > target.blocks:
            last = f" to {first + blocks - 1}" if blocks > 1 else ""
            raise ValueError(
                f"LBA {first}{last} does not exist: namespace {target.nsid} has LBA 0 to {target.blocks - 1}, "
                f"{target.lba_bytes} bytes each"
            )

    def _transfer(self, kind: Literal["read", "write"], lba: int, held: _core.HeldBuffer, target: Namespace) -> None:
        self._check_range(target, lba, held.nbytes // target.lba_bytes)
        self._at_once(lambda queue: queue._start(kind, lba, held, target))

    def _at_once(self, start: Callable[[Queue], Future]) -> None:
        with self._own_lock:
            if self._own is None or self._own._open_core is None:
                self._own = self.queue(_OWN_DEPTH)
            queue = self._own
            future = start(queue)
            try:
                future.result()
            except BaseException:
                if future.status() is None:
                    # The memory is the caller's again: a late answer must not be written to it.
                    self._own = None
                    queue._abandon()
                raise

    def _only_lost_left(self) -> bool:
        """Whether nothing more will be completed, because faults have lost all that is outstanding."""
        for queue in list(self._queues):
            if queue._open_core is not None:
                queue._take_in()
        return self._core.only_lost_left()

    def _require_alive(self) -> None:
        if self._core.fatal():
            raise ControllerFatalError(
                "the controller reports a fatal status (CSTS.CFS) and completes nothing any more" + self._faults_hint()
            )

    def _faults_hint(self) -> str:
        """For whoever waits in vain: what the device was told to do wrong."""
        if self._open_core is None:
            return ""
        hit = [f"{one.rule} ({one.injected} of {one.matched} hit)" for one in self.faults if one.injected]
        return f"; faults: {', '.join(hit)}" if hit else ""

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

    def __repr__(self) -> str:
        sizes = ", ".join(format_size(one.size_bytes) for one in self.namespaces)
        return f"<Ssd {self.profile.name} {sizes}{' closed' if self._open_core is None else ''}>"

    def _repr_html_(self) -> str:
        timing = self.profile.timing
        facts: dict[str, object] = {
            "state": "closed" if self._open_core is None else "running",
            "reads": _timing_text(timing, "read"),
            "writes": _timing_text(timing, "write"),
        }
        for one in self.namespaces:
            media = self.profile.subsystem.namespaces[one.nsid - 1].media
            size = format_size(one.size_bytes)
            blocks = f"{one.blocks:,} blocks of {one.lba_bytes} bytes" if one.lba_bytes else "keys and values"
            facts[f"namespace {one.nsid}"] = f"{size}, {blocks}, {media}"
        for index, fault in enumerate(self.faults if self._open_core else ()):
            facts[f"fault {index + 1}"] = f"{fault.rule}: hit {fault.injected:,} of {fault.matched:,} commands"
        return html_facts(f"Ssd {self.profile.name}", facts)


def _checked_profile(
    profile: str | os.PathLike[str] | Profile,
    size: SizeLike | None,
    media: str | None,
    seed: int | None,
    faults: Sequence[str] | None,
    changed_keys: Mapping[str, Any] | None,
) -> Profile:
    if is_target(profile):
        whose = "a drive of this machine" if str(profile).startswith(PCI) else "another process's"
        raise ConfigError(
            f"Ssd() makes an SSD in this process, but {profile} is {whose}; use flashmob.bench() for that"
        )
    changed = changes(changed_keys)
    wanted: dict[str, Any] = {**namespace_overrides(size, media)}
    if seed is not None:
        wanted["seed"] = seed
    if faults is not None:
        wanted["faults"] = rule_list(faults)
        core_module().check_faults(wanted["faults"])
    given = {"size": size, "media": media, "seed": seed}
    named = {
        key: f"{keyword} = {short(given[keyword])}" for key, keyword in _KEYWORDS.items() if given[keyword] is not None
    }
    loaded = profile if isinstance(profile, Profile) else load_profile(profile)
    made = with_overrides(with_overrides(loaded, wanted, named), changed)
    check_engine_keys(changed, made.engine.kind)
    return made


def _timing_text(timing: Timing, direction: Literal["read", "write"]) -> str:
    if timing.model == "none":
        return "at once"
    of_model = timing.read_iops if direction == "read" else timing.write_iops
    rate = timing.rate_at(direction, timing.unit_bytes) if timing.model == "nand" else of_model
    return f"{format_rate(rate)}, {format_duration(timing.idle_latency_ns(direction))}"
