"""Meters of power that a machine may have: hwmon, its management controller, NVIDIA's GPUs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flashmob.study.follower import Follower
from flashmob.study.meters import energy_of
from flashmob.study.power_meters import Nvml, Watts, hwmon, ipmi


def sensors(root: Path, **named: tuple[str, str]) -> Path:
    """Folders of hwmon: each with a name, and a file of microwatts."""
    for place, (file, (name, value)) in enumerate(named.items()):
        folder = root / f"hwmon{place}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / file).write_text(f"{value}\n")
    return root


def measured(meter: Any, while_running: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """A reading of a window in which the meter ran."""
    with meter:
        time.sleep(0.02)
        begin_ns = time.monotonic_ns()
        while_running()
        time.sleep(0.05)
        end_ns = time.monotonic_ns()
        time.sleep(0.02)
    found: dict[str, Any] = meter.read({"window": {"begin_ns": begin_ns, "end_ns": end_ns, "realtime_ahead_ns": 0}})
    return found


def test_a_meter_of_the_machine_is_read_and_those_of_parts_are_not(tmp_path: Path) -> None:
    root = sensors(
        tmp_path,
        power1_input=("amdgpu", "9000000"),
        power1_average=("power_meter", "120500000"),
        temp1_input=("x", "1"),
    )
    meter = hwmon(root)
    assert meter.absent == ""
    read = measured(meter)
    assert read["watts"] == pytest.approx(120.5)
    assert read["joules"] == pytest.approx(120.5 * 0.05, rel=0.9)
    assert "no measured window" in meter.read({"window": None})["absent"]


def test_hwmon_says_why_it_is_absent(tmp_path: Path) -> None:
    assert "has no power meter of the whole machine" in hwmon(tmp_path / "none").absent
    alone = hwmon(sensors(tmp_path / "a", power1_input=("amdgpu", "9000000")))
    assert "power sensors of amdgpu are of parts" in alone.absent
    assert measured(alone) == {"absent": alone.absent}
    assert "cannot be read" in hwmon(sensors(tmp_path / "b", power1_average=("power_meter", "much"))).absent


def test_watts_are_added_up_over_the_window_and_lost_readings_are_said() -> None:
    watts = iter([100.0, 100.0, 300.0, 300.0])
    meter = Watts("x", lambda: next(watts), "", every_s=3600.0)
    meter.follower.readings = [(second * 10**9, (value,)) for second, value in enumerate([100, 100, 300, 300])]
    window = {"begin_ns": 500_000_000, "end_ns": 2_500_000_000, "realtime_ahead_ns": 0}
    assert meter.read({"window": window})["joules"] == pytest.approx(50 + 200 + 150)
    meter.follower.readings = [(0, (1.0,)), (6 * 10**9, (1.0,))]
    assert "no reading for 6.0 s" in meter.read({"window": window})["absent"]
    meter.follower.readings = []
    assert "do not cover" in meter.read({"window": window})["absent"]


def test_a_reading_that_fails_is_left_out() -> None:
    answers: list[Any] = [OSError("gone"), (1.0,), ValueError("none"), (2.0,)]

    def read() -> tuple[float, ...]:
        answer = answers.pop(0) if answers else (3.0,)
        if isinstance(answer, Exception):
            raise answer
        return tuple(answer)

    follower = Follower("x", read, 0.005)
    follower.start()
    while len(follower.readings) < 3:
        time.sleep(0.005)
    follower.stop()
    follower.stop()
    assert [values for _, values in follower.readings[:3]] == [(1.0,), (2.0,), (3.0,)]


def tool(folder: Path, name: str, script: str) -> Callable[[str], str | None]:
    """A command of that name; what finds it."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return lambda wanted: str(path) if wanted == name else None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ipmitool", "    Instantaneous power reading:                   212 Watts"),
        ("ipmi-dcmi", "Current Power                        : 212 Watts"),
    ],
)
def test_the_management_controller_is_asked_by_either_tool(tmp_path: Path, name: str, line: str) -> None:
    meter = ipmi(tool(tmp_path, name, f'echo; echo "{line}"; echo "    Minimum during sampling period: 8 Watts"'))
    assert meter.absent == ""
    assert "short for it; measure for 10 s" in measured(meter)["absent"]
    meter._least_s = 0.0
    assert measured(meter)["watts"] == pytest.approx(212)


def test_the_management_controller_says_why_it_is_absent(tmp_path: Path) -> None:
    assert "neither ipmitool nor ipmi-dcmi is installed" in ipmi(lambda _: None).absent
    refused = ipmi(tool(tmp_path, "ipmitool", "echo 'Could not open device at /dev/ipmi0' >&2; exit 1"))
    assert "Could not open device at /dev/ipmi0" in refused.absent
    assert measured(refused) == {"absent": refused.absent}
    assert "exit status 0" in ipmi(tool(tmp_path, "ipmitool", "true")).absent


# As NVML's header declares them; each of two GPUs has taken 1 J more with each call.
LIBRARY = """
typedef struct device* handle;
static unsigned long long taken[2] = {5000000000000ull, 7};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned place, handle* found) { *found = (handle)&taken[place]; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(handle device, unsigned long long* millijoules) {
  unsigned long long* mine = (unsigned long long*)device;
  *millijoules = *mine += 1000;
  return STATUS;
}
"""


def library(folder: Path, count: int, status: int = 0) -> Callable[[str], Any]:
    """NVML with so many GPUs, which answer so."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    (folder / "nvml.c").write_text(LIBRARY)
    made = folder / f"nvml-{count}-{status}.so"
    given = [f"-DCOUNT={count}", f"-DSTATUS={status}"]
    subprocess.run([compiler, "-shared", "-fPIC", *given, "-o", made, folder / "nvml.c"], check=True)
    return lambda _: ctypes.CDLL(str(made))


def test_gpus_count_joules_and_stand_beside_the_machine(tmp_path: Path) -> None:
    meter = Nvml(library(tmp_path, count=2))
    assert meter.absent == ""
    meter.follower._every_s = 0.01
    read = measured(meter, lambda: time.sleep(0.1))
    assert read["gpu_joules"] > 2
    assert read["gpu_watts"] == pytest.approx(read["gpu_joules"] / 0.15, rel=0.5)
    assert energy_of({"nvml": read}, 1.0, {}) == {"source": "none", "absent": {}}


def test_nvml_says_why_it_is_absent(tmp_path: Path) -> None:
    def missing(_: str) -> Any:
        raise OSError("no such file")

    for load, why in (
        (missing, "no driver of NVIDIA's"),
        (library(tmp_path, count=0), "there is no GPU"),
        (library(tmp_path, count=1, status=3), "nvmlDeviceGetTotalEnergyConsumption failed with status 3"),
        (lambda _: object(), "the library has no nvmlInit_v2"),
    ):
        meter = Nvml(load)
        assert why in meter.absent
        assert measured(meter) == {"absent": meter.absent}
