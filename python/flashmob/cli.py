"""The flashmob command.

Exit codes: 0 all right, 1 something checked was wrong, 2 bad usage or configuration, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from flashmob.bench_cli import BenchCommand, bench
from flashmob.bounds_cli import ExplainCommand, explain
from flashmob.calibrate_cli import calibrate
from flashmob.cli_options import counting
from flashmob.errors import EXIT_INTERRUPTED, EXIT_USAGE, EXIT_WRONG, ConfigError, NvmeError
from flashmob.extents_cli import extents
from flashmob.files_cli import app as files_app
from flashmob.gpu_cli import app as gpu_app
from flashmob.lease_cli import app as lease_app
from flashmob.ops_cli import register, version
from flashmob.outputs import plain
from flashmob.pci_cli import app as pci_app
from flashmob.profile_cli import app as profiles_app
from flashmob.study_cli import app as study_app
from flashmob.usage import App, Commands

app = App(
    name="flashmob",
    cls=Commands,
    help="A software-defined NVMe SSD in user space that says how true it was.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(profiles_app, name="profiles")
app.add_typer(files_app, name="files")
app.add_typer(gpu_app, name="gpu")
app.add_typer(lease_app, name="lease")
app.add_typer(pci_app, name="pci")
app.add_typer(study_app, name="study")


# Fewer columns are no terminal's.
_LEAST_COLUMNS = 10


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
    hold_standard_streams()
    spell_in_ascii()
    set_environment()
    code = run(lambda: app(standalone_mode=True))
    if code == EXIT_INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        # A shell's loop ends only where the command was ended by the signal itself; its exit code then is 130.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        # Without a handler the interpreter's own end is not reached, and cannot complain of a run that is left behind.
        os._exit(code)
    sys.exit(code)


def hold_standard_streams() -> None:
    """Opens those that were closed before we began to nothing.

    The next file that is opened would have the number of one of them, and take what a library or a child writes there.
    Python knows a closed one as None, and goes on doing so.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def set_environment() -> None:
    """Puts variables right that others have set for purposes of theirs."""
    # A width of nothing, as a script without a terminal exports it, would hide every table.
    columns = os.environ.get("COLUMNS", "")
    is_number = columns.isascii() and columns.isdigit() and len(columns) < 6
    if columns and not (is_number and int(columns) >= _LEAST_COLUMNS):
        del os.environ["COLUMNS"]
    # Figures go to files, whatever a notebook shows them with.
    os.environ["MPLBACKEND"] = "agg"


def check_text(arguments: Sequence[str]) -> None:
    """Refuses arguments that are no text, which neither results nor messages can hold.

    Raises:
        ConfigError: showing it.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(argument).decode("ascii", "backslashreplace")[:200]
            raise ConfigError(
                f"{shown} is not text in this locale's encoding, {sys.getfilesystemencoding()}; use another name, or a "
                "UTF-8 locale (LC_ALL=C.UTF-8)"
            ) from None


# What a terminal without these signs shows in their place, one cell for one cell but where that would say less.
_ASCII = str.maketrans("×µ━─│●◐○…·–—→", "xu=-|*o-~.-->") | {ord("≤"): "<=", ord("≥"): ">="}


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
    if sys.stdout is None:  # It was closed before we began.
        return code
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
        check_text(sys.argv[1:])
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
    # Where standard error takes nothing either, the exit code says it.
    with suppress(OSError):
        Console(stderr=True, highlight=False).print(
            Text("error: ", style="bold red") + Text(plain(message, keeps="\n")), soft_wrap=True
        )
    return code


app.command(cls=BenchCommand)(bench)
app.command(cls=ExplainCommand)(explain)
app.command()(calibrate)
app.command()(extents)
register(app)


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
    from flashmob.plotting import draw_results, load_results, with_figures

    if title is not None and output is None:
        raise ConfigError(f"--title {title} is a figure's, and a table has none; add --output FILE, or leave it out")
    if output is not None:
        check_format(Path(output))
        check_file(output, "-o")
    found = load_results(results)
    if again := len(results) - len({Path(path).absolute() for path in results}):
        typer.echo(f"{again} of {len(results)} files left out: named before", err=True)
    if not found:
        raise ConfigError(f"{', '.join(results)}: no result in there; give files written by flashmob bench --json")
    drawn = with_figures(found)
    if len(drawn) < len(found):
        typer.echo(f"{len(found) - len(drawn)} of {len(found)} left out: no request succeeded in them", err=True)
    if output is None or not drawable():
        console = Console()
        console.print(table(drawn, console.width), highlight=False, soft_wrap=True)
    if output is not None:
        draw_results(drawn, Path(output), title=title)
        typer.echo(f"figure written to {output}")


@app.command()
def sweep(
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results and figures go.")] = "out/figures",
    jobs: Annotated[int | None, counting(None, "Simulations at once; one per core if left out.", least=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points: a smoke test.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run what FOLDER already holds again, too.")] = False,
) -> None:
    """Reproduces the shape of SwarmIO's figures 5, 10, 11 and 12 in virtual time; some minutes on two cores.

    Ctrl-C keeps what is done; the same command goes on from there.
    """
    from flashmob.sweep import run_sweep

    if not run_sweep(Path(out), jobs=jobs, quick=quick, fresh=fresh, console=Console()):
        raise typer.Exit(EXIT_INTERRUPTED)
