"""A study of one's own: how much the rate of a drive gains by depth, each point measured twice, resumable.

python examples/python/own_study.py out/depth
"""

import sys
from typing import Any

import flashmob
from flashmob.study import Settings, Table, grid, run_study


def measure(point: Settings) -> dict[str, Any]:
    """Measures one point; whatever JSON can hold may be returned."""
    result = flashmob.bench(point["drive"], qd=point["depth"], queues=1, clock="virtual", ios=5_000, size="64M")
    return {"iops": result.iops, "p99_us": result.latency_ns.p99 / 1e3, "verdict": result.verdict}


def main(out: str) -> Table:
    """Measures what `out` does not hold yet, and prints a line for each measurement."""
    points = grid(drive=["d7-ps1010", "optane-p5800x"], depth=[1, 16, 256])
    table = run_study("depth", points, measure, out=out, repeats=2)
    for row in table.rows():
        print(f"{row['drive']:14} depth {row['depth']:3}: {row['iops']:10,.0f} IOPS, p99 {row['p99_us']:7.1f} us")
    table.write_csv(f"{out}/table.csv")
    return table


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "out/depth")
