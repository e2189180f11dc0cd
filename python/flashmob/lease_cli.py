"""flashmob orchestrate and flashmob lease: parts of SSDs, lent to who asks for them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Annotated, Any

import typer
from rich.console import Console

from flashmob.cli_options import counting, option
from flashmob.errors import EXIT_WRONG, ConfigError
from flashmob.usage import App

app = App(help="Parts of SSDs that an orchestrator lends.", no_args_is_help=True)

Socket = Annotated[
    str | None,
    option(None, "PATH", "The orchestrator's socket; else FLASHMOB_LEND, /run/flashmob/lend.sock.", "--socket"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def orchestrate(
    config: Annotated[str, typer.Argument(metavar="CONFIG.toml", help="SSDs, and who may have which part of them.")],
) -> None:
    """Lends parts of SSDs to other processes, each as a drive of its own, until interrupted."""
    from flashmob.lending.orchestrator import orchestrate as lend_until_stopped

    code = lend_until_stopped(config, Console())
    if code:
        raise typer.Exit(code)


@app.command()
def take(
    ssd: Annotated[str, typer.Argument(metavar="SSD", help="Its name.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="What to run with it; FLASHMOB_TARGET says where it is."),
    ] = None,
    size: Annotated[
        str | None, option(None, "BYTES", "Such as 4G, in whole MiB; else what there is in one piece.")
    ] = None,
    first: Annotated[str | None, option(None, "BYTES", "Where it begins; else where there is room.")] = None,
    queues: Annotated[int, counting(None, "I/O queue pairs.", least=1)] = 1,
    read_only: Annotated[
        bool, option(None, None, "Only to read; others may then read the same.", "--read-only")
    ] = False,
    iops: Annotated[str | None, option(None, "RATE", "At most so many commands a second.")] = None,
    bandwidth: Annotated[str | None, option(None, "BYTES", "At most so many bytes a second.")] = None,
    keep: Annotated[bool, option(None, None, "Until it is released, whatever becomes of us.", "--keep")] = False,
    uid: Annotated[int | None, option(None, "UID", "Who will use it, where we are an operator.")] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Takes a part of an SSD, and holds it: until COMMAND ends, or until interrupted."""
    from flashmob.lending.client import Connection

    with Connection(socket) as connection:
        lease = connection.take(
            ssd,
            size=size,
            first=first,
            queue_pairs=queues,
            read_only=read_only,
            iops=iops,
            bandwidth=bandwidth,
            keep=keep,
            uid=uid,
        )
        if command:
            raise typer.Exit(_run(command, lease))
        typer.echo(json.dumps(lease) if as_json else lease["path"])
        if not keep:
            _hold(connection, lease["name"])


def _run(command: list[str], lease: dict[str, Any]) -> int:
    environment = {**os.environ, "FLASHMOB_TARGET": lease["target"], "FLASHMOB_LEASE": lease["name"]}
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}") from None
    return code if code >= 0 else 128 - code


def _hold(connection: Any, name: str) -> None:
    """Until a signal, or until the orchestrator has gone or taken the lease back."""
    from flashmob.process import StopSignals

    with StopSignals() as stopping:
        while not stopping.wait(1.0):
            if not any(lease["name"] == name for lease in connection.leases()):
                typer.echo(f"{name} has been taken back", err=True)
                raise typer.Exit(EXIT_WRONG)
    if stopping.exit_code:
        raise typer.Exit(stopping.exit_code)


@app.command("list")
def list_(socket: Socket = None, as_json: Json = False) -> None:
    """Lists the leases that you have; for root and the orchestrator's user all that there are."""
    from flashmob.lending.client import Connection
    from flashmob.units import counted, format_size

    with Connection(socket) as connection:
        leases = connection.leases()
    if as_json:
        typer.echo(json.dumps(leases, indent=2))
        return
    if not leases:
        typer.echo("no leases")
    for lease in leases:
        what = "read-only" if lease["is_read_only"] else "to write"
        state = "in use" if lease["is_attached"] else "not in use"
        typer.echo(
            f"{lease['name']}  uid {lease['uid']}  {format_size(lease['size_bytes'])} from byte {lease['first_byte']}, "
            f"{what}, {counted(lease['queue_pairs'], 'queue pair')}, {state}\n  {lease['path']}"
        )


@app.command()
def release(
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="As flashmob lease list calls it.")],
    socket: Socket = None,
) -> None:
    """Gives a lease back; an operator takes back anybody's."""
    from flashmob.lending.client import Connection

    with Connection(socket) as connection:
        connection.release(lease)


@app.command()
def revoke(
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="As flashmob lease list calls it.")],
    socket: Socket = None,
) -> None:
    """Takes back a lease, whoever has it: the same as release, for operators."""
    release(lease, socket)
