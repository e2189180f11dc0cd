"""Where a study's figures of cost come from: CPU time, hardware counters, joules. Each says why it has none.

A joule here is one that a meter measured: the processor's own (RAPL), the machine's (power_meters.py) or a logger's at
the plug. Where there is no meter `energy.source` is "none", or "model" where one was asked for (power_model.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flashmob.study.follower import Followed, Follower
from flashmob.study.power_meters import Nvml, hwmon, ipmi
from flashmob.study.window import Trace, unwrapped

POWERCAP = Path("/sys/class/powercap")
# RAPL counters wrap within minutes at the earliest, and move every millisecond.
_SAMPLE_S = 0.05


class Meter(Protocol):
    """One source of figures. It is entered before a measurement and left after it."""

    name: str
    # Why it measures nothing here, in a sentence; empty: it does.
    absent: str
    # Whether it measures joules.
    is_energy: bool

    def __enter__(self) -> Meter: ...
    def __exit__(self, *_: object) -> None: ...
    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Figures of the result's measured window; {"absent": why} where there are none."""


class CpuTime:
    """CPU time of those who did the I/O, of helpers and of an emulator, for each request. There always is some."""

    name = "cpu"
    absent = ""
    is_energy = False

    def __enter__(self) -> CpuTime:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Microseconds of a core for each request, and switches and system calls."""
        ios = result.get("ios") or 0
        if not ios:
            return {"absent": "no request succeeded"}
        threads, helpers = result.get("threads_cpu") or {}, result.get("helpers_cpu") or {}
        user, system = threads.get("user_ns"), threads.get("system_ns")
        own = threads.get("cpu_ns", (user or 0) + (system or 0))
        helping, emulating = helpers.get("cpu_ns", 0), (result.get("emulator_cpu") or {}).get("cpu_ns")
        switches: list[int] = [
            part[name]
            for part in (threads, helpers)
            for name in ("voluntary_switches", "involuntary_switches")
            if name in part
        ]
        calls = result.get("system_calls")
        return {
            "cpu_us_per_io": (own + helping) / ios / 1e3,
            "user_us_per_io": None if user is None else user / ios / 1e3,
            "system_us_per_io": None if system is None else system / ios / 1e3,
            "helpers_us_per_io": helping / ios / 1e3,
            "emulator_us_per_io": None if emulating is None else emulating / ios / 1e3,
            "switches_per_io": sum(switches) / ios if switches else None,
            "system_calls_per_io": None if calls is None else calls / ios,
        }


class PerfCounters:
    """Cycles and instructions for each request, which the threads themselves counted within the window."""

    name = "perf"
    absent = ""
    is_energy = False

    def __enter__(self) -> PerfCounters:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What the kernel let be counted."""
        counters = result.get("counters") or {"absent": "the emulator's run counts none"}
        ios = result.get("ios") or 0
        if "absent" in counters or not ios:
            return {"absent": counters.get("absent", "no request succeeded")}
        return {
            "cycles_per_io": counters["cycles"] / ios,
            "instructions_per_io": counters["instructions"] / ios,
        }


class Rapl(Followed):
    """Joules of processor packages and memory, as the processor counts them (powercap)."""

    name = "rapl"
    is_energy = True

    def __init__(self, root: Path | None = None) -> None:
        self.absent = ""
        root = root or POWERCAP
        self._zones = _zones(root)
        self.follower = Follower("rapl", self._counts, _SAMPLE_S)
        if not self._zones:
            self.absent = (
                f"{root} has no intel-rapl zone: the processor has none, or the virtual machine does not show it"
            )
            return
        try:
            self._ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in self._zones.values()]
            self._counts()
        except OSError as error:
            self.absent = f"{error.filename} cannot be read ({error.strerror}); run as root"
        except ValueError as error:
            self.absent = f"what stands in {root} is no energy: {error}"

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Joules and watts of the window, each zone's and their sum."""
        window = self.window_of(result)
        if isinstance(window, str):
            return {"absent": window}
        joules: dict[str, float] = {}
        readings = self.follower.readings
        times_ns = [time_ns for time_ns, _ in readings]
        for place, name in enumerate(self._zones):
            counts = unwrapped([int(values[place]) for _, values in readings], self._ranges[place])
            grown = Trace(times_ns, [count / 1e6 for count in counts]).grown(window.begin_ns, window.end_ns)
            if isinstance(grown, str):
                return {"absent": grown}
            joules[name] = grown
        total = sum(joules.values())
        return {"joules": total, "watts": total / window.seconds, "zones": joules}

    def _counts(self) -> tuple[float, ...]:
        return tuple(int((zone / "energy_uj").read_text()) for zone in self._zones.values())


def _zones(root: Path) -> dict[str, Path]:
    """Packages, and the memory beside each, which a package's own count leaves out."""
    found: dict[str, Path] = {}
    for zone in sorted(root.glob("intel-rapl:*")):
        name_file = zone / "name"
        if not name_file.is_file() or not (zone / "energy_uj").exists():
            continue
        name = name_file.read_text(encoding="utf-8").strip()
        number = zone.name.removeprefix("intel-rapl:").partition(":")[0]
        if name.startswith("package-"):
            found[name] = zone
        elif name == "dram":
            found[f"dram-{number}"] = zone
    return found


def machine_cpu() -> dict[str, int]:
    """CPU time of the whole machine since it started, in the words of the kernel's runs (proc_stat(5))."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, waiting, hard, soft, stolen = (ticks + [0] * 8)[:8]
    parts = {
        "user_ns": user + nice,
        "system_ns": system,
        "interrupt_ns": hard + soft,
        "idle_ns": idle + waiting,
        "stolen_ns": stolen,
    }
    return {name: value * tick_ns for name, value in parts.items()}


def stolen_share(result: Mapping[str, Any]) -> float | None:
    """The share of the machine's CPU time that it did not get from its hypervisor; None where that is not known."""
    found = result.get("machine_cpu") or {}
    whole = sum(found.get(name, 0) for name in ("user_ns", "system_ns", "interrupt_ns", "idle_ns", "stolen_ns"))
    return found.get("stolen_ns", 0) / whole if whole else None


def energy_of(readings: Mapping[str, Mapping[str, Any]], seconds: float, idle_w: Mapping[str, float]) -> dict[str, Any]:
    """The energy of a window from what each meter of joules read, the first that has some; else why there is none.

    `idle_w` are watts of the idle machine, by meter. Both the whole and what lies above idle are given.
    """
    for name, reading in readings.items():
        if "joules" not in reading:
            continue
        energy = {"source": "measured", "meter": name, "joules": reading["joules"], "watts": reading["watts"]}
        idle = idle_w.get(name)
        above = None if idle is None else reading["joules"] - idle * seconds
        return energy | {"idle_watts": idle, "joules_above_idle": above}
    absent = {name: reading["absent"] for name, reading in readings.items() if "absent" in reading}
    return {"source": "none", "absent": absent}


def meters_of_results() -> Sequence[Meter]:
    """Those that need nothing but a result."""
    return (CpuTime(), PerfCounters())


def meters_here() -> Sequence[Meter]:
    """Those that are read while a measurement runs. What sees the whole machine goes before what sees its processor."""
    return (CpuTime(), PerfCounters(), ipmi(), hwmon(), Rapl(), Nvml())
