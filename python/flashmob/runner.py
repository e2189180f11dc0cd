"""Running a benchmark from Python: in the background, with progress, and stoppable at any time."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from flashmob.checks import (
    check_engine,
    check_fit,
    check_no_data,
    check_no_target,
    check_overrides,
    check_reads,
    check_target,
    checked_seconds,
)
from flashmob.device import core_device, core_module, on_engine
from flashmob.errors import ConfigError
from flashmob.faults import rule_list
from flashmob.given import Given, field_of
from flashmob.keywords import BenchKeywords
from flashmob.models import Profile
from flashmob.options import KNOWN, BenchOptions, is_target, make_options, store_overrides
from flashmob.profiles import changes, changes_errors, load_profile, with_overrides
from flashmob.result import Result
from flashmob.units import format_capacity, format_size

if TYPE_CHECKING:
    from flashmob import _core

# Options of bench() that change the device rather than the load, and the profile's key that each stands for.
_DEVICE_KEYS = {
    "units": "engine.units",
    "workers": "engine.workers",
    "copy_engine": "engine.copy",
    "engine": "engine.kind",
    "sms": "engine.sms",
    "move_data": "engine.move_data",
    "seed": "seed",
    "faults": "faults",
}
# These two may mean more than one key.
_STORE_KEYS = {"size": "subsystem.namespaces.0.size_bytes", "media": "subsystem.namespaces.0.media"}
# How the compiled module writes these.
_COPY = re.compile(r'engine\.copy = "([a-z0-9]+)"', re.ASCII)
_OPTION = re.compile(r"(?<![^\s(])--(trace-format|trace-disk|trace|size|media|verify|no-fill)\b", re.ASCII)
# Media that cost nothing where nothing is written, however large they are.
_ANY_SIZE = ("memory", "generated")
# Between two calls of on_progress; Ctrl-C is looked for more often than that.
_LONGEST_INTERVAL_S = 24 * 3600.0
_LOOK_S = 0.25
# For a run that was asked to stop to do so, where nobody takes its result.
_LEAVE_S = 2.0


class CtrlC:
    """Notes a first Ctrl-C instead of raising; a second one raises KeyboardInterrupt as usual.

    An exception raised just anywhere may leave a lock of the interpreter's own taken (threading.Event is not safe
    against it), and whoever needs it next waits forever. Outside the main thread, which alone sees Ctrl-C, it does
    nothing.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None
        self._ours = threading.current_thread() is threading.main_thread()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __enter__(self) -> CtrlC:
        if self._ours:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)


class BenchRun:
    """One benchmark in a thread of its own, so that the main thread stays free for Ctrl-C and for progress.

    The compiled module releases the GIL while it runs.
    """

    def __init__(self, profile: Profile, options: BenchOptions) -> None:
        """Builds the device and the load.

        Raises:
            ConfigError: if either cannot be.
        """
        self.profile = profile
        self.options = options
        self.cancelled = False
        self._bench: _core.Bench = core_module().Bench(core_device(profile), options.to_core())
        self._text: str | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flashmob-bench", daemon=True)

    def _run(self) -> None:
        try:
            self._text = self._bench.run()
        except BaseException as error:  # Handed to the thread that waits for the result.
            self._error = error
        finally:
            self._done.set()

    def start(self) -> None:
        """Starts the run; call once."""
        self._thread.start()

    def __enter__(self) -> BenchRun:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whoever leaves by an exception takes no result: the run must not go on without anybody who can stop it."""
        if kind is not None:
            # A model is computed after the run, and given up only where it is under way when that is asked.
            self.cancel()
            until_s = time.monotonic() + _LEAVE_S
            while not self.wait(0.1) and time.monotonic() < until_s:
                self.cancel()

    def progress(self) -> _core.BenchProgress:
        """Counters of the running benchmark; rate and latency since the previous call."""
        return self._bench.progress()

    def cancel(self) -> None:
        """Asks the run to stop early; it still gives a result."""
        self.cancelled = True
        self._bench.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run has ended, at most so many seconds; whether it has."""
        # No lock can wait longer; math.inf is beyond it, too.
        return self._done.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))

    def result(self) -> Result:
        """Waits for the end and returns the result, or raises what the run raised."""
        self._done.wait()
        self._thread.join()
        if self._error is not None:
            # Cut short before there was a device: nothing is wrong with what was asked for, and there is no result.
            if self.cancelled and isinstance(self._error, ConfigError):
                raise KeyboardInterrupt from self._error
            raise self._error
        assert self._text is not None
        return Result.from_json(self._text)


def prepare(
    profile: str | os.PathLike[str] | Profile,
    options: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    command_line: bool = False,
    elsewhere: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Profile, BenchOptions]:
    """The device and the load that options of bench() describe; see bench().

    `command_line`: errors name options as they are written there, and those that are `elsewhere` as there (see Given).
    """
    with nullcontext() if command_line else changes_errors():
        overrides = changes(overrides)
        given = Given(options, KNOWN, command_line=command_line, elsewhere=elsewhere)
        if is_target(profile):
            device, load = _prepare_target(str(profile), given, overrides)
        else:
            check_no_target(given)
            device, load = _prepare_own(profile, given, overrides)
        check_reads(given, load)
        check_fit(given, device, load)
    return device, load


@contextmanager
def typed_errors(
    options: Mapping[str, Any],
    *,
    command_line: bool = False,
    elsewhere: Mapping[str, tuple[str, str]] | None = None,
) -> Iterator[None]:
    """Errors of the compiled module, which knows keys of profiles and options of the command line, in what was typed.

    Raises:
        ConfigError: with the names that the caller uses.
    """
    try:
        with nullcontext() if command_line else changes_errors():
            yield
    except ConfigError as error:
        text = str(error)
        if options.get("copy_engine") is not None:
            written = "--copy-engine {}" if command_line else "copy_engine={!r}"
            text = _COPY.sub(lambda found: written.format(found[1]), text)
        if not command_line:
            text = _OPTION.sub(lambda found: found[1].replace("-", "_"), text)
        elif elsewhere:
            there = {field_of(name): written for name, (written, _) in elsewhere.items()}
            text = _OPTION.sub(lambda found: there.get(field_of(found[1].replace("-", "_")), found[0]), text)
        raise ConfigError(text) from None


def _prepare_own(
    profile: str | os.PathLike[str] | Profile, given: Given, overrides: Mapping[str, Any]
) -> tuple[Profile, BenchOptions]:
    named = {dotted: given.shown(key) for key, dotted in (_DEVICE_KEYS | _STORE_KEYS).items() if key in given}
    for dotted in overrides:
        if dotted in named:
            raise ConfigError(f"{named[dotted]} and {given.name('set')} {dotted} mean the same; leave one of them out")
    check_overrides(given, overrides)
    _check_faults(given)
    changed = (
        with_overrides(profile, overrides)
        if isinstance(profile, Profile)
        else load_profile(profile, overrides=overrides)
    )
    wanted = {dotted: given.get(key) for key, dotted in _DEVICE_KEYS.items() if key in given}
    changed = with_overrides(changed, wanted, named)
    store = store_overrides(changed, size=given.get("size"), media=given.get("media"))
    sized_by_trace = _sized_by_trace(given, changed, overrides)
    if sized_by_trace:
        store.pop(_STORE_KEYS["size"], None)
    changed = with_overrides(changed, {key: value for key, value in store.items() if key not in overrides}, named)
    check_engine(given, changed.engine.kind, overrides)
    changed = on_engine(changed, given.get("engine"), given.get("sms"), {**wanted, **overrides})
    core_device(changed, named)
    if not changed.subsystem.namespaces:
        raise ConfigError(
            f"{changed.path or changed.name}: has no namespace to run on; add one to subsystem.namespaces"
        )
    load = make_options(changed, given)
    if sized_by_trace:
        load = load.model_copy(update={"trace_sizes_namespace": True})
    if not changed.engine.move_data:
        check_no_data(given, load)
        load = load.model_copy(update={"verify_percent": 0.0, "fill": False})
    return changed, load


def store_note(profile: str | os.PathLike[str] | Profile, device: Profile, size: str | int | None = None) -> str:
    """Both sizes where a benchmark took a smaller store than the profile has, as none was asked for; else empty."""
    if size is not None or is_target(profile) or not device.subsystem.namespaces:
        return ""
    whole = profile if isinstance(profile, Profile) else load_profile(profile)
    namespace = whole.subsystem.namespaces[0] if whole.subsystem.namespaces else None
    taken = device.subsystem.namespaces[0]
    if namespace is None or taken.media != "memory" or not 0 < taken.size_bytes < namespace.size_bytes:
        return ""
    return f"{format_size(taken.size_bytes)} of the profile's {format_capacity(namespace.size_bytes)}"


def _sized_by_trace(given: Given, profile: Profile, overrides: Mapping[str, Any]) -> bool:
    """Whether the namespace is to be as large as the trace needs: nobody chose a size, and no file has one."""
    if not given.get("trace_path") or "size" in given or _STORE_KEYS["size"] in overrides:
        return False
    namespaces = profile.subsystem.namespaces
    return bool(namespaces) and given.get("media", namespaces[0].media) in _ANY_SIZE


def _check_faults(given: Given) -> None:
    rules = rule_list(given.get("faults", ()))
    for rule in rules:
        try:
            core_module().check_faults([rule])
        except ConfigError as error:
            # The core begins with the rule, which the option shows already.
            why = str(error).removeprefix(f'fault "{rule}": ')
            raise ConfigError(f"{given.would_be('faults', [rule])}: {why}") from None


def _prepare_target(target: str, given: Given, overrides: Mapping[str, Any]) -> tuple[Profile, BenchOptions]:
    """A device of another process: what it is like is its server's to say, so only the load can be chosen."""
    check_target(given, target, overrides)
    # The seed names the content that reads are verified against.
    wanted = {"seed": given.get("seed")} if "seed" in given else {}
    profile = with_overrides(Profile(name=target), wanted, {"seed": given.shown("seed")})
    return profile, make_options(profile, given, target)


def bench(
    profile: str | os.PathLike[str] | Profile,
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002  (named as on the command line)
    on_progress: Callable[[_core.BenchProgress], None] | None = None,
    interval_s: float = 0.25,
    **options: Unpack[BenchKeywords],
) -> Result:
    """Runs one benchmark and returns its result. Ctrl-C stops it cleanly; the result then covers what was done.

    So does that of a run whose device fails or goes away: look at `device_failed` and `cancelled`.

    Args:
        profile: a packaged profile's name, a path, or a Profile; or the door of another process, such as
            "vfio-user:/run/flashmob/ssd0" or "nvme-tcp:127.0.0.1:4420/nqn.2014-08..."; or the name of an SSD that
            this user serves (`flashmob ls`), where no profile has it.
        set: dotted key -> value, changes of the profile: {"timing.read_iops": 5e6}.
        on_progress: called with the run's counters from time to time.
        interval_s: how often, in seconds.
        **options: the command line's options with underscores (rw, bs, qd, queues, runtime, ramp, size, media, units,
            workers, copy_engine, engine, sms, rate, requesters, ios, verify, clock, seed, ...) or the names of
            BenchOptions. Sizes in bytes or text such as "8G"; runtime, ramp and think as text with a unit such as
            "5s" (runtime_ns, ramp_ns and think_time_ns take a number of ns); move_data=False is --no-data. None counts
            as not given. fio's names for the same (iodepth, numjobs, rwmixread, ...) are understood.

    Raises:
        ConfigError: naming what is wrong and the fix.
    """
    from flashmob.naming import of_name

    interval_s = checked_seconds("interval_s", interval_s, most_s=_LONGEST_INTERVAL_S)
    device, load = prepare(of_name(profile, options), options, set)
    with typed_errors(options):
        run = BenchRun(device, load)
        with CtrlC() as ctrl_c, run:
            due_s = time.monotonic() + interval_s
            while not run.wait(_LOOK_S if on_progress is None else max(0.0, min(_LOOK_S, due_s - time.monotonic()))):
                if ctrl_c.pressed and not run.cancelled:
                    run.cancel()
                if on_progress is not None and time.monotonic() >= due_s:
                    on_progress(run.progress())
                    due_s = time.monotonic() + interval_s
        return run.result()
