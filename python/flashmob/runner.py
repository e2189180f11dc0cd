"""Running a benchmark from Python: in the background, with progress, and stoppable at any time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from flashmob.device import core_device, core_module, on_engine
from flashmob.errors import ConfigError
from flashmob.keywords import BenchKeywords
from flashmob.models import Profile
from flashmob.options import SHORT_NAMES, BenchOptions, is_target, make_options, store_overrides
from flashmob.profiles import load_profile, with_overrides
from flashmob.result import Result

if TYPE_CHECKING:
    from flashmob import _core

# Options of bench() that change the device rather than the load.
_DEVICE_KEYS = {
    "units": "engine.units",
    "workers": "engine.workers",
    "copy_engine": "engine.copy",
    "seed": "seed",
    "faults": "faults",
}


# And those that take more than one key.
_OWN_DEVICE = ("size", "media", "engine", "sms")
# Options of bench() that only a door of another process knows.
_TARGET_ONLY = ("target", "host_nqn", "host_key", "controller_key", "header_digest", "data_digest")


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

    def progress(self) -> _core.BenchProgress:
        """Counters of the running benchmark; rate and latency since the previous call."""
        return self._bench.progress()

    def cancel(self) -> None:
        """Asks the run to stop early; it still gives a result."""
        self.cancelled = True
        self._bench.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run has ended, at most so many seconds; whether it has."""
        return self._done.wait(timeout_s)

    def result(self) -> Result:
        """Waits for the end and returns the result, or raises what the run raised."""
        self._done.wait()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._text is not None
        return Result.from_json(self._text)


def prepare(
    profile: str | os.PathLike[str] | Profile,
    options: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
) -> tuple[Profile, BenchOptions]:
    """The device and the load that options of bench() describe; see bench()."""
    rest = {key: value for key, value in options.items() if value is not None}
    if is_target(profile):
        return _prepare_target(str(profile), rest, overrides or {})
    for key in _TARGET_ONLY:
        if rest.get(key):
            raise ConfigError(
                f"{key} is for a target behind NVMe/TCP, not for a profile; name nvme-tcp:ADDRESS:PORT/NQN instead, "
                f"or leave it out"
            )
    wanted: dict[str, Any] = {}
    for key, dotted in _DEVICE_KEYS.items():
        if key in rest:
            wanted[dotted] = rest.pop(key)
    if "move_data" in rest:
        wanted["engine.move_data"] = rest.pop("move_data")
    size, media = rest.pop("size", None), rest.pop("media", None)
    engine, sms = rest.pop("engine", None), rest.pop("sms", None)
    wanted |= overrides or {}
    changed = (
        with_overrides(profile, wanted) if isinstance(profile, Profile) else load_profile(profile, overrides=wanted)
    )
    store = store_overrides(changed, size=size, media=media, clock=rest.get("clock"))
    for key in [key for key in store if key in wanted]:
        del store[key]  # What --set says wins.
    changed = with_overrides(changed, store)
    if engine is not None or sms is not None:
        changed = on_engine(changed, engine, sms, wanted)
    if not changed.engine.move_data:
        if rest.get("verify") or rest.get("verify_percent"):
            raise ConfigError("verify needs data, but data is not moved; leave out --verify or --no-data")
        rest |= {"verify_percent": 0, "fill": False}
        rest.pop("verify", None)
    bench_options = make_options(changed, rest)
    if not changed.subsystem.namespaces:
        raise ConfigError(
            f"{changed.path or changed.name}: has no namespace to run on; add one to subsystem.namespaces"
        )
    return changed, bench_options


def _prepare_target(target: str, rest: dict[str, Any], overrides: Mapping[str, Any]) -> tuple[Profile, BenchOptions]:
    """A device of another process: what it is like is its server's to say, so only the load can be chosen."""
    for key, value in rest.items():
        # The virtual clock drives a device of our own; the seed names the content that reads are verified against.
        own = key in (*_OWN_DEVICE, "units", "workers", "copy_engine", "move_data", "faults")
        if own or (key == "clock" and value != "real"):
            raise ConfigError(
                f"{key} describes a device of flashmob's own, but {target} is another process's; leave it out here "
                "and give it to flashmob serve"
            )
    if overrides:
        raise ConfigError(
            f"--set {next(iter(overrides))} changes a profile, but {target} is another process's device; leave it out "
            "here and give it to flashmob serve"
        )
    seed = rest.pop("seed", None)
    values = {SHORT_NAMES.get(key, key): value for key, value in rest.items()}
    profile = with_overrides(Profile(name=target), {"seed": seed} if seed is not None else {})
    return profile, make_options(profile, values | {"target": target})


def bench(
    profile: str | os.PathLike[str] | Profile,
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002  (named as on the command line)
    on_progress: Callable[[_core.BenchProgress], None] | None = None,
    interval_s: float = 0.25,
    **options: Unpack[BenchKeywords],
) -> Result:
    """Runs one benchmark and returns its result. Ctrl-C stops it cleanly; the result then covers what was done.

    Args:
        profile: a packaged profile's name, a path, or a Profile; or the door of another process, such as
            "vfio-user:/run/flashmob/ssd0" or "nvme-tcp:127.0.0.1:4420/nqn.2014-08...".
        set: dotted key -> value, changes of the profile: {"timing.read_iops": 5e6}.
        on_progress: called with the run's counters from time to time.
        interval_s: how often, in seconds.
        **options: the command line's options with underscores (rw, bs, qd, queues, runtime, ramp, size, media, units,
            workers, copy_engine, engine, sms, rate, requesters, ios, verify, clock, seed, ...) or the names of
            BenchOptions. Sizes in bytes or text such as "8G", times in ns or text such as "5s"; move_data=False is
            --no-data.

    Raises:
        ConfigError: naming what is wrong and the fix.
    """
    device, load = prepare(profile, options, set)
    run = BenchRun(device, load)
    run.start()
    with CtrlC() as ctrl_c:
        while not run.wait(interval_s):
            if ctrl_c.pressed and not run.cancelled:
                run.cancel()
            if on_progress is not None:
                on_progress(run.progress())
    return run.result()
