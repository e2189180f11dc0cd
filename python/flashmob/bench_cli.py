"""flashmob bench: from the command line's options to a run, its report and its result file."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from flashmob.cli_options import (
    DEVICE,
    KEYWORDS,
    LEFT_OUT,
    OF_PROFILE,
    OUTPUT,
    SET_HELP,
    DefaultsCommand,
    Faults,
    Media,
    Size,
    Target,
    given_keywords,
    option,
    with_keywords,
)
from flashmob.errors import EXIT_INTERRUPTED, EXIT_WRONG, ConfigError
from flashmob.given import FIO_NAMES, FIO_ONLY, refuse_fio
from flashmob.outputs import check_other, check_result, write_text
from flashmob.profiles import media_path, parse_overrides, read_profile

if TYPE_CHECKING:
    from flashmob.checks import Secret
    from flashmob.models import Profile
    from flashmob.options import BenchOptions
    from flashmob.result import Result

# Where the command leaves what it found of fio's options.
FIO = "flashmob.fio"


class BenchCommand(DefaultsCommand):
    """Takes fio's options too: those that mean the same are handed on, the others are refused with the reason."""

    left_out: ClassVar = LEFT_OUT | {"size": "the profile's, of memory at most 1G", "media": OF_PROFILE}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes what is fio's out of the arguments, and leaves it in the context for bench()."""
        own = {name for parameter in self.params for name in parameter.opts}
        fio: dict[str, str] = {}
        rest: list[str] = []
        waiting = iter(args)
        for argument in waiting:
            name, equals, value = argument.partition("=")
            key = name.removeprefix("--").replace("-", "_")
            if argument == "--":
                rest += [argument, *waiting]
            elif name in own or not name.startswith("--") or key not in FIO_NAMES | FIO_ONLY:
                rest.append(argument)
            elif key in FIO_ONLY:
                refuse_fio(key, name)
            else:
                fio[key] = value if equals else next(waiting, "")
                if not fio[key]:
                    raise ConfigError(f"{name} has no value; write {name}=VALUE")
        ctx.meta[FIO] = fio
        return super().parse_args(ctx, rest)


@with_keywords(KEYWORDS)
def bench(
    context: typer.Context,
    profile: Target,
    size: Size = None,
    media: Media = None,
    set_: Annotated[list[str] | None, option(DEVICE, "KEY=VALUE", SET_HELP, "--set")] = None,
    fault: Faults = None,
    json: Annotated[str | None, option(OUTPUT, "FILE", "Write the result; - for standard output.")] = None,
    output_format: Annotated[
        str, option(OUTPUT, "FORMAT", "Of --json: json, flashmob's own, or fio-json.", "--output-format")
    ] = "json",
    **typed: Any,
) -> None:
    """Runs a load against an emulated SSD and reports rates, latencies and how true the emulation was.

    The SSD is one of this process, or one that flashmob serve (or anybody else) offers: then its server judges it.
    """
    from flashmob.device import engine_note
    from flashmob.naming import door_note, of_name
    from flashmob.options import is_target
    from flashmob.progress import follow
    from flashmob.report import all_right
    from flashmob.runner import BenchRun, prepare, store_note, typed_errors

    options = _options(context, typed | {"size": size, "media": media, "faults": fault or None})
    target = of_name(profile, options)
    if not is_target(target):
        read_profile(target)  # A name that is none is said before anything else.
    check_result(json, "--json")
    _check_format(output_format, json)
    device, load = prepare(target, options, parse_overrides(set_ or []), command_line=True)
    if json is not None and json != "-":
        keys = {f"--{name.replace('_', '-')}": typed[name] for name in _SECRETS}
        check_other(json, "--json", keys | _inputs(profile, device, load))
    console = Console(stderr=json == "-")
    for note in (door_note(profile, target), engine_note(device, load.clock)):
        if note:
            console.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)
    with typed_errors(options, command_line=True):
        started = BenchRun(device, load)
        finished = follow(started, console)
        result = started.result()
    # `--verify 0` asks for none.
    asked = typed["verify"] is not None and load.verify_percent > 0
    kept = (json, output_format)
    _report(console, result, kept, stopped=not finished, store=store_note(target, device, size), verify_asked=asked)
    if not finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.device_failed:
        raise RuntimeError("the device is gone: it stopped answering during the run")
    if not all_right(result, verify_asked=asked):
        raise typer.Exit(EXIT_WRONG)


def _check_format(format_: str, json: str | None) -> None:
    from flashmob.fio_output import FIO_JSON

    if format_ not in ("json", FIO_JSON):
        raise ConfigError(f"--output-format {format_} is not possible: use json or {FIO_JSON}")
    if format_ == FIO_JSON and json is None:
        raise ConfigError(f"--output-format {FIO_JSON} is of a file, and there is none; add --json FILE")


def _text(result: Result, format_: str) -> str:
    from flashmob.fio_output import FIO_JSON, fio_json

    return fio_json(result) if format_ == FIO_JSON else result.to_json()


def _inputs(profile: str, device: Profile, load: BenchOptions) -> dict[str, str | None]:
    """What the run reads, by what names it."""
    return {
        profile: str(device.path) if device.path is not None else None,
        "--trace": load.trace_path or None,
        **{f"media {one.media}": media_path(one.media) for one in device.subsystem.namespaces},
    }


# Keywords whose values the command line takes from files, and what these hold.
_SECRETS: dict[str, Secret] = {"host_key": "DHHC-1", "controller_key": "DHHC-1", "tls_key": "NVMeTLSkey-1"}


def _options(context: typer.Context, typed: dict[str, Any]) -> dict[str, Any]:
    """Options of Python's bench() from the command's arguments."""
    secrets = {name: _secret(f"--{name.replace('_', '-')}", typed[name], kind) for name, kind in _SECRETS.items()}
    command = shlex.join(["flashmob", *sys.argv[1:]])
    return {**context.meta.get(FIO, {}), **given_keywords(typed), **secrets, "command": command}


def _report(console: Console, result: Result, kept_in: tuple[str | None, str], **how: Any) -> None:
    """Keeps the figures before anything is shown: a terminal may refuse a report, and nobody likes to run twice."""
    from flashmob.report import show

    json, format_ = kept_in
    lost = _keep(result, json, format_)
    try:
        show(console, result, **how)
        if lost is None and json not in (None, "-"):
            console.print(Text(f"result written to {json}", style="dim"), soft_wrap=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        kept = f"; the result is in {json}" if lost is None and json not in (None, "-") else ""
        raise OSError(f"the report could not be printed ({error.strerror}){kept}") from None
    if lost is not None:
        raise lost


def _keep(result: Result, json: str | None, format_: str) -> OSError | None:
    """Writes the result where it is wanted; the error is handed back, so that the report can still be shown."""
    if json is None:
        return None
    try:
        if json == "-":
            print(_text(result, format_), flush=True)
        else:
            write_text(json, _text(result, format_) + "\n")
    except OSError as error:
        where = "standard output" if json == "-" else json
        return OSError(f"the result could not be written to {where} ({error.strerror})")
    return None


def _secret(option: str, path: str | None, kind: Secret) -> str | None:
    from flashmob.checks import read_secret

    return None if path is None else read_secret(option, path, kind)
