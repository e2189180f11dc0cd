"""flashmob bench: from the command line's options to a run, its report and its result file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from flashmob.fio_job import FioJob, is_job_file, read_jobs
from flashmob.given import FIO_NAMES, FIO_ONLY, refuse_fio
from flashmob.outputs import check_other, check_result, write_text
from flashmob.profiles import media_path, parse_overrides, read_profile

if TYPE_CHECKING:
    from flashmob.checks import Secret
    from flashmob.models import Profile
    from flashmob.options import BenchOptions
    from flashmob.result import Result
    from flashmob.runner import BenchRun

# Where --help has what is of job files alone.
FIO_FILES = "Job files of fio's"
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
    ssd: Annotated[
        str | None, option(FIO_FILES, "PROFILE|NAME|DOOR", "The SSD, in place of the file's filename=.")
    ] = None,
    section: Annotated[list[str] | None, option(FIO_FILES, "NAME", "Run this job alone. Repeatable.")] = None,
    json: Annotated[str | None, option(OUTPUT, "FILE", "Write the result; - for standard output.")] = None,
    output_format: Annotated[
        str, option(OUTPUT, "FORMAT", "Of --json: json, flashmob's own, or fio-json.", "--output-format")
    ] = "json",
    **typed: Any,
) -> None:
    """Runs a load against an emulated SSD and reports rates, latencies and how true the emulation was.

    The SSD is one of this process, or one that flashmob serve (or anybody else) offers: then its server judges it.
    A job file of fio's, NAME.fio, has its jobs run one after another.
    """
    options = _options(context, typed | {"size": size, "media": media, "faults": fault or None})
    console = Console(stderr=json == "-")
    asked = _Asked(console, options, parse_overrides(set_ or []), typed, json, output_format)
    if is_job_file(profile):
        jobs = read_jobs(profile, section or [])
        _check_output(json, output_format, len(jobs))
        raise typer.Exit(_run_jobs(asked, profile, jobs, ssd))
    for name, value in (("--ssd", ssd), ("--section", section)):
        if value:
            raise ConfigError(f"{name} is of a job file of fio's, and {profile} is none; leave it out")
    code = _run(asked, _plan(asked, profile, options), [])
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says of all runs."""

    console: Console
    options: dict[str, Any]
    overrides: dict[str, Any]
    typed: dict[str, Any]
    json: str | None
    format: str


@dataclass(frozen=True, slots=True)
class _Planned:
    """A run that is possible as far as can be told before it begins, and what there is to say before it does."""

    profile: str
    target: str
    options: dict[str, Any]
    run: BenchRun
    job: FioJob | None = None
    # How those of the options that are a job's are written in its file.
    elsewhere: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _run_jobs(asked: _Asked, path: str, jobs: list[FioJob], ssd: str | None) -> int:
    """Runs a file's jobs in turn, once all of them are possible. The exit code.

    What the command line says goes before what the file says.
    """
    code = 0
    planned = []
    for job in jobs:
        with _of_job(path, job):
            planned.append(_plan_job(asked, job, ssd))
    results: list[Result] = []
    try:
        for one, job in zip(planned, jobs, strict=True):
            for note in one.notes:
                asked.console.print(f"[dim]{escape(f'{job.name}: {note}')}[/]", highlight=False, soft_wrap=True)
            with _of_job(path, job):
                code = max(code, _run(asked, one, results, is_last=job is jobs[-1]))
            if code == EXIT_INTERRUPTED:
                break
    except BaseException:
        # Standard output has nothing yet of the jobs that have ended.
        if asked.json == "-" and 0 < len(results) < len(jobs):
            _keep(results, asked.json, asked.format)
        raise
    return code


@contextmanager
def _of_job(path: str, job: FioJob) -> Iterator[None]:
    """Errors say whose they are."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}, job {job.name}: {error}") from None


def _plan_job(asked: _Asked, job: FioJob, ssd: str | None) -> _Planned:
    target = ssd or job.filename
    if not target or (ssd is None and target.startswith("/") and not target.endswith(".toml")):
        named = f"filename={target} is a file or drive of this machine" if target else "it names no SSD"
        raise ConfigError(f"{named}; name the SSD: --ssd d7-ps1010")
    given = {name: value for name, value in asked.options.items() if value is not None}
    own, notes = _job_options(given, target, job)
    written = {name: how for name, how in job.written().items() if name in own}
    return replace(_plan(asked, target, own | given, written), job=job, notes=tuple(notes))


def _job_options(given: dict[str, Any], target: str, job: FioJob) -> tuple[dict[str, Any], list[str]]:
    """A job's own options beside the command line's, and what there is to say of those that are not used."""
    from flashmob.checks import BY_TRACE, TRACE_ONLY
    from flashmob.given import field_of
    from flashmob.naming import of_name
    from flashmob.options import is_target

    typed = {field_of(name) for name in given}
    by_trace = job.by_trace
    if typed & {"ios", "runtime_ns"}:  # How much, then, is not the file's to say.
        typed |= {"ios", "runtime_ns", "ramp_ns"}
    if "trace_path" in typed:
        typed |= {*BY_TRACE, *TRACE_ONLY, "ios", "runtime_ns", "size"}
        by_trace = job.said_by_a_trace()
    own = {name: value for name, value in job.options.items() if field_of(name) not in typed}
    notes = [f"not used, as no operating system is asked: {', '.join(job.unused)}"] if job.unused else []
    if job.depth_note and "queue_depth" not in typed:
        notes.append(job.depth_note)
    if by_trace:
        notes.append(f"not used, as the trace says what is asked: {', '.join(by_trace)}")
    if given.get("clock") == "virtual" and "cpus_allowed" in own:
        own = {name: value for name, value in own.items() if name not in ("cpus_allowed", "threads")}
        notes.append("cpus_allowed is not used, as virtual time has no threads")
    if "size" in own and is_target(of_name(target, given)):
        del own["size"]
        notes.append("the load goes to all of the SSD that is served, whatever its size= is")
    return own, notes


def _plan(
    asked: _Asked, profile: str, options: dict[str, Any], elsewhere: dict[str, tuple[str, str]] | None = None
) -> _Planned:
    """Looks at all that can be looked at without a device. `elsewhere`: options of a job, as its file has them.

    Raises:
        ConfigError: naming what was typed and the fix.
    """
    from flashmob.naming import of_name
    from flashmob.options import is_target
    from flashmob.runner import BenchRun, prepare, typed_errors

    target = of_name(profile, options)
    if not is_target(target):
        read_profile(target)  # A name that is none is said before anything else.
    if elsewhere is None:
        _check_output(asked.json, asked.format, 1)
    elsewhere = elsewhere or {}
    device, load = prepare(target, options, asked.overrides, command_line=True, elsewhere=elsewhere)
    if asked.json is not None and asked.json != "-":
        keys = {f"--{name.replace('_', '-')}": asked.typed[name] for name in _SECRETS}
        check_other(asked.json, "--json", keys | _inputs(profile, device, load))
    with typed_errors(options, command_line=True, elsewhere=elsewhere):
        return _Planned(profile, target, options, BenchRun(device, load), elsewhere=elsewhere)


def _run(asked: _Asked, planned: _Planned, before: list[Result], *, is_last: bool = True) -> int:
    """One run with its report; its result joins those `before` it in the file. The exit code."""
    from flashmob.device import engine_note
    from flashmob.naming import door_note
    from flashmob.progress import follow
    from flashmob.report import all_right
    from flashmob.runner import store_note, typed_errors

    console, job, options = asked.console, planned.job, planned.options
    device, load = planned.run.profile, planned.run.options
    for note in (door_note(planned.profile, planned.target), engine_note(device, load.clock)):
        if note:
            console.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)
    with typed_errors(options, command_line=True, elsewhere=planned.elsewhere):
        finished = follow(planned.run, console)
        result = planned.run.result()
    title = ""
    if job is not None:
        result = replace(result, jobname=job.name)
        title = f"{job.name}: {device.name} in {load.clock} time"
    before.append(result)
    # `--verify 0` asks for none.
    verifies = options.get("verify") is not None and load.verify_percent > 0
    store = store_note(planned.target, device, options.get("size"))
    # Standard output gets all of them at once.
    json = asked.json if asked.json != "-" or is_last or not finished else None
    how = {"stopped": not finished, "store": store, "verify_asked": verifies}
    _report(console, before, (json, asked.format), title=title, **how)
    if not finished:
        return EXIT_INTERRUPTED
    if result.device_failed:
        raise RuntimeError("the device is gone: it stopped answering during the run")
    return 0 if all_right(result, verify_asked=verifies) else EXIT_WRONG


def _check_output(json: str | None, format_: str, jobs: int) -> None:
    from flashmob.fio_output import FIO_JSON

    check_result(json, "--json")
    if format_ not in ("json", FIO_JSON):
        raise ConfigError(f"--output-format {format_} is not possible: use json or {FIO_JSON}")
    if format_ == FIO_JSON and json is None:
        raise ConfigError(f"--output-format {FIO_JSON} is of a file, and there is none; add --json FILE")
    if format_ != FIO_JSON and json is not None and jobs > 1:
        raise ConfigError(
            f"--json {json} holds one result, and there are {jobs} jobs; add --output-format {FIO_JSON}, which holds "
            "all of them, or choose one with --section"
        )


def _text(results: list[Result], format_: str) -> str:
    from flashmob.fio_output import FIO_JSON, fio_json

    return fio_json(*results) if format_ == FIO_JSON else results[-1].to_json()


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


def _report(console: Console, results: list[Result], kept_in: tuple[str | None, str], **how: Any) -> None:
    """Keeps the figures before anything is shown: a terminal may refuse a report, and nobody likes to run twice."""
    from flashmob.report import show

    json, format_ = kept_in
    lost = _keep(results, json, format_)
    try:
        show(console, results[-1], **how)
        if lost is None and json not in (None, "-"):
            console.print(Text(f"result written to {json}", style="dim"), soft_wrap=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        kept = f"; the result is in {json}" if lost is None and json not in (None, "-") else ""
        raise OSError(f"the report could not be printed ({error.strerror}){kept}") from None
    if lost is not None:
        raise lost


def _keep(results: list[Result], json: str | None, format_: str) -> OSError | None:
    """Writes the result where it is wanted; the error is handed back, so that the report can still be shown."""
    if json is None:
        return None
    try:
        if json == "-":
            print(_text(results, format_), flush=True)
        else:
            write_text(json, _text(results, format_) + "\n")
    except OSError as error:
        where = "standard output" if json == "-" else json
        return OSError(f"the result could not be written to {where} ({error.strerror})")
    return None


def _secret(option: str, path: str | None, kind: Secret) -> str | None:
    from flashmob.checks import read_secret

    return None if path is None else read_secret(option, path, kind)
