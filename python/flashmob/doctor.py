"""What this machine has that makes an emulated SSD faster or truer: what is there, what it would buy, how to get it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Literal

from rich.text import Text

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.options import free_memory_bytes
from flashmob.units import format_size

State = Literal["yes", "partly", "no"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's table. `fix` is empty where nothing is to be done; what is to be typed is `quoted`."""

    name: str
    state: State
    found: str
    buys: str
    fix: str = ""


def examine() -> list[Finding]:
    """Looks at everything; never raises, needs no privileges, changes nothing."""
    quota, limit_bytes = _limits()
    checks: tuple[Callable[[], Finding], ...] = (
        lambda: _cores(quota),
        _isolation,
        _tsc,
        _cpu_features,
        lambda: _memory(limit_bytes),
        _transparent_huge_pages,
        _reserved_huge_pages,
        _shared_memory,
        _gpu,
        _dsa,
        _rapl,
        _kvm,
        _qemu,
        _vfio,
        _perf,
    )
    return [check() for check in checks]


# Docker and Podman leave these in what they run.
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_SIGNS: dict[State, tuple[str, str]] = {"yes": ("●", "green"), "partly": ("◐", "yellow"), "no": ("○", "red")}


def shown(finding: Finding, width: int = 0) -> list[Text]:
    """A finding as lines of at most `width` cells (0: of any length); what is to be typed is never broken."""
    sign, style = _SIGNS[finding.state]
    indent = " " * (2 + len(finding.name) + 2)
    lines = _wrapped(finding.found, width - len(indent))
    found = [Text(f"{sign} ", style=style) + Text(finding.name, style="bold") + Text(f"  {lines[0]}", style=style)]
    found += [Text(indent + line, style=style) for line in lines[1:]]
    for label, text, style in (("buys", finding.buys, ""), ("how", finding.fix, "dim")):
        for index, line in enumerate(_wrapped(text, width - 9) if text else []):
            found.append(Text(f"  {'' if index else label:<7}{line}", style=style))
    return [*found, Text()]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of text; a part in backquotes stays in one piece, because blanks that do not break stand in for its own."""
    if width < 20:
        return [text]
    whole = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(" ", "\xa0"), text)
    lines = wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str, default: int = 0) -> int:
    try:
        return int(text)
    except ValueError:
        return default


def _cpu_flags() -> set[str]:
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _limits() -> tuple[float | None, int | None]:
    """Cores' time and memory that the control groups of this process allow."""
    try:
        limits: tuple[float | None, int | None] = core_module().container_limits()
    except ConfigError:
        return None, None
    return limits


def _as_root() -> str:
    """Who may change the kernel: a container's root may not."""
    contained = any(Path(mark).exists() for mark in _CONTAINER_MARKS) or any(limit is not None for limit in _limits())
    return "as root, on the machine that runs this container" if contained else "as root"


def _cores(quota: float | None) -> Finding:
    count = len(os.sched_getaffinity(0))
    usable = count if quota is None else min(count, quota)
    state: State = "yes" if usable >= 4 else "partly" if usable >= 2 else "no"
    found = f"{count} usable, {_cpu_model()}"
    fix = "" if usable >= 4 else "use fewer units and driver threads than cores, or `--clock virtual`, which needs one"
    if quota is not None and quota < count:
        found = f"{count} usable, but a quota of {quota:.4g} cores' time (cgroup), {_cpu_model()}"
        # Threads that poll use up the quota, and then all of them stand still until the next period.
        fix = "raise the container's quota (docker: `--cpus`) above the threads that poll, or use `--clock virtual`"
    return Finding(
        "cores",
        state,
        found,
        "one core per service unit and one per driver thread run without stealing time from each other",
        fix,
    )


def _isolation() -> Finding:
    isolated = _read("/sys/devices/system/cpu/isolated")
    cores = sorted(os.sched_getaffinity(0))
    fix = "a machine with four cores or more: two for the engine and the driver, and two for all others"
    if len(cores) >= 4:
        engine, driver = cores[-2:]
        fix = (
            f"boot with `isolcpus={engine},{driver} nohz_full={engine},{driver}` ({_as_root()}), then "
            f"`--set engine.cores={engine}` and `--cores {driver}`"
        )
    return Finding(
        "isolated cores",
        "yes" if isolated else "no",
        isolated or "none",
        "no ticks or other programs on the engine's cores: fewer host gaps, p99.9 and beyond become the model's",
        "" if isolated else fix,
    )


def _tsc() -> Finding:
    flags = _cpu_flags()
    source = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    good = {"constant_tsc", "nonstop_tsc"} <= flags
    try:
        speed = f", {core_module().machine_info()['tsc_ghz']:.3f} GHz"
    except ConfigError:
        speed = ""
    return Finding(
        "time stamp counter",
        "yes" if good else "no",
        f"{'invariant' if good else 'not invariant'}{speed}, the kernel's clock is {source or 'unknown'}",
        "reading the time costs 8 ns instead of 17 ns and more",
        "" if good else "use another host, or have the hypervisor pass invtsc to the guest",
    )


def _cpu_features() -> Finding:
    flags = _cpu_flags()
    wanted = {"avx2": "AVX2", "avx512f": "AVX-512", "clwb": "CLWB", "movdir64b": "MOVDIR64B"}
    found = [name for flag, name in wanted.items() if flag in flags]
    state: State = "yes" if "avx512f" in flags else "partly" if "avx2" in flags else "no"
    return Finding(
        "vector copies",
        state,
        ", ".join(found) or "none",
        "blocks move in 64-byte stores; AVX2 reaches nearly the same, plain memcpy is used elsewhere",
    )


def _largest_store(free_bytes: int) -> int:
    """Half of the memory, as a power of two: the rest is for the load, for others, and for the store's page tables."""
    return 1 << max(20, (free_bytes // 2).bit_length() - 1)


def _memory(limit_bytes: int | None) -> Finding:
    free = free_memory_bytes()
    state: State = "yes" if free >= 12 << 30 else "partly" if free >= 3 << 30 else "no"
    found = f"{format_size(free)} available"
    if limit_bytes is not None:
        found += f" below the container's limit of {format_size(limit_bytes)} (cgroup)"
    return Finding(
        "memory",
        state,
        found,
        f"a store in memory costs what is written to it: up to --size "
        f"{format_size(_largest_store(free)).replace(' ', '')[:-2]} can be written full here",
        "" if state == "yes" else "use `--media generated`, which stores nothing, or `--media file:PATH` for more",
    )


def _transparent_huge_pages() -> Finding:
    setting = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = setting[setting.find("[") + 1 : setting.find("]")] if "[" in setting else ""
    good = chosen in ("always", "madvise")
    return Finding(
        "transparent huge pages",
        "yes" if good else "no",
        chosen or "not offered by this kernel",
        "random reads from a large store miss the TLB less: a dependent load took 362 instead of 538 ns at 8 GiB",
        "" if good else f"`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` ({_as_root()})",
    )


def _reserved_huge_pages() -> Finding:
    total = _number(_read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"))
    # No more than memory has room for, and an eighth beside the blocks for queues and data on its way.
    store = min(8 << 30, _largest_store(free_memory_bytes()))
    pages = (store + store // 8) >> 21
    return Finding(
        "reserved huge pages",
        "yes" if total else "no",
        f"{total} × 2 MiB" if total else "none",
        "huge pages for certain, where transparent ones are off or memory is fragmented",
        ""
        if total
        else f"`sysctl vm.nr_hugepages={pages}` ({_as_root()}) for a store of {format_size(store)}; not needed with "
        "transparent ones",
    )


def _shared_memory() -> Finding:
    try:
        status = os.statvfs("/dev/shm")
        free = status.f_bavail * status.f_frsize
    except OSError:
        free = 0
    return Finding(
        "shared memory",
        "yes" if free >= 1 << 30 else "partly" if free else "no",
        f"{format_size(free)} free in /dev/shm" if free else "no /dev/shm",
        "hosts in other processes reach the device's queues and data without copies",
        "" if free >= 1 << 30 else "`mount -o remount,size=4G /dev/shm` (as root); containers: `--shm-size=4g`",
    )


def _gpu() -> Finding:
    names = ""
    if shutil.which("nvidia-smi"):
        try:
            done = subprocess.run(
                ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
            names = ", ".join(done.stdout.split("\n")).strip(", ") if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            names = ""
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    return Finding(
        "GPU",
        "yes" if names else "partly" if devices else "no",
        names or ", ".join(devices) or "none",
        "a GPU can be the host that submits, with queues in its own memory",
        "" if names else "everything here works without; virtual time simulates a GPU's requesters",
    )


def _dsa() -> Finding:
    root = Path("/sys/bus/dsa/devices")
    devices = sorted(path.name for path in root.glob("dsa*"))
    # A queue wqM.N of a device dsaM, as the copy engine looks for it; iax devices have queues on the same bus.
    queues = sorted(
        path.name
        for device in devices
        for path in root.glob(f"wq{device.removeprefix('dsa')}.*")
        if _read(path / "state") == "enabled" and _read(path / "type") == "user"
    )
    usable = [name for name in queues if os.access(f"/dev/dsa/{name}", os.R_OK | os.W_OK)]
    needs = "4th generation Xeon Scalable or later with the idxd driver; copies run on cores here"
    if devices and not queues:
        needs = "enable a work queue of type user with accel-config (as root)"
    elif queues and not usable:
        needs = f"`chmod a+rw /dev/dsa/{queues[0]}` (as root)"
    return Finding(
        "Intel DSA",
        "yes" if usable else "partly" if devices else "no",
        ", ".join(usable or queues or devices) or "none",
        "an engine that copies data beside the cores: --copy-engine dsa",
        "" if usable else needs,
    )


def _rapl() -> Finding:
    domains = sorted(Path("/sys/class/powercap").glob("intel-rapl:*")) if Path("/sys/class/powercap").is_dir() else []
    readable = any(os.access(domain / "energy_uj", os.R_OK) for domain in domains)
    return Finding(
        "energy counters (RAPL)",
        "yes" if readable else "partly" if domains else "no",
        f"{len(domains)} domains{'' if readable else ', not readable'}" if domains else "none",
        "joules per million requests",
        ""
        if readable
        else f"`chmod a+r /sys/class/powercap/*/energy_uj` ({_as_root()})"
        if domains
        else "a bare-metal host",
    )


def _kvm() -> Finding:
    present = Path("/dev/kvm").exists()
    usable = present and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return Finding(
        "KVM",
        "yes" if usable else "partly" if present else "no",
        "usable" if usable else "no permission" if present else "none",
        "guests that use the device at speed; without it a guest tests correctness, not speed",
        "" if usable else "add yourself to the group kvm" if present else "bare metal or nested virtualisation",
    )


def _qemu() -> Finding:
    path = shutil.which("qemu-system-x86_64")
    version = ""
    if path:
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
            version = done.stdout.split("\n")[0].replace("QEMU emulator version ", "").split(" ")[0]
        except (OSError, subprocess.TimeoutExpired):
            version = ""
    major, _, minor = version.partition(".")
    recent = (_number(major), _number(minor.partition(".")[0])) >= (10, 1)
    return Finding(
        "QEMU",
        "yes" if recent else "partly" if path else "no",
        version or ("present" if path else "none"),
        "an operating system as host; vfio-user, which attaches it at PCIe level, needs 10.1",
        ""
        if recent
        else "`apt-get install qemu-system-x86` (from backports where the release's own is older than 10.1)",
    )


def _vfio() -> Finding:
    node = Path("/dev/vfio/vfio").exists()
    groups = sorted(path.name for path in Path("/sys/kernel/iommu_groups").glob("*"))
    return Finding(
        "vfio-pci",
        "yes" if node and groups else "partly" if node else "no",
        f"{len(groups)} IOMMU groups" if node and groups else "no IOMMU" if node else "none",
        "the same driver on real NVMe drives, to compare a profile with the drive itself",
        ""
        if node and groups
        else f"`modprobe vfio-pci`; boot with `intel_iommu=on`, on AMD it is on by default ({_as_root()})",
    )


def _perf() -> Finding:
    text = _read("/proc/sys/kernel/perf_event_paranoid")
    level = _number(text, 99)
    return Finding(
        "perf counters",
        "yes" if level <= 1 else "partly" if level <= 2 else "no",
        f"perf_event_paranoid = {text}" if text else "not offered",
        "cycles and cache misses per request, to see where time goes",
        "" if level <= 1 else f"`sysctl kernel.perf_event_paranoid=1` ({_as_root()})",
    )
