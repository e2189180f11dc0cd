#!/usr/bin/env python3
"""Counts the fences in kernels' machine code and holds those that reach beyond the GPU against a bar.

A release at the system's scope waits for the bus, 0.5 us instead of 0.2 on an H200, so a path that stays in the GPU's
memory may have none. What is left are the doorbells of queues whose SSD is the host's, and the engine's answers to it.

    scripts/cuda_fences.py CUOBJDUMP OBJECT...
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

# By the functor's name: so many fences of the system's scope may stand in a kernel's code.
BARS = {"ServiceKernel": 2, "RandomReads": 5, "EngineKernel": 40}


def fences(cuobjdump: str, objects: list[str]) -> dict[str, Counter[str]]:
    """By kernel: how many fences of the GPU's and of the system's scope its code has."""
    found: dict[str, Counter[str]] = {}
    for path in objects:
        text = subprocess.run([cuobjdump, "-sass", path], check=True, capture_output=True, text=True).stdout
        kernel = ""
        for line in text.splitlines():
            if "Function :" in line:
                kernel = line.rsplit(maxsplit=1)[-1]
                found.setdefault(kernel, Counter())
            elif match := re.search(r"\bMEMBAR\.[A-Z]+\.(GPU|SYS)\b", line):
                found[kernel][match[1]] += 1
    return found


def main() -> int:
    """Prints the counts; 1 if a bar is not kept."""
    counts = fences(sys.argv[1], sys.argv[2:])
    wrong = 0
    for name, bar in BARS.items():
        kernels = [count for mangled, count in counts.items() if f"{len(name)}{name}E" in mangled]
        if not kernels:
            print(f"{name}: no kernel of this name in the objects given")
            wrong += 1
        for count in kernels:
            beyond = count["SYS"] > bar
            wrong += beyond
            print(
                f"{name}: {count['GPU']} fences of the GPU's scope, {count['SYS']} of the system's, at most {bar}"
                f"{': TOO MANY' if beyond else ''}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
