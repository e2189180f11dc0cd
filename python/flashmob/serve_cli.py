"""flashmob serve and flashmob faults: the command line's side of served SSDs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.console import Console

from flashmob.cli_options import (
    DEVICE,
    DOORS,
    OF_PROFILE,
    SET_HELP,
    WATCH,
    DefaultsCommand,
    Faults,
    Media,
    Size,
    SomeProfile,
    option,
    with_unit,
)
from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean

if TYPE_CHECKING:
    from flashmob.lab import ServedSsd

# Keys of a served SSD whose options are called otherwise.
_OPTIONS = {"host_nqns": "--host-nqn", "faults": "--fault", "profile": "PROFILE"}
# Arguments of the command that are called otherwise in a lab file, and those that are no keys of an SSD.
_KEYS = {"host_nqn": "host_nqns", "fault": "faults", "set_": "set"}
_APART = ("config", "metrics", "json_log", "interval")
_SHORTEST_INTERVAL_NS = 10_000_000
_LONGEST_INTERVAL_NS = 24 * 3_600_000_000_000


class ServeCommand(DefaultsCommand):
    """flashmob serve."""

    left_out: ClassVar = {
        "name": "the first free of ssd0, ssd1, ...",
        "interval": "1s",
        "socket_mode": "0600",
        "allow": "admin; manage where nothing is shared",
        "size": "the profile's",
        **dict.fromkeys(("media", "units", "workers", "copy_engine", "engine", "sms", "seed"), OF_PROFILE),
    }


def serve(
    profile: SomeProfile = None,
    vfio_user: Annotated[
        str | None, option(DOORS, "DIR", "PCIe door: a socket DIR/NAME/cntrl, for QEMU, SPDK and flashmob.")
    ] = None,
    socket_mode: Annotated[
        str | None, option(DOORS, "MODE", "Of that socket: 0660 lets its group in, too.", "--socket-mode")
    ] = None,
    tcp: Annotated[
        str | None, option(DOORS, "[ADDR:]PORT", "NVMe/TCP door; on the loopback address unless told otherwise.")
    ] = None,
    host_nqn: Annotated[
        list[str] | None, option(DOORS, "NQN", "Only these NVMe/TCP hosts. Repeatable.", "--host-nqn")
    ] = None,
    allow: Annotated[
        list[str] | None,
        option(DOORS, "[DOOR=]LEVEL", "What hosts may do: read-only, io, admin or manage. Repeatable.", "--allow"),
    ] = None,
    tls: Annotated[
        str | None, option(DOORS, "WHEN", "NVMe/TCP by TLS 1.3: required (with a key the default) or allowed.")
    ] = None,
    tls_key: Annotated[
        str | None, option(DOORS, "FILE", "The hosts' key (NVMeTLSkey-1, as nvme gen-tls-key writes it).")
    ] = None,
    name: Annotated[str | None, option(DEVICE, "NAME", "The SSD's name; its NQN and serial follow from it.")] = None,
    size: Size = None,
    media: Media = None,
    units: Annotated[str | None, option(DEVICE, "N", "Service units of the engine.")] = None,
    workers: Annotated[str | None, option(DEVICE, "N", "Workers per unit; 0: the dispatcher does both.")] = None,
    engine: Annotated[str | None, option(DEVICE, "KIND", "host, or gpu: a kernel on the GPU serves queues.")] = None,
    sms: Annotated[str | None, option(DEVICE, "N", "GPU engine: multiprocessors that it takes.")] = None,
    seed: Annotated[str | None, option(DEVICE, "N", "Names generated content.")] = None,
    set_: Annotated[list[str] | None, option(DEVICE, "KEY=VALUE", SET_HELP, "--set")] = None,
    fault: Faults = None,
    faults_file: Annotated[
        str | None, option(DEVICE, "FILE", "Rules, one a line, looked at again and again: see flashmob faults.")
    ] = None,
    config: Annotated[str | None, option(DEVICE, "LAB.toml", "Several SSDs, instead of all of the above.")] = None,
    metrics: Annotated[str | None, option(WATCH, "[ADDR:]PORT", "Prometheus metrics at /metrics.")] = None,
    json_log: Annotated[str | None, option(WATCH, "FILE", "Append a JSON record per interval; - for stdout.")] = None,
    interval: Annotated[str | None, option(WATCH, "TIME", "Between two looks, such as 500ms.")] = None,
) -> None:
    """Serves SSDs to virtual machines, to other processes and over the network, until interrupted."""
    given = {
        _KEYS.get(name, name): value
        for name, value in locals().items()
        if value not in (None, []) and name not in _APART
    }
    options = {
        key: _OPTIONS.get(key, f"--{key.replace('_', '-')}")
        for key in (*given, "vfio_user", "tcp", "tls_key", "engine")
    }

    from flashmob.checks import read_secret
    from flashmob.lab import checked_ssd, load_lab
    from flashmob.outputs import check_other
    from flashmob.profiles import load_profile, parse_overrides, read_profile
    from flashmob.serve import DEFAULT_INTERVAL_S
    from flashmob.serve import serve as serve_until_stopped

    if config is None and profile is not None:
        # A name that is none, or a lab in a profile's place, is said before anything about its doors.
        text, _, packaged = read_profile(profile)
        if not packaged and "[[ssd]]" in text:
            load_profile(profile)
    interval_ns = with_unit("--interval", interval)
    if interval_ns is not None and interval_ns < _SHORTEST_INTERVAL_NS:
        raise ConfigError(f"--interval {interval} is not possible: use at least 10ms")
    if interval_ns is not None and interval_ns > _LONGEST_INTERVAL_NS:
        raise ConfigError(f"--interval {interval} is not possible: use at most 24h")
    folder = None
    address = None if metrics is None else ("--metrics", metrics)
    if config is not None:
        if given:
            beside = ", ".join(options[key] if key != "profile" else str(profile) for key in given)
            raise ConfigError(f"--config describes whole SSDs; leave out {beside}, or put it into {config}")
        lab = load_lab(config)
        ssds, folder = lab.ssd, Path(config).expanduser().resolve().parent
        json_log = json_log or lab.json_log
        if lab.metrics is not None and address is None:
            address = (f"{config}: metrics", lab.metrics)
    elif profile is None:
        raise ConfigError("serve needs a PROFILE or --config LAB.toml; `flashmob profiles` lists the profiles")
    else:
        if tls_key is not None:
            given["tls_key"] = read_secret("--tls-key", tls_key, "NVMeTLSkey-1")
        if set_:
            given["set"] = parse_overrides(set_)
        _check_faults(fault or [])
        ssds = (checked_ssd(given, "flashmob serve", options),)
    if fault and faults_file:
        raise ConfigError("--fault and --faults-file are both rules to begin with; leave one of them out")
    if json_log is not None and json_log != "-":
        name = "--json-log" if config is None else f"{config}: json_log"
        check_other(json_log, name, {"--config": config, "--tls-key": tls_key})
        for ssd in ssds:
            check_other(json_log, name, _inputs(ssd, folder))
    at = None if address is None else _address(*address)
    if address is not None and at is not None:
        _check_ports(address[0], at, [ssd.tcp for ssd in ssds if ssd.tcp is not None])
    code = serve_until_stopped(
        ssds,
        console=Console(stderr=json_log == "-"),
        folder=folder,
        metrics=at,
        json_log=json_log,
        interval_s=DEFAULT_INTERVAL_S if interval_ns is None else interval_ns / 1e9,
        any_name=config is None and name is None,
    )
    if code:
        raise typer.Exit(code)


def _inputs(ssd: ServedSsd, folder: Path | None) -> dict[str, str | Path | None]:
    """What an SSD is made of and looks at, by what names it."""
    from flashmob.profiles import media_path

    device = ssd.device(folder)
    rules = None if ssd.faults_file is None else (folder or Path()) / Path(ssd.faults_file).expanduser()
    return {
        ssd.profile: device.path,
        "faults_file": rules,
        **{f"media {one.media}": media_path(one.media) for one in device.subsystem.namespaces},
    }


def _check_ports(name: str, metrics: str, doors: Sequence[str]) -> None:
    """Refuses metrics at the address of a door; an address of all interfaces holds every other one."""
    from flashmob.units import split_address

    every = ("0.0.0.0", "::")
    host, port = split_address(metrics)
    for door in doors:
        its_host, its_port = split_address(door)
        if port == its_port != 0 and (host == its_host or host in every or its_host in every):
            raise ConfigError(f"{name} {metrics} is where {door} serves NVMe/TCP; give each a port of its own")


def _address(name: str, text: str) -> str:
    from flashmob.network import numeric_address
    from flashmob.units import parse_address

    try:
        return numeric_address(parse_address(text), name)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{name} {text} is not possible: {error}") from None


def _check_faults(rules: list[str]) -> None:
    from flashmob.device import core_module

    for rule in rules:
        try:
            core_module().check_faults([rule])
        except ConfigError as error:
            raise ConfigError(f"--{error}") from None


def faults(
    where: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="An SSD that you serve, or the file that flashmob serve --faults-file names."
        ),
    ],
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Such as 'delay on=write every=100 delay=5ms'.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say it as JSON.")] = False,
) -> None:
    """Switches the faults of an SSD that is being served: these rules from now on, or none."""
    from flashmob.faults import write_rules
    from flashmob.registry import servers

    running = servers()
    file = _faults_file(where, running)
    write_rules(file, rules or [])
    path = str(Path(file).expanduser().absolute())
    watching = [state["name"] for state in running if state.get("faults_file") == path]
    if as_json:
        typer.echo(json.dumps({"file": path, "rules": rules or [], "ssds": watching}, indent=2))
        return
    count = len(rules or [])
    typer.echo(f"{count} rule{'' if count == 1 else 's'} in {file}" if count else f"no faults in {file} any more")
    if not watching:
        typer.echo(f"note: no SSD that you serve looks at it (flashmob serve --faults-file {file})", err=True)


def _faults_file(where: str, running: Sequence[Mapping[str, Any]]) -> str:
    """The file that a served SSD of this name looks at; a name with a dot is a file's, and so is ./NAME."""
    state = next((state for state in running if state["name"] == where), None)
    if state is None:
        names = [state["name"] for state in running]
        meant = did_you_mean(where, names)
        # A name without a dot is an SSD's that has ended rather than a file's.
        looked_at = [state.get("faults_file") for state in running]
        is_file = "/" in where or Path(where).exists() or str(Path(where).absolute()) in looked_at
        if not is_file and ("." not in where or meant):
            served = f", and you serve {', '.join(names)}" if names and not meant else ""
            raise ConfigError(f"no SSD called {where} is served{served}{meant}; a new file of that name is ./{where}")
        return where
    if not state.get("faults_file"):
        raise ConfigError(
            f"{where} is served without a file of faults; start it with --faults-file FILE (a file called {where} is "
            f"./{where})"
        )
    file = str(state["faults_file"])
    if "?" in file and not Path(file).exists():
        raise ConfigError(f"the file that {where} looks at has a name that cannot be shown; give its path instead")
    return file
