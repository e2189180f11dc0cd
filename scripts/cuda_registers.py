#!/usr/bin/env python3
"""What the kernels ask of a multiprocessor: registers a thread and spilled bytes, from what `ptxas -v` has said.

    cuda_registers.py [--json FILE] REPORT...

Prints one table. Exits with 1 if the service kernel, which stays on the GPU beside the user's own, is above its bar or
spills registers to memory.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

SERVICE_KERNEL = "ServiceKernel"
SERVICE_BAR = 37


@dataclass(frozen=True)
class Usage:
    """One kernel compiled for one architecture."""

    area: str
    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def readable(symbols: list[str]) -> dict[str, str]:
    """The functor's name in each mangled name of run_functor<Functor, Args...>."""
    names = symbols
    if symbols and (filt := shutil.which("c++filt")):
        answer = subprocess.run([filt], input="\n".join(symbols), capture_output=True, text=True, check=True)
        names = answer.stdout.splitlines()
    return {symbol: functor_of(name) for symbol, name in zip(symbols, names, strict=True)}


def functor_of(name: str) -> str:
    """The first template argument, without the namespaces that all of them share."""
    _, found, rest = name.partition("_functor<")
    if not found:
        return name
    depth = 0
    for at, letter in enumerate(rest):
        if letter in "<(":
            depth += 1
        elif depth and letter in ">)":
            depth -= 1
        elif not depth and letter in ",>":
            rest = rest[:at]
            break
    return re.sub(r"(?:flashmob::)?(?:gpu::)?(?:simt::)?(?:detail::|cuda::)?", "", rest) if rest else name


def read_report(path: Path) -> list[Usage]:
    """The kernels of one compiler run, for each of its architectures."""
    found: list[tuple[str, str, list[int]]] = []
    symbol = architecture = ""
    memory = [0, 0, 0]
    for line in path.read_text().splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+\w*)'", line):
            symbol, architecture = match.groups()
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            memory = [int(bytes_) for bytes_ in match.groups()]
        elif symbol and (match := re.search(r"Used (\d+) registers", line)):
            found.append((symbol, architecture, [int(match.group(1)), *memory]))
            symbol = ""
    names = readable(sorted({symbol for symbol, _, _ in found}))
    area = path.name.split(".")[0]
    return [Usage(area, names[symbol], f"sm_{arch}", *figures) for symbol, arch, figures in found]


def table(usages: list[Usage]) -> str:
    """One row a kernel, one column an architecture; `+` and the bytes where registers spill."""
    architectures = sorted({usage.architecture for usage in usages})
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for usage in usages:
        spilled = f" +{usage.spill_store_bytes} B" if usage.spill_store_bytes else ""
        rows.setdefault((usage.area, usage.kernel), {})[usage.architecture] = f"{usage.registers}{spilled}"
    width = max(len(kernel) for _, kernel in rows)
    lines = [f"{'area':10} {'kernel':{width}} " + " ".join(f"{name:>8}" for name in architectures)]
    for (area, kernel), figures in sorted(rows.items()):
        cells = " ".join(f"{figures.get(name, '-'):>8}" for name in architectures)
        lines.append(f"{area:10} {kernel:{width}} {cells}")
    return "\n".join(lines)


def complaints(usages: list[Usage]) -> list[str]:
    """What is above its bar."""
    wrong = []
    for usage in usages:
        if SERVICE_KERNEL not in usage.kernel:
            continue
        where = f"{usage.kernel} on {usage.architecture}"
        if usage.registers > SERVICE_BAR:
            wrong.append(f"{where} takes {usage.registers} registers a thread; bar {SERVICE_BAR}")
        if usage.spill_store_bytes or usage.spill_load_bytes:
            wrong.append(f"{where} spills {usage.spill_store_bytes} bytes")
    return wrong


def main() -> int:
    """Reads the reports, prints, writes, judges."""
    parser = argparse.ArgumentParser(description="Registers a thread of every kernel")
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    # Every source also compiles the clock comparison of cuda.h: shown once.
    usages = list({(u.kernel, u.architecture): u for path in arguments.reports for u in read_report(path)}.values())
    print(table(usages))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(usage) for usage in usages], indent=1) + "\n")
    wrong = complaints(usages)
    for line in wrong:
        print(f"cuda_registers: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
