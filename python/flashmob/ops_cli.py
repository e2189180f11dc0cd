"""flashmob ls, top, info, doctor, demo and version: what runs, what there is, and how it does."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from flashmob import __version__
from flashmob.cli_options import Media, Set, Size
from flashmob.errors import ConfigError
from flashmob.lease_cli import orchestrate
from flashmob.serve_cli import ServeCommand, faults, serve

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
_TOP_S = 1.0
# Identify fields that are names even where they look like numbers.
_NAMES = ("sn", "mn", "fr", "ieee", "fguid", "subnqn", "nguid", "eui64")


def register(app: typer.Typer) -> None:
    """Adds these commands to the application."""
    app.command(cls=ServeCommand)(serve)
    for command in (orchestrate, ls, top, faults, info, doctor, demo, version):
        app.command()(command)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def ls(as_json: Json = False) -> None:
    """Lists the SSDs that you serve on this machine: doors, hosts, and whether they are true to their model."""
    from flashmob.registry import servers
    from flashmob.served import apart, list_lines, summary

    running, unfit = apart(servers())
    for reason in unfit:
        typer.echo(reason, err=True)
    if as_json:
        _print_json([summary(state) for state in running])
        return
    if not running:
        if not unfit:
            typer.echo("no SSD is served by you; `flashmob serve` starts one")
        return
    console = Console()
    for line in list_lines(running, console.width):
        console.print(line, soft_wrap=True, highlight=False)


def top(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of those that flashmob ls lists.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON record an SSD and second instead.")] = False,
) -> None:
    """Shows what served SSDs do, each second until Ctrl-C or until they end; one line each where it goes to a file."""
    from flashmob.registry import server
    from flashmob.served import Top

    if name is not None:
        server(name)
    console = Console()
    shown = Top(console, name, as_json=as_json, live=console.is_terminal and not once and not as_json)
    while shown.look() and not once:
        time.sleep(_TOP_S)


def info(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE|NAME", help="A profile's name, a .toml file, or an SSD that you serve.")
    ],
    size: Size = None,
    media: Media = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Prints what the emulated SSD answers to Identify, field by field, as nvme-cli does.

    Of an SSD that is being served also who serves it, and how to reach it.
    """
    from flashmob.device import check_engine_keys
    from flashmob.identify import lines
    from flashmob.naming import is_profile
    from flashmob.profiles import load_profile, namespace_overrides, parse_overrides, with_overrides
    from flashmob.registry import server
    from flashmob.served import described, of_settings, summary
    from flashmob.ssd import Ssd

    state: dict[str, Any] = {}
    if is_profile(profile):
        given = (("size_bytes", "--size", size), ("media", "--media", media))
        named = {f"subsystem.namespaces.0.{key}": f"{option} {text}" for key, option, text in given if text is not None}
        changed = parse_overrides(set_ or [])
        wanted = {key: value for key, value in namespace_overrides(size, media).items() if key not in changed}
        device = with_overrides(load_profile(profile, changed), wanted, named)
        check_engine_keys(changed, device.engine.kind)
    else:
        state = server(profile)
        asked = [option for option, given in (("--size", size), ("--media", media), ("--set", set_)) if given]
        if asked:
            raise ConfigError(f"{asked[0]} changes a profile; {profile} is being served as it is")
        device = of_settings(state)
    with Ssd.from_profile(device) as ssd:
        controller = ssd.identify_controller().texts()
        sets = {one.nsid: one.command_set for one in ssd.namespaces}
        namespaces = {nsid: ssd.identify_namespace(nsid).texts() for nsid in sets if sets[nsid] != "kv"}
        zoned = {nsid: ssd.identify_zoned(nsid).texts() for nsid in namespaces if sets[nsid] == "zns"}
        keyed = {nsid: ssd.identify_kv(nsid).texts() for nsid in sets if sets[nsid] == "kv"}
    if as_json:
        numbered = {nsid: _numbers(fields) for nsid, fields in namespaces.items()}
        served = {"served": summary(state)} if state else {}
        zones = {"zoned": {nsid: _numbers(fields) for nsid, fields in zoned.items()}} if zoned else {}
        keys = {"kv": {nsid: _numbers(fields) for nsid, fields in keyed.items()}} if keyed else {}
        document = {"profile": device.name, **served, "controller": _numbers(controller), "namespaces": numbered}
        _print_json(document | zones | keys)
        return
    for line in described(state) if state else []:
        typer.echo(line)
    typer.echo("NVME Identify Controller:")
    for line in lines(controller):
        typer.echo(line)
    for nsid, fields in namespaces.items():
        typer.echo(f"\nNVME Identify Namespace {nsid}:")
        for line in lines(fields):
            typer.echo(line)
    for nsid, fields in zoned.items():
        typer.echo(f"\nNVME Identify Namespace {nsid}, Zoned Namespace command set:")
        for line in lines(fields):
            typer.echo(line)
    for nsid, fields in keyed.items():
        typer.echo(f"\nNVME Identify Namespace {nsid}, Key Value command set:")
        for line in lines(fields):
            typer.echo(line)


def _numbers(fields: dict[str, str]) -> dict[str, str | int]:
    number = re.compile(r"0x[0-9a-f]+|[0-9]+", re.ASCII)
    return {
        " ".join(name.split()): int(text, 0) if name not in _NAMES and number.fullmatch(text) else text
        for name, text in fields.items()
    }


def doctor(as_json: Json = False) -> None:
    """Shows what this machine has that makes an emulated SSD faster or truer, and how to get what it lacks."""
    from dataclasses import asdict

    from flashmob.doctor import examine, shown

    if as_json:
        _print_json([asdict(finding) for finding in examine()])
        return
    console = Console()
    for finding in examine():
        for line in shown(finding, console.width if console.is_terminal else 0):
            console.print(line, soft_wrap=True, highlight=False)
    console.print(Text("Nothing here is needed: what is missing is worked around.", style="dim"))


def demo(
    media: Annotated[
        str | None,
        typer.Option(metavar="cow:FILE", help="The file that is read back through the SSD; any file of yours."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results and the picture go.")] = "out",
) -> None:
    """Shows it all in under half a minute: virtual time, real time, and a real file read back and compared."""
    from flashmob.demo import run_demo
    from flashmob.outputs import check_folder

    check_folder(out, "--out")
    code = run_demo(media, Path(out), Console())
    if code:
        raise typer.Exit(code)


def version(as_json: Json = False) -> None:
    """Prints the version of the package and of its compiled module."""
    try:
        from flashmob import _core

        compiled = _core.__version__
    except ImportError:
        compiled = None
    if as_json:
        _print_json({"version": __version__, "compiled_module": compiled, "python": sys.version.split()[0]})
        return
    typer.echo(f"flashmob {__version__} (compiled module: {compiled or 'not built'})")
