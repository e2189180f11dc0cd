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
from flashmob.profiles import load_profile, namespace_overrides, with_overrides
from flashmob.units import parse_address

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


def _written(info: ValidationInfo, key: str, value: str = "") -> str:
    """A key as the user writes it: an option where the SSD was described by options, else a line of the lab file."""
    option = (info.context or {}).get("options", {}).get(key)
    if option is not None:
        return f"{option} {value}".rstrip()
    return f'{key} = "{value}"' if value else key


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Host(_Section):
    """[[ssd.hosts]]: a host that may connect by NVMe/TCP; with a key it must prove who it is."""

    nqn: Nqn
    key: Key | None = None
    controller_key: Key | None = None

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
    tcp: Address | None = None
    host_nqns: tuple[Nqn, ...] = ()
    hosts: tuple[Host, ...] = ()
    size: Annotated[Size, Field(ge=0)] | None = None
    media: str | None = None
    units: Count | None = None
    workers: Count | None = None
    engine: Literal["host", "gpu"] | None = None
    sms: Count | None = None
    seed: Count | None = None
    faults: Annotated[tuple[str, ...], Field(max_length=64)] | None = None
    faults_file: str | None = None
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
        if self.vfio_user is not None and len(os.fsencode(self.socket_path)) >= _SOCKET_PATH_BYTES:
            raise ValueError(f"{self.socket_path} is too long for a socket; use a folder with a shorter path")
        return self

    @model_validator(mode="after")
    def _engine_takes_what_it_is_given(self, info: ValidationInfo) -> Self:
        gpu = _written(info, "engine", "gpu")
        given = [_written(info, key) for key in ("units", "workers") if getattr(self, key) is not None]
        if self.engine == "gpu" and given:
            raise ValueError(f"{' and '.join(given)} would be ignored: with {gpu} a kernel on the GPU is the engine")
        if self.engine == "gpu" and self.tcp is not None:
            raise ValueError(f"{_written(info, 'tcp')} is not possible with {gpu}; use {_written(info, 'vfio_user')}")
        return self

    @property
    def socket_path(self) -> str:
        """The vfio-user door's socket: FOLDER/NAME/cntrl; empty without that door."""
        if self.vfio_user is None:
            return ""
        return str(Path(self.vfio_user).expanduser().absolute() / self.name / SOCKET_NAME)

    def written(self, key: str) -> str:
        """A key with its value as the user wrote it, for errors."""
        return self._typed.get(key) or f"{self.name}: {key} = {short(getattr(self, key))}"

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
        keys = _ENGINE_KEYS | _STORE_KEYS
        named = {keys[name]: option for name, option in self._typed.items() if name in keys}
        device = load_profile(name, overrides=self.set)
        device = with_overrides(device, {key: value for key, value in wanted.items() if key not in self.set}, named)
        if self.sms is not None and (self.engine or device.engine.kind) != "gpu":
            raise ConfigError(f"{self.written('sms')} would be ignored: it is for the GPU engine; leave it out")
        if self.sms is not None:
            with_overrides(device, {"engine.sms": self.sms}, {"engine.sms": self.written("sms")})
        device = on_engine(device, self.engine, self.sms, self.set)
        default = Subsystem()
        identity = uuid.uuid5(_IDENTITY_SPACE, self.name)
        own: dict[str, Any] = {}
        if device.subsystem.nqn == default.nqn:
            own["subsystem.nqn"] = f"nqn.2014-08.org.nvmexpress:uuid:{identity}"
        if device.subsystem.serial == default.serial:
            own["subsystem.serial"] = f"FM{identity.hex[:18].upper()}"
        return with_overrides(device, own)

    def doors(self) -> _core.ServerOptions:
        """The compiled module's structure."""
        core = core_module()
        options: _core.ServerOptions = core.ServerOptions()
        options.vfio_user_path = self.socket_path
        if self.tcp is not None:
            options.tcp_address = numeric_address(self.tcp, "--tcp" if "tcp" in self._typed else f"{self.name}: tcp")
        options.host_nqns = [*self.host_nqns, *(host.nqn for host in self.hosts)]
        secrets = []
        for host in self.hosts:
            if host.key is not None:
                secret = core.HostSecret()
                secret.host_nqn = host.nqn
                secret.host_key = host.key
                secret.controller_key = host.controller_key or ""
                secrets.append(secret)
        options.host_secrets = secrets
        return options

    def server(self, folder: Path | None = None) -> tuple[Profile, _core.Server]:
        """The SSD, made but not started."""
        device = self.device(folder)
        cores = device.engine.cores
        check_cores(f"engine.cores = {','.join(map(str, cores))}", cores)
        return device, core_module().Server(core_device(device), self.doors())


class Lab(_Section):
    """A lab file: SSDs, and how to watch them."""

    metrics: Address | None = None
    json_log: str | None = None
    ssd: tuple[ServedSsd, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
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
        data = tomllib.loads(Path(where).expanduser().read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}; check the path and its permissions") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not valid TOML: {error}; correct that line") from None
    lab = checked_lab(data, where)
    if any(host.key is not None for ssd in lab.ssd for host in ssd.hosts):
        check_secrecy(where, where)
    return lab


def checked_ssd(data: Mapping[str, Any], where: str, options: Mapping[str, str] | None = None) -> ServedSsd:
    """One SSD from plain data; `where` names it in errors, `options` are the names of keys on the command line."""
    options = options or {}
    typed = {key: f"{option} {_quoted(data[key])}" for key, option in options.items() if key in data}
    try:
        ssd = ServedSsd.model_validate(data, context={"options": options})
    except ValidationError as error:
        raise ConfigError(explain(error, ServedSsd, where, named=typed)) from None
    ssd._typed.update(typed)
    return ssd


def _quoted(value: Any) -> str:
    return " ".join(shlex.quote(str(one)[:100]) for one in (value if isinstance(value, list) else [value]))


def checked_lab(data: Mapping[str, Any], where: str) -> Lab:
    """A lab from plain data; `where` names it in errors."""
    try:
        return Lab.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, Lab, where)) from None
