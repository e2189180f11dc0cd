"""The runs of flashmob sweep: devices of given rates under given numbers of requesters.

The load is that of the SwarmIO paper's GPU experiments: 512 B random reads from closed-loop requesters over 256 queues
whose rings have 1024 entries. Each point is a run of the whole device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

D7_IOPS = 2.47e6
D7_LATENCY_NS = 50_000
QUEUES = 256
# A ring of 1024 entries holds 1023 commands.
DEPTH, ENTRIES = 1023, 1024
# The paper's fio runs: 32 threads, a queue each.
FIO_QUEUES = 32
_MOST_REQUESTERS = 2 << 20


@dataclass(frozen=True, slots=True)
class Point:
    """One run: a device of a given rate under a given number of requesters or commands per queue."""

    target_iops: float
    requesters: int
    queues: int = QUEUES

    @property
    def instances(self) -> int:
        """One server where it can be as fast as asked within the latency; eight for the fast devices' whole ns."""
        return 1 if self.target_iops < 5e6 else 8

    @property
    def ios(self) -> int:
        """Measured requests, after two rounds of all requesters: enough for a steady mean, and one more round."""
        return max(200_000, min(self.requesters, _MOST_REQUESTERS))

    @property
    def work(self) -> float:
        """What the run costs beside others."""
        return float(self.requesters + self.ios)

    def __str__(self) -> str:
        queues = "" if self.queues == QUEUES else f" over {self.queues} queues"
        return f"{self.requesters:,} requesters{queues} of a device of {self.target_iops / 1e6:g} MIOPS"

    def options(self) -> dict[str, Any]:
        """Keyword arguments of flashmob.bench()."""
        return {
            "rw": "randread",
            "bs": 512,
            "queues": self.queues,
            "queue_depth": DEPTH,
            "queue_entries": ENTRIES,
            "requesters": self.requesters,
            "ios": self.ios,
            "clock": "virtual",
            "media": "generated",
            "size": "64G",
            "verify": 0,
            "fill": False,
            "seed": 7,
            "command": "flashmob sweep",
            "set": {
                "timing.read_iops": self.target_iops,
                "timing.write_iops": self.target_iops,
                "timing.read_latency_ns": D7_LATENCY_NS,
                "timing.instances": self.instances,
                "timing.unit_bytes": 512,
                # The drive's own bandwidth would end all targets at 28 MIOPS.
                "timing.read_bytes_per_s": 0,
                "timing.write_bytes_per_s": 0,
                "controller.max_queue_pairs": QUEUES,
            },
        }


def points(quick: bool) -> list[Point]:
    """All runs, the longest first, so that two processes end together."""
    powers = range(10, 22, 4) if quick else range(10, 22)
    requesters = [1 << power for power in powers]
    targets = [D7_IOPS, 100e6] if quick else [D7_IOPS, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6]
    runs = [Point(target, count) for target in targets for count in requesters]
    depths = (1, 64) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    runs += [Point(D7_IOPS, FIO_QUEUES * depth, FIO_QUEUES) for depth in depths]
    return sorted(runs, key=lambda point: -point.work)


def model_iops(target_iops: float, requesters: float, latency_ns: float = D7_LATENCY_NS) -> float:
    """Closed loop: each requester has one request per latency, up to the device's rate (Little's law)."""
    return min(target_iops, requesters / latency_ns * 1e9)
