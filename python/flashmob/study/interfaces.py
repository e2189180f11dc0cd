"""The study of interfaces: the same load by every way of doing I/O, with what each cost."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmob.checks import PCI
from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean
from flashmob.runner import CtrlC
from flashmob.study.meters import Meter, energy_of, machine_cpu, meters_here, meters_of_results, stolen_share
from flashmob.study.points import Settings, Trial, grid
from flashmob.study.pool import StoppedError
from flashmob.study.power_model import PowerModel
from flashmob.study.target import StudyTarget
from flashmob.units import exact_duration, exact_size

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.result import Result

STUDY = "interfaces"
# Our own driver, by how it waits.
DRIVERS = {"driver-poll": "poll", "driver-interrupt": "interrupt", "driver-hybrid": "hybrid"}
_LOOK_S = 0.25
# Time of unfinished requests, as a share of all latencies, from which a mean is in doubt.
_MOST_UNFINISHED = 0.01
# A share of the machine's CPU time that a hypervisor gave to others, from which rates speak of them, too.
_MOST_STOLEN = 0.02
_SLUG = 40


@dataclass(frozen=True)
class Plan:
    """The axes of a study, and what is the same at all of its points."""

    target: StudyTarget
    interfaces: Sequence[str]
    rw: Sequence[str]
    block_bytes: Sequence[int]
    depth: Sequence[int]
    threads: Sequence[int]
    runtime_ns: int
    ramp_ns: int
    direct: bool = True
    seed: int = 1
    meters: Sequence[Meter] = field(default_factory=meters_here)

    def points(self) -> list[dict[str, Any]]:
        """The grid; what an interface cannot do at a point of it, its result says."""
        found = grid(
            target=self.target.name,
            interface=list(self.interfaces),
            rw=list(self.rw),
            block_bytes=list(self.block_bytes),
            depth=list(self.depth),
            threads=list(self.threads),
            direct=self.direct,
            runtime_ns=self.runtime_ns,
            ramp_ns=self.ramp_ns,
            seed=self.seed,
            machine=machine_key(),
        )
        for point in found:
            if self.target.is_driver:
                del point["direct"]
                point["size"] = self.target.size
            else:
                point["file"] = file_key(self.target.name)
        return found

    def check(self) -> None:
        """Looks at every point before the first is measured.

        Raises:
            ConfigError: as the measurement would.
        """
        for point in self.points():
            if self.target.is_driver:
                from flashmob.runner import prepare

                options, typed = _bench_options(point), self._as_typed(point)
                prepare(self.target.name, options, command_line=True, elsewhere=typed)
            else:
                _kernel_run(point, self.target.allow_writes)
        if self.target.is_driver and any("write" in rw for rw in self.rw):
            self._check_writes()

    def _as_typed(self, point: Settings) -> dict[str, tuple[str, str]]:
        """How the command line has the options of a benchmark."""
        times = {f"{name}_ns": (f"--{name}", exact_duration(point[f"{name}_ns"])) for name in ("runtime", "ramp")}
        threads = ("--threads", point["threads"])
        values = {
            "rw": ("--rw", point["rw"]),
            "bs": ("--bs", exact_size(point["block_bytes"]).removesuffix("iB")),
            "qd": ("--depth", point["depth"]),
            "queues": threads,
            "threads": threads,
            "completion": ("--interfaces", point["interface"]),
            "size": ("--size", self.target.size),
            **times,
        }
        return {option: (name, f"{name} {value}") for option, (name, value) in values.items()}

    def _check_writes(self) -> None:
        from flashmob.profiles import load_profile

        lost = self.target.name
        if self.target.size:
            # Memory is the study's own; what a profile keeps elsewhere may be somebody's.
            media = [one.media for one in load_profile(lost).subsystem.namespaces]
            if all(one in ("memory", "generated") for one in media):
                return
            lost = ", ".join(media)
        if not self.target.allow_writes:
            raise ConfigError(f"{lost} would be overwritten; add --allow-writes if that does not matter")

    def measure(self, settings: Settings) -> dict[str, Any]:
        """Measures one point.

        Raises:
            StoppedError: after Ctrl-C.
        """
        with ExitStack() as running:
            for meter in self.meters:
                running.enter_context(meter)
            if self.target.is_driver:
                result = _measure_driver(settings)
            else:
                self.target.check_same()
                result = _measure_kernel(settings, self.target.allow_writes)
        readings = {meter.name: meter.read(result) for meter in self.meters if meter.is_energy}
        result |= {"provenance": provenance(), "seed": settings["seed"]}
        return result | {"energy_readings": readings} if result.get("supported") else result

    def idle(self, seconds: float) -> dict[str, Any]:
        """Reads the meters of joules while nothing is asked of the target."""
        with ExitStack() as running:
            for meter in self.meters:
                running.enter_context(meter)
            begin_ns = time.monotonic_ns()
            ahead_ns = time.time_ns() - begin_ns
            time.sleep(seconds)
            window = {"begin_ns": begin_ns, "end_ns": time.monotonic_ns(), "realtime_ahead_ns": ahead_ns}
        result: dict[str, Any] = {"window": window, "machine": machine_key()}
        return result | {"energy_readings": {one.name: one.read(result) for one in self.meters if one.is_energy}}


def default_folder(target: StudyTarget, study: str = STUDY) -> str:
    """Where results of a target are if no --out is given: no two targets share one, and each finds its own again."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", Path(target.name).name).strip("-.")[:_SLUG] or "target"
    return f"out/{study}/{slug}-{hashlib.sha256(target.name.encode()).hexdigest()[:8]}"


def with_seed_of(trial: Trial) -> Settings:
    """A trial's settings with a seed of its own: equal seeds would ask for the same places in the same order again."""
    if trial.repeat == 0:
        return trial.settings
    drawn = hashlib.sha256(f"{trial.settings['seed']}:{trial.repeat}".encode()).digest()
    return {**trial.settings, "seed": int.from_bytes(drawn[:4], "little")}


def machine_key() -> str:
    """What must be the same for a kept result to be one of now: processor, kernel, version."""
    found = provenance()
    return ", ".join(str(found[name]) for name in ("cpu", "cores", "kernel", "version"))


def file_key(name: str) -> str:
    """Which file or device a name stands for."""
    try:
        found = Path(name).stat()
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_rdev}:{found.st_size}"


def is_done(result: Mapping[str, Any]) -> bool:
    """Whether a kept result need not be measured again: what was not possible, or failed, may be so no longer."""
    try:
        return bool(result.get("supported") and result["ios"] and figures(result, meters_of_results(), {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def provenance() -> dict[str, Any]:
    """Which machine measured, when."""
    from flashmob import __version__, _core

    machine = _core.machine_info()
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"version": __version__, "date": date, **{name: machine[name] for name in ("cpu", "cores", "kernel")}}


def kernel_interfaces() -> list[_core.InterfaceInfo]:
    """Those that the compiled module has."""
    from flashmob import _core

    return _core.kernel_interfaces()


def interface_names(target: StudyTarget) -> list[str]:
    """What can be compared on a target."""
    return list(DRIVERS) if target.is_driver else [info.name for info in kernel_interfaces()]


def check_interfaces(target: StudyTarget, names: Sequence[str]) -> list[str]:
    """The names, or all there are if there are none.

    Raises:
        ConfigError: naming one that the target does not have.
    """
    known = interface_names(target)
    for name in names:
        if name not in known:
            if name in DRIVERS:
                raise ConfigError(f"{name} drives a profile or a door, and {target.name} is neither; leave it out")
            raise ConfigError(
                f"--interfaces {name} is not possible here{did_you_mean(name, known)}; use {', '.join(known)}"
            )
    return list(names) or known


def _kernel_run(settings: Settings, allow_writes: bool) -> _core.InterfaceRun:
    from flashmob import _core

    options = _core.InterfaceOptions()
    options.interface_name = settings["interface"]
    options.path = settings["target"]
    options.allow_writes = allow_writes
    for name in ("seed", "rw", "block_bytes", "depth", "threads", "direct", "runtime_ns", "ramp_ns"):
        try:
            setattr(options, name, settings[name])
        except TypeError:
            raise ConfigError(
                f"{name} = {settings[name]} is not possible: that is beyond what can be counted"
            ) from None
    return _core.InterfaceRun(options)


def _measure_kernel(settings: Settings, allow_writes: bool) -> dict[str, Any]:
    run = _kernel_run(settings, allow_writes)
    found: list[str | BaseException] = []

    def work() -> None:
        try:
            found.append(run.run())
        except BaseException as error:
            found.append(error)

    with CtrlC() as ctrl_c:
        thread = threading.Thread(target=work, name="flashmob-study")
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_S)
            if ctrl_c.pressed:
                run.cancel()
        if ctrl_c.pressed:
            raise StoppedError
    outcome = found[0]
    if isinstance(outcome, BaseException):
        raise outcome
    document: dict[str, Any] = json.loads(outcome)
    return document


def _bench_options(settings: Settings) -> dict[str, Any]:
    size = {"size": settings["size"]} if settings["size"] else {}
    # Whether they may be lost was asked before.
    leave = {"allow_writes": True} if str(settings["target"]).startswith(PCI) and "write" in settings["rw"] else {}
    return {
        "rw": settings["rw"],
        "bs": settings["block_bytes"],
        "qd": settings["depth"],
        "queues": settings["threads"],
        "threads": settings["threads"],
        "completion": DRIVERS[settings["interface"]],
        "runtime_ns": settings["runtime_ns"],
        "ramp_ns": settings["ramp_ns"],
        "seed": settings["seed"],
        "clock": "real",
        "verify": 0,
        # Nothing is read back, and what lies behind a door is somebody's.
        "fill": False,
        **size,
        **leave,
    }


def _measure_driver(settings: Settings) -> dict[str, Any]:
    from flashmob.runner import bench

    before = machine_cpu()
    result = bench(settings["target"], **_bench_options(settings))
    if result.cancelled:
        raise StoppedError
    # The driver's run does not look at the machine itself; its ramp and its end are in this.
    after = machine_cpu()
    return driver_document(result) | {"machine_cpu": {name: max(0, after[name] - before[name]) for name in after}}


def driver_document(result: Result) -> dict[str, Any]:
    """A benchmark's result in the words of the kernel's runs; the emulator's own CPU time stands apart."""
    latency = result.latency_ns
    shares = result.provenance.get("cpu_share", {})
    seconds = result.runtime_seconds
    own = sum(share for name, share in shares.items() if name.startswith("driver"))
    other = sum(share for name, share in shares.items() if not name.startswith("driver"))
    return {
        "supported": True,
        "window": result.provenance.get("window"),
        "seconds": seconds,
        "ios": result.ios,
        "iops": result.iops,
        "latency_ns": {name: getattr(latency, name) for name in ("mean", "min", "p50", "p90", "p99", "p999", "max")},
        "errors": dict(result.errors) | ({"unanswered": result.unanswered} if result.unanswered else {}),
        "device_failed": result.device_failed,
        "threads_cpu": {"cpu_ns": own * seconds * 1e9},
        "emulator_cpu": {"cpu_ns": other * seconds * 1e9 if other else None},
        "system_calls": None,
        "verdict": result.verdict_text,
    }


def figures(
    result: Mapping[str, Any], meters: Sequence[Meter], idle: Mapping[str, Any], model: PowerModel | None = None
) -> dict[str, Any]:
    """A row's figures: rate, latency, cost for each request, energy, which `model` gives where nothing was measured."""
    if not result.get("supported"):
        return {"supported": False, "reason": result.get("reason", "not known")}
    latency = result["latency_ns"]
    row: dict[str, Any] = {
        "supported": True,
        "reason": "",
        "iops": result["iops"],
        "errors": sum(result.get("errors", {}).values()) + (result.get("short_transfers") or 0),
    }
    if result["ios"]:
        row |= {f"{name}_us": latency[name] / 1e3 for name in ("mean", "p50", "p99", "p999", "max")}
    if (stolen := stolen_share(result)) is not None:
        row["stolen_percent"] = 100 * stolen
    if words := _doubt(result):
        row["doubt"] = words
    readings: dict[str, Mapping[str, Any]] = {}
    idle_w: dict[str, float] = {}
    for meter in meters:
        if not meter.is_energy:
            row |= {name: value for name, value in meter.read(result).items() if name != "absent"}
            continue
        # A log is read when it is there; a meter of the machine was read while the measurement ran.
        kept = result.get("energy_readings", {}).get(meter.name)
        readings[meter.name] = kept if kept is not None else meter.read(result)
        still = idle.get("energy_readings", {}).get(meter.name) or (meter.read(idle) if idle else {})
        if "watts" in still:
            idle_w[meter.name] = still["watts"]
        row |= {name: value for name, value in readings[meter.name].items() if name.startswith("gpu_")}
    energy = energy_of(readings, result["seconds"], idle_w)
    if energy["source"] == "none" and model is not None:
        energy = model.energy(result)
    row["energy.source"] = energy["source"]
    if energy["source"] != "none":
        above = energy["joules_above_idle"]
        row |= {
            "energy.meter": energy["meter"],
            "watts": energy["watts"],
            "idle_watts": energy["idle_watts"],
            "ios_per_joule": result["ios"] / energy["joules"] if energy["joules"] > 0 else None,
            "ios_per_joule_above_idle": result["ios"] / above if above is not None and above > 0 else None,
        }
    if result.get("verdict"):
        row["verdict"] = result["verdict"]
    return row


def _doubt(result: Mapping[str, Any]) -> str:
    """Why the row is not to be relied on; empty: no reason is known."""
    if result.get("device_failed"):
        return "the device failed before the end"
    if not result["ios"]:
        return "no request ended in the measured window"
    left, latency = result.get("unfinished") or {}, result["latency_ns"]
    if left.get("oldest_ns", 0) > latency["max"]:
        return (
            f"a request that was under way at the end, for {left['oldest_ns'] / 1e3:.0f} us already, "
            "is in no latency and would be the longest"
        )
    if left.get("total_ns", 0) > _MOST_UNFINISHED * latency["mean"] * result["ios"]:
        return f"{left['requests']} requests that were under way at the end are in no latency, which changes the mean"
    if (stolen := stolen_share(result) or 0) > _MOST_STOLEN:
        return f"the hypervisor gave {100 * stolen:.0f} % of the machine's CPU time to others"
    return ""


def seconds_of(settings: Settings) -> float:
    """How long a measurement takes, about."""
    return float((settings["runtime_ns"] + settings["ramp_ns"]) / 1e9)
