"""What `flashmob serve` serves: one SSD from the command line, or several from a lab file (TOML).

A lab file has `metrics` and `json_log` if wanted, and one [[ssd]] table per SSD: its name, profile and doors, and
changes of the profile. Whatever is wrong becomes one ConfigError that names file, key and fix.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from flashmob.checks import check_cores, check_secrecy
from flashmob.device import core_device, core_module, on_engine
from flashmob.errors import ConfigError
from flashmob.explain import explain, short
from flashmob.models import Count, Profile, Size, Subsystem
from flashmob.network import numeric_address
from flashmob.profiles import door_mistyped, load_profile, namespace_overrides, with_overrides
from flashmob.rights import DOORS, Allow, Level, levels_by_door
from flashmob.units import exact_size, parse_address

if TYPE_CHECKING:
    from flashmob import _core

# What SPDK's vfio-user client insists on; ours and QEMU take any name.
SOCKET_NAME = "cntrl"
# Names of SSDs become NQNs and serial numbers by way of version 5 UUIDs in this name space.
_IDENTITY_SPACE = uuid.UUID("6b1f4c58-5c0c-5d0e-9a3e-0f1a5a5d0c01")
# Keys of an [[ssd]] that stand for one of the profile.
_ENGINE_KEYS = {"units": "engine.units", "workers": "engine.workers", "seed": "seed", "faults": "faults"}
_STORE_KEYS = {"size": "subsystem.namespaces.0.size_bytes", "media": "subsystem.namespaces.0.media"}
# What a UNIX socket's address holds, its terminating zero byte included.
_SOCKET_PATH_BYTES = 108

DEFAULT_NAME = "ssd0"


def _pattern(pattern: str, fix: str) -> AfterValidator:
    """Text of a form; `fix` is what to write, which says more than the expression does."""
    expression = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if expression.fullmatch(text) is None:
            raise ValueError(fix)
        return text

    return AfterValidator(check)


Address = Annotated[str, BeforeValidator(parse_address)]
Name = Annotated[
    str,
    _pattern(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "begin with a letter or digit; then up to 63 of these, '_', '-' and '.'"
    ),
]
Nqn = Annotated[
    str, _pattern(r"nqn\.[!-~]{1,219}", "write an NQN, which begins with nqn. (a Linux host's: cat /etc/nvme/hostnqn)")
]
Key = Annotated[str, _pattern(r"DHHC-1:[!-~]+", "write a DHHC-1 secret, as nvme gen-dhchap-key prints it")]

TlsKey = Annotated[str, _pattern(r"NVMeTLSkey-1:[!-~]+", "write an NVMeTLSkey-1 key, as nvme gen-tls-key prints it")]


def _socket_mode(value: object) -> str:
    """A mode as chmod takes it; TOML's 0o660 is a number."""
    text = f"{value:04o}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    mode = text.removeprefix("0o").zfill(4)
    if mode not in ("0600", "0660"):
        raise ValueError('write "0660" (this user and the group) or "0600" (this user alone)')
    return mode


SocketMode = Annotated[str, BeforeValidator(_socket_mode)]


def _written(info: ValidationInfo, key: str, value: str = "") -> str:
    """A key as the user writes it: an option where the SSD was described by options, else a line of the lab file."""
    option = (info.context or {}).get("options", {}).get(key)
    if option is not None:
        return f"{option} {value}".rstrip()
    return f'{key} = "{value}"' if value else key


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Host(_Section):
    """[[ssd.hosts]]: a host that may connect by NVMe/TCP, what it may do, and how it proves who it is."""

    nqn: Nqn
    key: Key | None = None
    controller_key: Key | None = None
    tls_key: TlsKey | None = None
    allow: Level | None = None
    namespaces: Annotated[tuple[Annotated[Count, Field(ge=1, le=256)], ...], Field(max_length=256)] = ()

    @model_validator(mode="after")
    def _proof_goes_both_ways(self) -> Self:
        if self.controller_key and not self.key:
            raise ValueError("controller_key needs key: only a host that proves itself may ask the same of us")
        return self


class ServedSsd(_Section):
    """[[ssd]]: one SSD: what it is, how it is reached, and who may reach it."""

    name: Name = DEFAULT_NAME
    profile: str
    vfio_user: str | None = None
    socket_mode: SocketMode | None = None
    tcp: Address | None = None
    host_nqns: tuple[Nqn, ...] = ()
    hosts: tuple[Host, ...] = ()
    allow: Allow = ()
    tls: Literal["required", "allowed"] | None = None
    tls_key: TlsKey | None = None
    size: Annotated[Size, Field(ge=0)] | None = None
    media: str | None = None
    units: Count | None = None
    workers: Count | None = None
    engine: Literal["host", "gpu"] | None = None
    sms: Count | None = None
    seed: Count | None = None
    faults: Annotated[tuple[str, ...], Field(max_length=64)] | None = None
    faults_file: str | None = None
    isolate: bool = False
    set: dict[str, Any] = Field(default_factory=dict)
    # Keys that options of the command line gave -> these with their values, for errors that come later.
    _typed: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_door(self, info: ValidationInfo) -> Self:
        folder, address = _written(info, "vfio_user", "FOLDER"), _written(info, "tcp", "[ADDRESS:]PORT")
        if self.vfio_user is None and self.tcp is None:
            raise ValueError(f"{self.name} has no door; give it {folder}, {address} or both")
        if (self.hosts or self.host_nqns) and self.tcp is None:
            hosts = _written(info, "host_nqns" if self.host_nqns else "hosts")
            raise ValueError(
                f"{hosts} is for NVMe/TCP, which alone knows hosts by their NQN; give {self.name} {address} too, or "
                "guard the folder of its socket by permissions"
            )
        if self.socket_mode is not None and self.vfio_user is None:
            raise ValueError(f"{_written(info, 'socket_mode')} is for the socket of vfio-user; give {folder} too")
        if self.vfio_user is not None and not self.vfio_user:
            raise ValueError(f"{_written(info, 'vfio_user')} is empty; give it a folder, or leave it out")
        if self.vfio_user is not None and door_mistyped(self.vfio_user):
            path = self.vfio_user.partition(":")[2]
            raise ValueError(
                f"{folder} is a folder, and {self.vfio_user} names a kind of door; write {path or 'its path'}"
            )
        if self.vfio_user is not None and len(os.fsencode(self.socket_path)) >= _SOCKET_PATH_BYTES:
            raise ValueError(f"{self.socket_path} is too long for a socket; use a folder with a shorter path")
        return self

    @model_validator(mode="after")
    def _no_host_twice(self) -> Self:
        nqns = [*self.host_nqns, *(host.nqn for host in self.hosts)]
        if len(set(nqns)) != len(nqns):
            twice = next(nqn for nqn in nqns if nqns.count(nqn) > 1)
            raise ValueError(f"{self.name} names the host {twice} twice; give it one entry with all of it")
        return self

    @model_validator(mode="after")
    def _rights_go_together(self, info: ValidationInfo) -> Self:
        for door in levels_by_door(self.allow):
            if door and getattr(self, DOORS[door]) is None:
                raise ValueError(f"{_written(info, 'allow')} names the door {door}, which {self.name} has not")
        for host in self.hosts:
            if host.namespaces and (host.allow or self.level("tcp")) == "manage":
                raise ValueError(
                    f"{host.nqn} may manage, which is to work on all namespaces; leave its namespaces out, or allow it "
                    "less"
                )
        return self

    @model_validator(mode="after")
    def _tls_has_a_key(self, info: ValidationInfo) -> Self:
        if self.tls is not None and not self.has_tls_key():
            tls, key = _written(info, "tls", self.tls), _written(info, "tls_key", "FILE")
            raise ValueError(f"{tls} needs a key; give {key} (nvme gen-tls-key makes one)")
        if self.tcp is None and self.has_tls_key():
            raise ValueError(
                f"{_written(info, 'tls_key')} is for NVMe/TCP; give {_written(info, 'tcp', '[ADDR:]PORT')} too"
            )
        return self

    @model_validator(mode="after")
    def _engine_takes_what_it_is_given(self, info: ValidationInfo) -> Self:
        gpu = _written(info, "engine", "gpu")
        given = [_written(info, key) for key in ("units", "workers") if getattr(self, key) is not None]
        if self.engine == "gpu" and given:
            raise ValueError(f"{' and '.join(given)} would be ignored: with {gpu} a kernel on the GPU is the engine")
        if self.faults and self.faults_file is not None:
            raise ValueError(
                f"{_written(info, 'faults')} and {_written(info, 'faults_file')} do not go together: the file's rules "
                "replace all others; write them all there"
            )
        if self.engine == "gpu" and self.tcp is not None:
            raise ValueError(f"{_written(info, 'tcp')} is not possible with {gpu}; use {_written(info, 'vfio_user')}")
        return self

    @property
    def socket_path(self) -> str:
        """The vfio-user door's socket: FOLDER/NAME/cntrl; empty without that door."""
        if self.vfio_user is None:
            return ""
        return str(Path(self.vfio_user).expanduser().absolute() / self.name / SOCKET_NAME)

    def level(self, door: str) -> str:
        """The rights that a door's hosts have; empty where nothing was said."""
        levels = levels_by_door(self.allow)
        return levels.get(door, levels.get("", ""))

    def has_tls_key(self) -> bool:
        """Whether any host can come by TLS."""
        return self.tls_key is not None or any(host.tls_key for host in self.hosts)

    def is_secure(self) -> bool:
        """Whether every host must come by TLS."""
        return self.has_tls_key() and self.tls != "allowed"

    def written(self, key: str) -> str:
        """A key with its value as the user wrote it, for errors."""
        value = getattr(self, key)
        return self._typed.get(key) or f"{self.name}: {key} = {exact_size(value) if key == 'size' else short(value)}"

    def device(self, folder: Path | None = None) -> Profile:
        """The profile with this SSD's changes; a relative path of a profile is one from `folder`.

        Without an identity of its own in the profile the SSD gets one from its name, so that several SSDs differ and
        a host recognises each when it is started again.

        Raises:
            ConfigError: naming the key and the fix.
        """
        name = self.profile
        is_path = name.endswith(".toml") or os.sep in name
        if folder is not None and is_path:
            name = str(folder / Path(name).expanduser())
        wanted: dict[str, Any] = {key: getattr(self, name) for name, key in _ENGINE_KEYS.items()}
        wanted = {key: value for key, value in wanted.items() if value is not None}
        wanted |= namespace_overrides(self.size, self.media)
        named = self._named()
        try:
            device = load_profile(name, overrides=self.set)
        except ConfigError as error:
            # On a command line, what was typed says where it stands.
            if self._typed:
                raise
            raise ConfigError(f"{self.name}: {str(error).replace('--set ', 'set ', 1)}") from None
        device = with_overrides(device, {key: value for key, value in wanted.items() if key not in self.set}, named)
        if self.sms is not None and (self.engine or device.engine.kind) != "gpu":
            raise ConfigError(f"{self.written('sms')} would be ignored: it is for the GPU engine; leave it out")
        if self.sms is not None:
            with_overrides(device, {"engine.sms": self.sms}, {"engine.sms": self.written("sms")})
        try:
            device = on_engine(device, self.engine, self.sms, self.set)
        except ConfigError as error:
            if self._typed:
                raise
            raise ConfigError(f"{self.name}: {error}") from None
        default = Subsystem()
        identity = uuid.uuid5(_IDENTITY_SPACE, self.name)
        own: dict[str, Any] = {}
        if device.subsystem.nqn == default.nqn:
            own["subsystem.nqn"] = f"nqn.2014-08.org.nvmexpress:uuid:{identity}"
        if device.subsystem.serial == default.serial:
            own["subsystem.serial"] = f"FM{identity.hex[:18].upper()}"
        return with_overrides(device, own)

    def _named(self) -> dict[str, str]:
        """Keys of the profile that this SSD's own stand for -> these as the user wrote them, for errors."""
        keys = _ENGINE_KEYS | _STORE_KEYS
        return {dotted: self.written(name) for name, dotted in keys.items() if getattr(self, name) is not None}

    def doors(self) -> _core.ServerOptions:
        """The compiled module's structure."""
        core = core_module()
        options: _core.ServerOptions = core.ServerOptions()
        options.vfio_user_path = self.socket_path
        options.vfio_user_mode = self.socket_mode or ""
        if self.tcp is not None:
            options.tcp_address = numeric_address(self.tcp, "--tcp" if "tcp" in self._typed else f"{self.name}: tcp")
        options.host_nqns = [*self.host_nqns, *(host.nqn for host in self.hosts)]
        options.vfio_user_allow, options.tcp_allow = self.level("vfio-user"), self.level("tcp")
        secrets = []
        for host in self.hosts:
            if host.key is not None or host.tls_key is not None:
                secret = core.HostSecret()
                secret.host_nqn = host.nqn
                secret.host_key = host.key or ""
                secret.controller_key = host.controller_key or ""
                secret.tls_key = host.tls_key or ""
                secrets.append(secret)
        options.host_secrets = secrets
        options.host_rules = [
            (host.nqn, host.allow or "", list(host.namespaces)) for host in self.hosts if host.allow or host.namespaces
        ]
        options.tls = self.tls or ("required" if self.has_tls_key() else "")
        options.tls_key = self.tls_key or ""
        return options

    def server(self, folder: Path | None = None) -> tuple[Profile, _core.Server]:
        """The SSD, made but not started."""
        device = self.device(folder)
        cores = device.engine.cores
        check_cores(f"engine.cores = {','.join(map(str, cores))}", cores)
        return device, core_module().Server(core_device(device, self._named()), self.doors())


class Lab(_Section):
    """A lab file: SSDs, and how to watch them."""

    metrics: Address | None = None
    json_log: str | None = None
    ssd: tuple[ServedSsd, ...] = ()

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        if not self.ssd:
            raise ValueError("there is no SSD; write a [[ssd]] table")
        names = [ssd.name for ssd in self.ssd]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f'two SSDs are called "{twice}"; give each [[ssd]] a name of its own')
        doors = [ssd.tcp for ssd in self.ssd if ssd.tcp is not None and not ssd.tcp.endswith(":0")]
        if len(set(doors)) != len(doors):
            twice = next(door for door in doors if doors.count(door) > 1)
            raise ValueError(f"two SSDs listen at {twice}; give each [[ssd]] a port of its own")
        return self


def load_lab(path: str | os.PathLike[str]) -> Lab:
    """Reads a lab file.

    Raises:
        ConfigError: naming file, key and fix.
    """
    where = os.fspath(path)
    try:
        data = tomllib.loads(Path(where).expanduser().read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}; check the path and its permissions") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not valid TOML: {error}; correct that line") from None
    lab = checked_lab(data, where)
    if any(ssd.tls_key or any(host.key or host.tls_key for host in ssd.hosts) for ssd in lab.ssd):
        check_secrecy(where, where)
    return lab


def checked_ssd(data: Mapping[str, Any], where: str, options: Mapping[str, str] | None = None) -> ServedSsd:
    """One SSD from plain data; `where` names it in errors, `options` are the names of keys on the command line."""
    options = options or {}
    typed = {key: _shown(key, option, data[key]) for key, option in options.items() if key in data}
    try:
        ssd = ServedSsd.model_validate(data, context={"options": options})
    except ValidationError as error:
        raise ConfigError(explain(error, ServedSsd, where, named=typed)) from None
    ssd._typed.update(typed)
    return ssd


def _shown(key: str, option: str, value: Any) -> str:
    """An option with its value, for errors; a key is not repeated."""
    if key.endswith("_key"):
        return option
    return " ".join(
        f"{option} {shlex.quote(str(one)[:100])}" for one in (value if isinstance(value, list) else [value])
    )


def checked_lab(data: Mapping[str, Any], where: str) -> Lab:
    """A lab from plain data; `where` names it in errors."""
    try:
        return Lab.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, Lab, where)) from None
