"""Meters of power that the machine itself has: hwmon, its management controller (IPMI), and NVIDIA's GPUs (NVML).

The first two give watts of the whole machine from time to time, which are followed through the window with straight
lines; NVML counts joules of each GPU, which are no part of what the processor's own counters see. Nothing here was run
on a machine that has one: the tests give them files, a command and a library that answer as the real ones do.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from flashmob.study.follower import Followed, Follower
from flashmob.study.window import Trace

HWMON = Path("/sys/class/hwmon")
NVML = "libnvidia-ml.so.1"
# The kernel's name for a meter of the whole machine (ACPI 4.0, 10.4), as against one of a rail or of a card.
_WHOLE_MACHINE = "power_meter"
_DCMI = re.compile(r"(?:Instantaneous power reading|Current Power)\s*:\s*([0-9]+) Watts")
# What asks the management controller for watts (DCMI 1.5, 6.6.1); the first that is installed is taken.
_DCMI_COMMANDS = (("ipmitool", "dcmi", "power", "reading"), ("ipmi-dcmi", "--get-system-power-statistics"))
_ANSWER_S = 5.0
# Its readings are a second old or more, and one is lost in the beginning.
_DCMI_LEAST_S = 10.0
# A meter that reads every second and has lost this much has lost the measurement.
_WIDEST_GAP_NS = 5_000_000_000
_NVML_SUCCESS = 0


class Watts(Followed):
    """A meter that says watts of the whole machine when it is asked."""

    is_energy = True

    def __init__(
        self, name: str, read_w: Callable[[], float], absent: str, *, every_s: float, least_s: float = 0.0
    ) -> None:
        self.name, self.absent = name, absent
        self._least_s = least_s
        self.follower = Follower(name, lambda: (read_w(),), every_s)

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Joules and watts of the window."""
        window = self.window_of(result)
        if isinstance(window, str):
            return {"absent": window}
        if window.seconds < self._least_s:
            return {"absent": f"a window of {window.seconds:.3g} s is short for it; measure for {self._least_s:g} s"}
        joules = [0.0]
        for (before_ns, (before,)), (now_ns, (now,)) in pairwise(self.follower.readings):
            joules.append(joules[-1] + (before + now) / 2 * (now_ns - before_ns) / 1e9)
        times_ns = [time_ns for time_ns, _ in self.follower.readings]
        trace = Trace(times_ns, joules[: len(times_ns)], widest_gap_ns=_WIDEST_GAP_NS)
        grown = trace.grown(window.begin_ns, window.end_ns)
        return {"absent": grown} if isinstance(grown, str) else {"joules": grown, "watts": grown / window.seconds}


def hwmon(root: Path | None = None) -> Watts:
    """The ACPI power meter, where the machine has one. Sensors of rails and of cards overlap, and are not added up."""
    root = root or HWMON
    found: list[Path] = []
    others: list[str] = []
    for sensor in sorted(root.glob("hwmon*")):
        files = [path for kind in ("average", "input") for path in sorted(sensor.glob(f"power*_{kind}"))]
        name = _text(sensor / "name")
        if files and name == _WHOLE_MACHINE:
            found.append(files[0])
        elif files:
            others.append(name or sensor.name)
    absent = ""
    if not found:
        beside = f"; power sensors of {', '.join(others)} are of parts" if others else ""
        absent = f"{root} has no power meter of the whole machine{beside}"
    else:
        try:
            _microwatts(found)
        except (OSError, ValueError) as error:
            absent = f"{found[0]} cannot be read ({error})"
    return Watts("hwmon", lambda: _microwatts(found), absent, every_s=0.25)


def _microwatts(files: Sequence[Path]) -> float:
    return sum(int(path.read_text(encoding="ascii")) for path in files) / 1e6


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def ipmi(which: Callable[[str], str | None] = shutil.which) -> Watts:
    """What the management controller says of the machine's power (DCMI), once a second, by whichever tool there is."""
    command = next(([path, *rest] for name, *rest in _DCMI_COMMANDS if (path := which(name)) is not None), None)
    absent = ""
    if command is None:
        absent = "neither ipmitool nor ipmi-dcmi is installed, which ask the management controller"
    else:
        try:
            _dcmi_w(command)
        except (OSError, ValueError) as error:
            absent = f"{command[0]} has no reading ({error})"
    return Watts("ipmi", lambda: _dcmi_w(command or []), absent, every_s=1.0, least_s=_DCMI_LEAST_S)


def _dcmi_w(command: Sequence[str]) -> float:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"no answer within {_ANSWER_S:g} s") from None
    found = _DCMI.search(done.stdout)
    if done.returncode != 0 or found is None:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ValueError(words[0][:120] if words else f"exit status {done.returncode}")
    return float(found[1])


class Nvml(Followed):
    """Joules of NVIDIA's GPUs (nvmlDeviceGetTotalEnergyConsumption), apart from what the rest of the machine took."""

    name = "nvml"
    is_energy = True

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.absent = ""
        self._handles: list[Any] = []
        try:
            self._library = load(NVML)
        except OSError:
            self.absent = f"{NVML} is not there: this machine has no driver of NVIDIA's"
            return
        try:
            self._handles = self._devices()
            if self._handles:
                self._millijoules()
        except ValueError as error:
            self.absent = f"NVML: {error}"
            return
        if not self._handles:
            self.absent = "NVML: there is no GPU"
        self.follower = Follower("nvml", self._millijoules, every_s=0.1)

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Joules and watts of all GPUs together in the window."""
        window = self.window_of(result)
        if isinstance(window, str):
            return {"absent": window}
        readings = self.follower.readings
        trace = Trace([time_ns for time_ns, _ in readings], [sum(values) / 1e3 for _, values in readings])
        grown = trace.grown(window.begin_ns, window.end_ns)
        if isinstance(grown, str):
            return {"absent": grown}
        return {"gpu_joules": grown, "gpu_watts": grown / window.seconds}

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            status = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise ValueError(f"the library has no {name}") from None
        if status != _NVML_SUCCESS:
            raise ValueError(f"{name} failed with status {status}")

    def _devices(self) -> list[Any]:
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles = []
        for place in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(place), ctypes.byref(handle))
            handles.append(handle)
        return handles

    def _millijoules(self) -> tuple[float, ...]:
        counts = []
        for handle in self._handles:
            count = ctypes.c_ulonglong()
            self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(count))
            counts.append(float(count.value))
        return tuple(counts)
