"""What `flashmob orchestrate` reads: the SSDs that it lends, where it is asked for them, and who may have what."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.explain import explain
from flashmob.inputs import parse_settings, read_settings
from flashmob.lab import Address, Name, ServedSsd
from flashmob.models import Count, Size
from flashmob.units import parse_rate

if TYPE_CHECKING:
    from flashmob import _core

MAX_LEASES = 256
# A vfio-user door has a thread and some descriptors of its own.
_DEFAULT_LEASES = 64


def _user(value: object) -> int:
    if isinstance(value, str) and not value.isdigit():
        try:
            return pwd.getpwnam(value).pw_uid
        except KeyError:
            raise ValueError("name a user of this machine, or give a number") from None
    return _identifier(value)


def _group(value: object) -> int:
    if isinstance(value, str) and not value.isdigit():
        try:
            return grp.getgrnam(value).gr_gid
        except KeyError:
            raise ValueError("name a group of this machine, or give a number") from None
    return _identifier(value)


def _identifier(value: object) -> int:
    number = int(value) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 32:
        raise ValueError("give a name, or a number from 0 to 4294967294")
    return number


def _whole_rate(value: object) -> int:
    return int(parse_rate(value))


Uid = Annotated[int, BeforeValidator(_user)]
Gid = Annotated[int, BeforeValidator(_group)]
Bytes = Annotated[Size, Field(gt=0)]
Iops = Annotated[int, BeforeValidator(_whole_rate), Field(ge=1, le=10**12)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Section):
    """[[allow]]: what a user, or the members of a group, may have. The first rule that fits is the one."""

    uid: Uid | None = None
    gid: Gid | None = None
    ssds: tuple[Name, ...] = ()  # none: all
    leases: Annotated[Count, Field(ge=1, le=MAX_LEASES)] = 1
    queue_pairs: Annotated[Count, Field(ge=1, le=4096)] = 1  # of all their leases together
    size: Bytes | None = None  # of all their leases together; None: as much as is free
    first: Annotated[Size, Field(ge=0)] = 0  # leases lie from here on ...
    end: Bytes | None = None  # ... to here; None: to the end
    write: bool = False
    keep: bool = False  # leases may outlive who took them
    iops: Iops | None = None  # of each lease, at most; None: no limit
    bandwidth: Bytes | None = None  # bytes a second, the same

    @model_validator(mode="after")
    def _is_somebodys(self) -> Self:
        if (self.uid is None) == (self.gid is None):
            raise ValueError("an [[allow]] is for one uid or one gid; give it one of them")
        if self.end is not None and self.end <= self.first:
            raise ValueError("end lies behind first; correct one of them")
        return self

    def fits(self, uid: int, gids: frozenset[int]) -> bool:
        """Whether it is the rule for a process of these."""
        return self.uid == uid if self.gid is None else self.gid in gids


class LentSsd(ServedSsd):
    """[[ssd]]: an SSD without doors, parts of which are lent."""

    @model_validator(mode="after")
    def _has_a_door(self) -> Self:
        given = {
            key: getattr(self, key)
            for key in ("vfio_user", "socket_mode", "tcp", "host_nqns", "hosts", "allow", "tls", "tls_key")
        }
        if doors := [key for key, value in given.items() if value not in (None, ())]:
            raise ValueError(f"{doors[0]} is for an SSD that is served; one that is lent has no doors but its leases'")
        if self.isolate:
            raise ValueError("isolate would be ignored: an orchestrator is one process; run one for each SSD")
        if self.engine == "gpu":
            raise ValueError('engine = "gpu" cannot lend parts of an SSD; leave it out')
        return self

    def doors(self) -> _core.ServerOptions:
        """None; leases may be opened."""
        options: _core.ServerOptions = core_module().ServerOptions()
        options.lends = True
        return options


class Orchestra(_Section):
    """The file of `flashmob orchestrate`."""

    socket: str
    leases: str | None = None
    state: str | None = None
    audit: str | None = None
    metrics: Address | None = None
    json_log: str | None = None
    max_leases: Annotated[Count, Field(ge=1, le=MAX_LEASES)] = _DEFAULT_LEASES
    ssd: tuple[LentSsd, ...] = ()
    allow: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if not self.ssd:
            raise ValueError("there is no SSD; write a [[ssd]] table")
        if not self.allow:
            raise ValueError("nobody may have a lease; write an [[allow]] table")
        names = [ssd.name for ssd in self.ssd]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f'two SSDs are called "{twice}"; give each [[ssd]] a name of its own')
        for rule in self.allow:
            if unknown := [name for name in rule.ssds if name not in names]:
                raise ValueError(f"an [[allow]] names the SSD {unknown[0]}, and there is no such [[ssd]]; correct it")
            if rule.uid not in (None, os.geteuid()) and os.geteuid() != 0:
                raise ValueError(
                    f"an [[allow]] is for uid {rule.uid}, who can be let in by root alone; run the orchestrator as "
                    "root, or lend to its own user only"
                )
        if any(rule.keep for rule in self.allow) and self.state is None:
            raise ValueError("keep = true needs a file that says what was kept; give state = FILE")
        return self


def load(path: str) -> Orchestra:
    """Reads the file; its paths are relative to its folder.

    Raises:
        ConfigError: naming file, key and fix.
    """
    try:
        text = read_settings(Path(path).expanduser(), path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check the path and its permissions") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}; correct that line") from None
    return checked(parse_settings(text, path), path)


def checked(data: dict[str, Any], where: str) -> Orchestra:
    """From plain data; `where` names it in errors."""
    try:
        return Orchestra.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, Orchestra, where)) from None
