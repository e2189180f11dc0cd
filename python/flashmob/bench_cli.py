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
    AMOUNT,
    CHECKS,
    DEVICE,
    LOAD,
    NETWORK,
    OF_PROFILE,
    OUTPUT,
    SET_HELP,
    DefaultsCommand,
    Faults,
    Media,
    Size,
    Target,
    option,
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

    left_out: ClassVar = {
        "rw": "randread",
        "bs": "512",
        "read_share": "0.5",
        "distribution": "uniform",
        "trace_format": "auto",
        "trace_disk": "all of them",
        "qd": "128",
        "queues": "4",
        "queue_entries": "the depth and one",
        "requesters": "one per slot",
        "think": "none",
        "rate": "a closed loop",
        "arrivals": "poisson",
        "threads": "1",
        "cores": "not pinned",
        "runtime": "5s; a trace to its end",
        "ramp": "1s; in virtual time two rounds of all requests",
        "ios": "as many as the time holds; in virtual time 5M",
        "size": "the profile's, of memory at most 1G",
        "clock": "real",
        "verify": "1",
        "precondition": "none",
        **OF_PROFILE,
    }

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


def bench(
    context: typer.Context,
    profile: Target,
    rw: Annotated[str | None, option(LOAD, "KIND", "read, write, randread, randwrite, rw or randrw.")] = None,
    bs: Annotated[str | None, option(LOAD, "BYTES", "512, 4k, or a mix such as 512:70,4k:30.")] = None,
    read_share: Annotated[str | None, option(LOAD, "SHARE", "Reads in rw and randrw, 0 to 1.")] = None,
    distribution: Annotated[str | None, option(LOAD, "KIND", "uniform, zipf:0.99 or hotcold:0.9:0.1.")] = None,
    trace: Annotated[str | None, option(LOAD, "FILE", "Replay a trace instead.")] = None,
    trace_format: Annotated[str | None, option(LOAD, "KIND", "auto, fio, msr, alibaba or tencent.")] = None,
    trace_disk: Annotated[str | None, option(LOAD, "NAME", "Replay only this disk or volume of the trace.")] = None,
    as_fast: Annotated[bool, option(LOAD, None, "Ignore the trace's timing.", "--as-fast")] = False,
    qd: Annotated[str | None, option(AMOUNT, "N", "Commands in flight per queue.")] = None,
    queues: Annotated[str | None, option(AMOUNT, "N", "I/O queue pairs.")] = None,
    queue_entries: Annotated[str | None, option(AMOUNT, "N", "Slots of each ring.")] = None,
    requesters: Annotated[str | None, option(AMOUNT, "N", "Closed-loop requesters over all queues.")] = None,
    think: Annotated[str | None, option(AMOUNT, "TIME", "Closed loop: pause of a requester, 10us.")] = None,
    rate: Annotated[str | None, option(AMOUNT, "RATE", "Open loop: arrivals per second, such as 2M.")] = None,
    arrivals: Annotated[str | None, option(AMOUNT, "KIND", "Open loop: fixed or poisson.")] = None,
    threads: Annotated[str | None, option(AMOUNT, "N", "Driver threads.")] = None,
    cores: Annotated[str | None, option(AMOUNT, "LIST", "Pin driver threads: 0,2-3.")] = None,
    runtime: Annotated[str | None, option(AMOUNT, "TIME", "Measured time, such as 10s.")] = None,
    ramp: Annotated[str | None, option(AMOUNT, "TIME", "Time before measuring.")] = None,
    ios: Annotated[str | None, option(AMOUNT, "N", "Stop after so many requests.")] = None,
    size: Size = None,
    media: Media = None,
    units: Annotated[str | None, option(DEVICE, "N", "Service units of the engine.")] = None,
    workers: Annotated[str | None, option(DEVICE, "N", "Workers per unit; 0: the dispatcher does both.")] = None,
    copy_engine: Annotated[
        str | None, option(DEVICE, "KIND", "auto, memcpy, avx2, avx512, nontemporal or dsa.")
    ] = None,
    engine: Annotated[str | None, option(DEVICE, "KIND", "host, or gpu: a kernel on the GPU serves queues.")] = None,
    sms: Annotated[str | None, option(DEVICE, "N", "GPU engine: multiprocessors that it takes.")] = None,
    no_data: Annotated[bool, option(DEVICE, None, "Frontend only: move no data.", "--no-data")] = False,
    clock: Annotated[str | None, option(DEVICE, "KIND", "real or virtual.")] = None,
    seed: Annotated[str | None, option(DEVICE, "N", "Equal seeds, equal virtual runs.")] = None,
    set_: Annotated[list[str] | None, option(DEVICE, "KEY=VALUE", SET_HELP, "--set")] = None,
    fault: Faults = None,
    verify: Annotated[str | None, option(CHECKS, "PERCENT", "Reads whose content is checked.")] = None,
    no_fill: Annotated[bool, option(CHECKS, None, "Do not write the store full first.", "--no-fill")] = False,
    precondition: Annotated[str | None, option(CHECKS, "KIND", "Model nand: none, or steady at once.")] = None,
    host_nqn: Annotated[str | None, option(NETWORK, "NQN", "Who we are to the target.")] = None,
    host_key: Annotated[str | None, option(NETWORK, "FILE", "Our secret (DHHC-1), to prove it.")] = None,
    controller_key: Annotated[str | None, option(NETWORK, "FILE", "The target's, to have it prove itself.")] = None,
    tls_key: Annotated[str | None, option(NETWORK, "FILE", "Use TLS, with this key (NVMeTLSkey-1).")] = None,
    header_digest: Annotated[bool, option(NETWORK, None, "CRC32C over headers.", "--header-digest")] = False,
    data_digest: Annotated[bool, option(NETWORK, None, "CRC32C over data.", "--data-digest")] = False,
    json: Annotated[str | None, option(OUTPUT, "FILE", "Write the result; - for standard output.")] = None,
) -> None:
    """Runs a load against an emulated SSD and reports rates, latencies and how true the emulation was.

    The SSD is one of this process, or one that flashmob serve (or anybody else) offers: then its server judges it.
    """
    typed = locals()
    from flashmob.device import engine_note
    from flashmob.naming import door_note, of_name
    from flashmob.options import is_target
    from flashmob.progress import follow
    from flashmob.report import all_right
    from flashmob.runner import BenchRun, prepare, store_note, typed_errors

    options = _options(context, typed)
    target = of_name(profile, options)
    if not is_target(target):
        read_profile(target)  # A name that is none is said before anything else.
    check_result(json, "--json")
    device, load = prepare(target, options, parse_overrides(set_ or []), command_line=True)
    if json is not None and json != "-":
        keys = {"--host-key": host_key, "--controller-key": controller_key, "--tls-key": tls_key}
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
    asked = verify is not None and load.verify_percent > 0
    _report(console, result, json, stopped=not finished, store=store_note(target, device, size), verify_asked=asked)
    if not finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.device_failed:
        raise RuntimeError("the device is gone: it stopped answering during the run")
    if not all_right(result, verify_asked=asked):
        raise typer.Exit(EXIT_WRONG)


def _inputs(profile: str, device: Profile, load: BenchOptions) -> dict[str, str | None]:
    """What the run reads, by what names it."""
    return {
        profile: str(device.path) if device.path is not None else None,
        "--trace": load.trace_path or None,
        **{f"media {one.media}": media_path(one.media) for one in device.subsystem.namespaces},
    }


# Arguments of the command that mean something else to bench() of Python, or nothing.
_NOT_HANDED_ON = ("context", "profile", "set_", "json", "no_data", "no_fill", "fault")


def _options(context: typer.Context, typed: dict[str, Any]) -> dict[str, Any]:
    """Options of Python's bench() from the command's arguments; a flag that was not given is none."""
    own = {name: None if value is False else value for name, value in typed.items() if name not in _NOT_HANDED_ON}
    return {
        **context.meta.get(FIO, {}),
        **own,
        "move_data": False if typed["no_data"] else None,
        "fill": False if typed["no_fill"] else None,
        "faults": typed["fault"] or None,
        "host_key": _secret("--host-key", typed["host_key"]),
        "controller_key": _secret("--controller-key", typed["controller_key"]),
        "tls_key": _secret("--tls-key", typed["tls_key"], "NVMeTLSkey-1"),
        "command": shlex.join(["flashmob", *sys.argv[1:]]),
    }


def _report(console: Console, result: Result, json: str | None, **how: Any) -> None:
    """Keeps the figures before anything is shown: a terminal may refuse a report, and nobody likes to run twice."""
    from flashmob.report import show

    lost = _keep(result, json)
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


def _keep(result: Result, json: str | None) -> OSError | None:
    """Writes the result where it is wanted; the error is handed back, so that the report can still be shown."""
    if json is None:
        return None
    try:
        if json == "-":
            print(result.to_json(), flush=True)
        else:
            write_text(json, result.to_json() + "\n")
    except OSError as error:
        where = "standard output" if json == "-" else json
        return OSError(f"the result could not be written to {where} ({error.strerror})")
    return None


def _secret(option: str, path: str | None, kind: Secret = "DHHC-1") -> str | None:
    from flashmob.checks import read_secret

    return None if path is None else read_secret(option, path, kind)
