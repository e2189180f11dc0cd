"""How the latency of a drive grows with the load, in virtual time: exact, and the same on every machine.

python examples/python/latency_by_load.py
"""

import flashmob


def load(depth: int) -> flashmob.BenchKeywords:
    """What is asked of the drive at one depth."""
    return {"rw": "randread", "bs": "4k", "queues": 1, "qd": depth, "clock": "virtual", "ios": 20_000, "size": "64M"}


def main() -> None:
    """Runs the same load at several depths."""
    for depth in (1, 8, 64, 512):
        result = flashmob.bench("d7-ps1010", **load(depth))
        latency = result.latency_ns
        print(f"depth {depth:3}: {result.iops:10,.0f} IOPS, mean {latency.mean / 1e3:6.1f} us, {result.verdict_text}")


if __name__ == "__main__":
    main()
