"""The flashmob command.

Exit codes: 0 all right, 1 something checked was wrong, 2 bad usage or configuration, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flashmob import __version__
from flashmob.bench_cli import BenchCommand, bench
from flashmob.cli_options import DEVICE as _DEVICE
from flashmob.cli_options import DOORS as _DOORS
from flashmob.cli_options import SET_HELP as _SET_HELP
from flashmob.cli_options import WATCH as _WATCH
from flashmob.cli_options import Faults, Media, Profile, Set, Size, SomeProfile
from flashmob.cli_options import option as _option
from flashmob.cli_options import with_unit as _with_unit
from flashmob.errors import EXIT_INTERRUPTED, EXIT_USAGE, EXIT_WRONG, ConfigError, NvmeError
from flashmob.gpu_cli import app as gpu_app
from flashmob.profile_cli import app as profiles_app
from flashmob.profiles import parse_overrides

app = typer.Typer(
    name="flashmob",
    help="A software-defined NVMe SSD in user space that says how true it was.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(profiles_app, name="profiles")
app.add_typer(gpu_app, name="gpu")


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def flashmob(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the versions and leave.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A software-defined NVMe SSD in user space that says how true it was."""


def main() -> NoReturn:
    """Runs the command line; the console script of the package."""
    spell_in_ascii()
    sys.exit(run(lambda: app(standalone_mode=True)))


# What a terminal without these signs shows in their place, one cell for one cell.
_ASCII = str.maketrans("×µ━─│●◐○…·≤≥–—→", "xu=-|*o-~.<>--" + ">")


def spell_in_ascii() -> None:
    """Signs that the encoding of an output stream lacks are written as ones that it has, instead of being an error."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end].translate(_ASCII)
        return "".join(sign if sign.isascii() else "?" for sign in lacking), error.end

    codecs.register_error("flashmob-ascii", replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="flashmob-ascii")


def run(command: Callable[[], object]) -> int:
    """Runs a command and turns what an operator can mend into one line on standard error and an exit code."""
    code = _run(command)
    try:
        sys.stdout.flush()
    except OSError as error:
        # What Python would still flush at its end has no taker; it must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0 and not isinstance(error, BrokenPipeError):
            return _complain(f"standard output cannot be written: {error.strerror}", EXIT_WRONG)
        return code or EXIT_WRONG
    return code


def _run(command: Callable[[], object]) -> int:
    try:
        command()
    except ConfigError as error:
        return _complain(str(error), EXIT_USAGE)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_WRONG if leaving.code else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_WRONG
    except OSError as error:
        return _complain(_sentence(error), EXIT_WRONG)
    except (NvmeError, ImportError, MemoryError, RuntimeError) as error:
        return _complain(str(error) or type(error).__name__, EXIT_WRONG)
    return 0


def _sentence(error: OSError) -> str:
    """What went wrong with which file, without Python's number and quotes."""
    if isinstance(error, NvmeError) or error.strerror is None:
        return str(error) or type(error).__name__
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"the output cannot be written: {error.strerror}" if error.errno == errno.ENOSPC else error.strerror


def _complain(message: str, code: int) -> int:
    Console(stderr=True, highlight=False).print(Text("error: ", style="bold red") + Text(message), soft_wrap=True)
    return code


app.command(cls=BenchCommand)(bench)


@app.command()
def serve(
    profile: SomeProfile = None,
    vfio_user: Annotated[
        str | None, _option(_DOORS, "DIR", "PCIe door: a socket DIR/NAME/cntrl, for QEMU, SPDK and flashmob.")
    ] = None,
    tcp: Annotated[
        str | None, _option(_DOORS, "[ADDR:]PORT", "NVMe/TCP door; on the loopback address unless told otherwise.")
    ] = None,
    host_nqn: Annotated[
        list[str] | None, _option(_DOORS, "NQN", "Only these NVMe/TCP hosts. Repeatable.", "--host-nqn")
    ] = None,
    name: Annotated[str | None, _option(_DEVICE, "NAME", "The SSD's name; its NQN and serial follow from it.")] = None,
    size: Size = None,
    media: Media = None,
    units: Annotated[str | None, _option(_DEVICE, "N", "Service units of the engine.")] = None,
    workers: Annotated[str | None, _option(_DEVICE, "N", "Workers per unit; 0: the dispatcher does both.")] = None,
    engine: Annotated[str | None, _option(_DEVICE, "KIND", "host, or gpu: a kernel on the GPU serves queues.")] = None,
    sms: Annotated[str | None, _option(_DEVICE, "N", "GPU engine: multiprocessors that it takes.")] = None,
    seed: Annotated[str | None, _option(_DEVICE, "N", "Names generated content.")] = None,
    set_: Annotated[list[str] | None, _option(_DEVICE, "KEY=VALUE", _SET_HELP, "--set")] = None,
    fault: Faults = None,
    faults_file: Annotated[
        str | None, _option(_DEVICE, "FILE", "Rules, one a line, looked at again and again: see flashmob faults.")
    ] = None,
    config: Annotated[str | None, _option(_DEVICE, "LAB.toml", "Several SSDs, instead of all of the above.")] = None,
    metrics: Annotated[str | None, _option(_WATCH, "[ADDR:]PORT", "Prometheus metrics at /metrics.")] = None,
    json_log: Annotated[str | None, _option(_WATCH, "FILE", "Append a JSON record per interval; - for stdout.")] = None,
    interval: Annotated[
        str | None, _option(_WATCH, "TIME", "Between two looks, such as 500ms; 1s if left out.")
    ] = None,
) -> None:
    """Serves SSDs to virtual machines, to other processes and over the network, until interrupted."""
    from flashmob.lab import checked_ssd, load_lab
    from flashmob.serve import DEFAULT_INTERVAL_S, serve
    from flashmob.units import parse_address

    interval_ns = _with_unit("--interval", interval)
    if interval_ns is not None and interval_ns < 10_000_000:
        raise ConfigError(f"--interval {interval} is not possible: use at least 10ms")
    try:
        metrics = None if metrics is None else parse_address(metrics)
    except ValueError as error:
        raise ConfigError(f"--metrics {metrics} is not possible: {error}") from None
    given: dict[str, Any] = {
        "profile": profile,
        "vfio_user": vfio_user,
        "tcp": tcp,
        "host_nqns": host_nqn,
        "name": name,
        "size": size,
        "media": media,
        "units": units,
        "workers": workers,
        "engine": engine,
        "sms": sms,
        "seed": seed,
        "faults": fault or None,
        "faults_file": faults_file,
        "set": parse_overrides(set_) if set_ else None,
    }
    given = {key: value for key, value in given.items() if value is not None}
    folder = None
    if config is not None:
        if given:
            raise ConfigError(f"--config describes whole SSDs; put {', '.join(given)} into {config} instead")
        lab = load_lab(config)
        ssds, folder = lab.ssd, Path(config).expanduser().resolve().parent
        metrics, json_log = metrics or lab.metrics, json_log or lab.json_log
    elif profile is None:
        raise ConfigError("serve needs a PROFILE or --config LAB.toml; `flashmob profiles` lists the profiles")
    else:
        ssds = (checked_ssd(given, "flashmob serve"),)
    serve(
        ssds,
        console=Console(stderr=json_log == "-"),
        folder=folder,
        metrics=metrics,
        json_log=json_log,
        interval_s=DEFAULT_INTERVAL_S if interval_ns is None else interval_ns / 1e9,
    )


@app.command()
def faults(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file that flashmob serve --faults-file names.")],
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Such as 'delay on=write every=100 delay=5ms'.")
    ] = None,
) -> None:
    """Switches the faults of an SSD that is being served: these rules from now on, or none."""
    from flashmob.faults import write_rules

    write_rules(file, rules or [])
    typer.echo(f"{len(rules)} rules in {file}" if rules else f"no faults in {file} any more")


@app.command()
def info(
    profile: Profile,
    size: Size = None,
    media: Media = None,
    set_: Set = None,
) -> None:
    """Prints what the emulated SSD answers to Identify, field by field, as nvme-cli does."""
    from flashmob.identify import controller_fields, lines, namespace_fields
    from flashmob.ssd import Ssd

    with Ssd.from_profile(profile, size=size, media=media, set=parse_overrides(set_ or [])) as ssd:
        typer.echo("NVME Identify Controller:")
        for line in lines(controller_fields(ssd.identify_controller())):
            typer.echo(line)
        for namespace in ssd.namespaces:
            typer.echo(f"\nNVME Identify Namespace {namespace.nsid}:")
            for line in lines(namespace_fields(ssd.identify_namespace(namespace.nsid))):
                typer.echo(line)


@app.command()
def plot(
    results: Annotated[list[str], typer.Argument(metavar="RESULT.json...", help="Results of flashmob bench --json.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file; a table if left out."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The figure's title.")] = None,
) -> None:
    """Draws rate, bandwidth and latency against what varies, the latencies' distribution, and the model beside them."""
    from flashmob.figure import check_format, drawable
    from flashmob.outputs import check_file
    from flashmob.plot_table import table
    from flashmob.plotting import draw_results, load_results

    if output is not None:
        check_format(Path(output))
        check_file(output, "-o")
    found = load_results(results)
    if not found:
        raise ConfigError(f"{', '.join(results)}: no result in there; give files written by flashmob bench --json")
    if output is None or not drawable():
        console = Console()
        console.print(table(found, console.width), highlight=False, soft_wrap=True)
    if output is not None:
        draw_results(found, Path(output), title=title)
        typer.echo(f"figure written to {output}")


@app.command()
def doctor() -> None:
    """Shows what this machine has that makes an emulated SSD faster or truer, and how to get what it lacks."""
    from flashmob.doctor import examine

    styles = {"yes": ("●", "green"), "partly": ("◐", "yellow"), "no": ("○", "red")}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    for finding in examine():
        sign, style = styles[finding.state]
        lines = Text(finding.found, style=style) + Text(f"\nbuys     {finding.buys}", style="default")
        if finding.fix:
            lines += Text(f"\nhow      {finding.fix}", style="dim")
        table.add_row(Text(sign, style=style), Text(finding.name, style="bold"), lines)
    console = Console()
    console.print(table)
    console.print("[dim]Nothing here is needed: what is missing is worked around.[/]", highlight=False)


@app.command()
def demo(
    media: Annotated[
        str | None,
        typer.Option(metavar="cow:FILE", help="The file that is read back through the SSD; any file of yours."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results and the picture go.")] = "out",
) -> None:
    """Shows it all in under half a minute: real time, virtual time, and a real file read back and compared."""
    from flashmob.demo import run_demo

    code = run_demo(media, Path(out), Console())
    if code:
        raise typer.Exit(code)


@app.command()
def sweep(
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results and figures go.")] = "out/figures",
    jobs: Annotated[int | None, typer.Option(min=1, help="Simulations at once; one per core if left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points: a smoke test.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run what FOLDER already holds again, too.")] = False,
) -> None:
    """Reproduces the shape of SwarmIO's figures 5, 10, 11 and 12 in virtual time; some minutes on two cores.

    Ctrl-C keeps what is done; the same command goes on from there.
    """
    from flashmob.sweep import run_sweep

    if not run_sweep(Path(out), jobs=jobs, quick=quick, fresh=fresh, console=Console()):
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def version() -> None:
    """Prints the version of the package and of its compiled module."""
    try:
        from flashmob import _core

        compiled = _core.__version__
    except ImportError:
        compiled = "not built"
    typer.echo(f"flashmob {__version__} (compiled module: {compiled})")
