"""Who has which part of which SSD: checks what is asked for against the policy, opens leases, ends them, remembers.

One thread at a time: the control socket's. The SSDs' own threads know nothing of it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.lab import SOCKET_NAME
from flashmob.units import exact_size

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.lending.config import Orchestra, Rule

STATE_SCHEMA = "flashmob-leases"
STATE_VERSION = 1
# Leases begin and end at whole units of every timing model, and nobody wants one that is smaller.
GRAIN_BYTES = 1 << 20
_MOST_STATE_BYTES = 1 << 20
# Leases' drives are told apart by version 5 UUIDs in this name space.
_IDENTITY_SPACE = uuid.UUID("0d3d1c0e-6f0a-5c55-8f57-5b9c1de7a9c4")


class RefusedError(Exception):
    """Somebody asked for what he may not have, or for nonsense; the text is one sentence that he is told."""


@dataclass(frozen=True)
class Asker:
    """A process that asks, as the kernel says: not as it says itself."""

    uid: int
    gids: frozenset[int]
    pid: int

    @property
    def is_operator(self) -> bool:
        """Who may see and end others' leases: root, and the orchestrator's own user."""
        return self.uid in (0, os.geteuid())


@dataclass(frozen=True)
class Terms:
    """A lease as it was agreed upon."""

    name: str
    ssd: str
    uid: int
    first_byte: int
    size_bytes: int
    queue_pairs: int
    is_read_only: bool
    iops: int  # 0: no limit
    bandwidth: int
    is_kept: bool
    taken_s: float = 0.0
    pid: int = field(default=0, compare=False)

    @property
    def end_byte(self) -> int:
        """One past its last."""
        return self.first_byte + self.size_bytes


class Lender:
    """The leases of one orchestrator."""

    def __init__(
        self,
        config: Orchestra,
        servers: Mapping[str, _core.Server],
        folder: Path,
        audit: Callable[..., None],
    ) -> None:
        """`folder` is where the leases' sockets go; `audit(event, **values)` writes a record."""
        self._config = config
        self._servers = servers
        self._folder = folder
        self._audit = audit
        self._state = None if config.state is None else Path(config.state)
        self._leases: dict[str, Terms] = {}

    def path(self, name: str) -> str:
        """The socket of a lease."""
        return str(self._folder / name / SOCKET_NAME)

    def rule(self, asker: Asker) -> Rule:
        """The first that fits.

        Raises:
            RefusedError: where none does.
        """
        for rule in self._config.allow:
            if rule.fits(asker.uid, asker.gids):
                return rule
        raise RefusedError(f"uid {asker.uid} may have no lease; the operator's [[allow]] says who may")

    def take(self, asker: Asker, wanted: Mapping[str, Any]) -> Terms:
        """Opens a lease.

        Raises:
            RefusedError: saying why not; nothing has changed then.
        """
        asked = _Wanted.of(wanted)
        rule = self.rule(asker)
        if len(self._leases) >= self._config.max_leases:
            raise RefusedError(f"there are {self._config.max_leases} leases already, which is max_leases")
        server = self._servers.get(asked.ssd)
        if server is None or (rule.ssds and asked.ssd not in rule.ssds):
            raise RefusedError(f"there is no SSD called {asked.ssd} that uid {asker.uid} may have leases of")
        if not asked.is_read_only and not rule.write:
            raise RefusedError(f"uid {asker.uid} may only read; ask for a lease that is read-only")
        if asked.is_kept and not rule.keep:
            raise RefusedError(f"uid {asker.uid} may not keep leases beyond the process that takes them")
        self._check_quotas(asker.uid, rule, asked)
        first, size = self._place(server, asker.uid, rule, asked)
        terms = Terms(
            name=f"{asked.ssd}-{secrets.token_hex(4)}",
            ssd=asked.ssd,
            uid=asker.uid,
            first_byte=first,
            size_bytes=size,
            queue_pairs=asked.queue_pairs,
            is_read_only=asked.is_read_only,
            iops=_within(asked.iops, rule.iops),
            bandwidth=_within(asked.bandwidth, rule.bandwidth),
            is_kept=asked.is_kept,
            taken_s=time.time(),
            pid=asker.pid,
        )
        try:
            self._open(terms)
        except ConfigError as error:
            raise RefusedError(str(error)) from None
        self._leases[terms.name] = terms
        self._audit("taken", path=self.path(terms.name), **asdict(terms))
        if terms.is_kept and not self._save():
            self.end(terms.name, "it could not be kept")
            raise RefusedError(f"{self._state} cannot be written, so that no lease can be kept")
        return terms

    def _check_quotas(self, uid: int, rule: Rule, asked: _Wanted) -> None:
        own = [lease for lease in self._leases.values() if lease.uid == uid]
        if len(own) >= rule.leases:
            raise RefusedError(f"uid {uid} has {len(own)} leases, which is as many as it may have")
        pairs = sum(lease.queue_pairs for lease in own)
        if pairs + asked.queue_pairs > rule.queue_pairs:
            raise RefusedError(
                f"uid {uid} has {pairs} queue pairs and may have {rule.queue_pairs} in all; ask for fewer"
            )

    def _place(self, server: _core.Server, uid: int, rule: Rule, asked: _Wanted) -> tuple[int, int]:
        """Where the lease lies: where it was asked for, or in the first room that is large enough."""
        capacity = server.namespace_bytes(1)
        end = min(capacity, rule.end or capacity)
        taken = sorted(
            (lease.first_byte, lease.end_byte)
            for lease in self._leases.values()
            if lease.ssd == asked.ssd and not (lease.is_read_only and asked.is_read_only)
        )
        left = None
        if rule.size is not None:
            left = rule.size - sum(lease.size_bytes for lease in self._leases.values() if lease.uid == uid)
        wanted = asked.size or left
        if left is not None and wanted is not None and wanted > max(left, 0):
            raise RefusedError(f"uid {uid} may have {exact_size(rule.size or 0)} in all; ask for less")
        if asked.first is not None:
            first = asked.first
            size = wanted or max(end - first, 0)
            if first < rule.first or size == 0 or first + size > end:
                raise RefusedError(
                    f"uid {uid} may have bytes {rule.first} to {end} of {asked.ssd}; ask for some of those"
                )
            if any(first < other_end and begin < first + size for begin, other_end in taken):
                raise RefusedError("some of these bytes are lent already; take others, or let the SSD find some")
            return first, size
        for begin, room in _gaps(taken, rule.first, end):
            if room >= (wanted or GRAIN_BYTES):
                return begin, wanted or room
        raise RefusedError(f"{asked.ssd} has no room of that size left for uid {uid}; ask for less")

    def _open(self, terms: Terms) -> None:
        options = core_module().LeaseOptions()
        identity = uuid.uuid5(_IDENTITY_SPACE, terms.name)
        options.name = terms.name
        options.nqn = f"nqn.2014-08.org.nvmexpress:uuid:{identity}"
        options.serial = f"FM{identity.hex[:18].upper()}"
        options.vfio_user_path = self.path(terms.name)
        options.first_byte, options.size_bytes = terms.first_byte, terms.size_bytes
        options.queue_pairs = terms.queue_pairs
        options.is_read_only = terms.is_read_only
        options.max_commands_per_s, options.max_bytes_per_s = terms.iops, terms.bandwidth
        options.uid = terms.uid
        self._servers[terms.ssd].open_lease(options)
        try:
            self._hand_over(terms)
        except OSError as error:
            self._close(terms)
            raise ConfigError(f"{self.path(terms.name)} cannot be given to uid {terms.uid}: {error.strerror}") from None

    def _hand_over(self, terms: Terms) -> None:
        """Lets the lessee reach the socket, and nobody else. The folder stays ours: nothing in it can be replaced."""
        if terms.uid == os.geteuid():
            return
        (self._folder / terms.name).chmod(0o711)
        os.chown(self.path(terms.name), terms.uid, -1, follow_symlinks=False)

    def _close(self, terms: Terms) -> None:
        self._servers[terms.ssd].close_lease(terms.name)
        with suppress(OSError):
            (self._folder / terms.name).rmdir()

    def end(self, name: str, why: str, by: Asker | None = None) -> None:
        """Takes a lease back: its consumer's commands are over when this returns. Of an unknown name: nothing."""
        terms = self._leases.pop(name, None)
        if terms is None:
            return
        stats = next((one for one in self._servers[terms.ssd].leases() if one.name == name), None)
        self._close(terms)
        done = {} if stats is None else {key: getattr(stats, key) for key in _COUNTERS}
        self._audit("ended", lease=name, uid=terms.uid, why=why, by_uid=None if by is None else by.uid, **done)
        if terms.is_kept:
            self._save()

    def release(self, asker: Asker, name: str) -> None:
        """Ends a lease of the asker's, or for an operator anybody's.

        Raises:
            RefusedError: where it is none of his; whether it exists is then not said.
        """
        terms = self._leases.get(name)
        if terms is None or not (terms.uid == asker.uid or asker.is_operator):
            raise RefusedError(f"you have no lease called {name!r:.80}; `flashmob lease list` says which you have")
        self.end(name, "released" if terms.uid == asker.uid else "revoked", asker)

    def listed(self, asker: Asker) -> list[dict[str, Any]]:
        """The asker's leases; for an operator all."""
        stats = {one.name: one for server in self._servers.values() for one in server.leases()}
        return [
            self.said(terms) | {key: getattr(stats[terms.name], key) for key in _COUNTERS if terms.name in stats}
            for terms in self._leases.values()
            if terms.uid == asker.uid or asker.is_operator
        ]

    def said(self, terms: Terms) -> dict[str, Any]:
        """A lease in plain data."""
        path = self.path(terms.name)
        return {**asdict(terms), "path": path, "target": f"vfio-user:{path}"}

    def restore(self) -> None:
        """Opens again what was kept. What the policy, or the SSD, does not allow any more ends.

        Raises:
            ConfigError: where the file says something that this version does not know.
        """
        for terms in _read_state(self._state):
            # A user's groups are known of a process alone, and so are what a group's rule allowed.
            asker = Asker(terms.uid, frozenset(), 0)
            try:
                self._check_kept(asker, terms)
                self._open(terms)
            except (ConfigError, RefusedError) as error:
                self._audit("ended", lease=terms.name, uid=terms.uid, why=str(error), by_uid=None)
                continue
            self._leases[terms.name] = terms
            self._audit("restored", path=self.path(terms.name), **asdict(terms))
        self._save()

    def _check_kept(self, asker: Asker, terms: Terms) -> None:
        if terms.ssd not in self._servers:
            raise RefusedError(f"there is no SSD called {terms.ssd} any more")
        # The user's own rule decides, unless a group's before it did: of those nobody knows whether they fit.
        rules = []
        for rule in self._config.allow:
            is_own = rule.fits(asker.uid, asker.gids)
            if is_own or rule.gid is not None:
                rules.append(rule)
            if is_own:
                break
        if not any(
            rule.keep and (rule.write or terms.is_read_only) and (not rule.ssds or terms.ssd in rule.ssds)
            for rule in rules
        ):
            raise RefusedError(f"the policy does not allow uid {terms.uid} such a lease any more")

    def _save(self) -> bool:
        """Writes what is kept; readers see the old text or the new one. Whether that could be done."""
        if self._state is None:
            return True
        kept = [asdict(terms) for terms in self._leases.values() if terms.is_kept]
        text = json.dumps({"schema": STATE_SCHEMA, "schema_version": STATE_VERSION, "leases": kept}, indent=1)
        new = self._state.with_name(self._state.name + ".new")
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._state)
        except OSError as error:
            self._audit("trouble", said=f"{self._state} cannot be written: {error.strerror}")
            return False
        return True


_COUNTERS = (
    "is_attached",
    "attached_ever",
    "refused",
    "read_commands",
    "write_commands",
    "read_bytes",
    "written_bytes",
)


def _within(asked: int, most: int | None) -> int:
    """A rate that was asked for, as the rule allows it; 0: none."""
    if most is None:
        return asked
    return min(asked, most) if asked else most


def _gaps(taken: Iterable[tuple[int, int]], begin: int, end: int) -> Iterable[tuple[int, int]]:
    """What is free between begin and end: where, and how much, in whole grains."""
    at = begin
    for first, last in [*taken, (end, end)]:
        start = -(-at // GRAIN_BYTES) * GRAIN_BYTES
        room = (min(first, end) - start) // GRAIN_BYTES * GRAIN_BYTES
        if room > 0:
            yield start, room
        at = max(at, last)


def _read_state(path: Path | None) -> list[Terms]:
    if path is None or not path.exists():
        return []
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MOST_STATE_BYTES))
        if said["schema"] != STATE_SCHEMA or said["schema_version"] != STATE_VERSION:
            raise ValueError("another version's")
        return [Terms(**one) for one in said["leases"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path}: is not what an orchestrator of this version writes ({error}); repair it, or remove it, which "
            "ends the leases that were kept"
        ) from None


@dataclass(frozen=True)
class _Wanted:
    """What was asked for, checked for its form alone."""

    ssd: str
    size: int | None
    first: int | None
    queue_pairs: int
    is_read_only: bool
    iops: int
    bandwidth: int
    is_kept: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Wanted:
        known = {"ssd", "size", "first", "queue_pairs", "read_only", "iops", "bandwidth", "keep"}
        if unknown := sorted(set(given) - known):
            raise RefusedError(f"{unknown[0]!r:.80} is nothing that a lease has; it has {', '.join(sorted(known))}")
        ssd = given.get("ssd")
        if not isinstance(ssd, str) or len(ssd) > 64 or not ssd.isprintable():
            raise RefusedError("ssd must be the name of one")
        size, first = _number(given, "size"), _number(given, "first")
        for key, value in (("size", size), ("first", first)):
            if value is not None and value % GRAIN_BYTES:
                raise RefusedError(f"{key} must be a multiple of {GRAIN_BYTES} bytes (1 MiB); round it")
        if size == 0:
            raise RefusedError("size = 0 is no size; give one, or leave it out")
        return cls(
            ssd=ssd,
            size=size,
            first=first,
            queue_pairs=_number(given, "queue_pairs", least=1, most=4096) or 1,
            is_read_only=_flag(given, "read_only"),
            iops=_number(given, "iops", least=1, most=10**12) or 0,
            bandwidth=_number(given, "bandwidth", least=1, most=10**12) or 0,
            is_kept=_flag(given, "keep"),
        )


def _number(given: Mapping[str, Any], key: str, least: int = 0, most: int = 1 << 60) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RefusedError(f"{key} must be a whole number from {least} to {most}")
    return value


def _flag(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise RefusedError(f"{key} must be true or false")
    return value
