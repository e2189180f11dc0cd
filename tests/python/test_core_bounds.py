"""The closed forms of flashmob explain beside simulation in virtual time: each resource in turn is the narrowest."""

from __future__ import annotations

from typing import Any

import flashmob
import pytest
from flashmob.bounds_cli import prepared
from flashmob.bounds_report import explanation, to_dict

# Without waiting by chance, and of the size of a few superblocks' worth of seconds.
SMALL: dict[str, Any] = {
    "channels": 2,
    "dies_per_channel": 2,
    "planes": 1,
    "bits_per_cell": 1,
    "read_ns": "50us",
    "program_ns": "200us",
    "erase_ns": "1ms",
    "suspend_ns": 0,
    "cores": 2,
    "firmware_ns": "1us",
    "buffer_bytes": "1M",
    "program_share": 0.5,
    "over_provisioning": 4,
    "channel_bytes_per_s": "800MB",
}
SLOW_LINK = {"timing.link_bytes_per_s": "20MB"}
FAST_DIES = {"read_ns": "5us", "program_ns": "20us"}


def compared(
    name: str, changes: dict[str, Any], state: str, *, rw: str, bs: str, qd: int, size: str, **run: Any
) -> tuple[Any, flashmob.Result]:
    load = {"rw": rw, "bs": bs, "qd": qd, "queues": 1, "size": size}
    explained = to_dict(explanation(*prepared(name, load, [f"{key}={value}" for key, value in changes.items()])))
    result = flashmob.bench(name, set=changes, clock="virtual", move_data=False, seed=3, **load, **run)
    return explained, result


def small(**changes: Any) -> dict[str, Any]:
    return {f"timing.nand.{key}": value for key, value in (SMALL | changes).items()}


@pytest.mark.parametrize(
    ("rw", "bs", "changes", "bottleneck"),
    [
        ("randread", "4k", small(), "dies"),
        ("randread", "512", small(), "dies"),
        ("randread", "64k", small(), "dies"),
        ("randread", "4k", small(**FAST_DIES, channel_bytes_per_s="200MB"), "channels"),
        ("randread", "4k", small(cores=1, firmware_ns="100us"), "controller"),
        ("randread", "4k", small() | SLOW_LINK, "link to host"),
        ("randwrite", "4k", small(), "dies"),
        ("randwrite", "4k", small(**FAST_DIES, channel_bytes_per_s="200MB", program_share=1), "channels"),
        ("randwrite", "4k", small(**FAST_DIES, channel_bytes_per_s="400MB", program_share=0.25), "program share"),
        ("randwrite", "4k", small(buffer_bytes="64k"), "write buffer"),
        ("randwrite", "4k", small(cores=1, firmware_ns="100us"), "controller"),
        ("randwrite", "4k", small() | SLOW_LINK, "link to drive"),
    ],
)
def test_each_resource_in_turn_is_the_narrowest(rw: str, bs: str, changes: dict[str, Any], bottleneck: str) -> None:
    # The formulas know nothing of writes that overwrite each other in the buffer, and of so large a store few do.
    explained, result = compared("ps1010-nand", changes, "fresh", rw=rw, bs=bs, qd=128, size="256M", ios=3_000)
    assert explained["fresh"]["bottleneck"] == bottleneck
    assert result.iops == pytest.approx(explained["fresh"]["iops"], rel=0.03)
    reached = explained["reached"]
    assert 0.99 * reached["at_least_iops"] < result.iops < 1.01 * reached["at_most_iops"]
    assert reached["surely_saturating"] < 200


@pytest.mark.parametrize(("qd", "bs"), [(1, "4k"), (1, "64k"), (16, "4k")])
def test_what_a_depth_reaches_lies_between_its_bounds(qd: int, bs: str) -> None:
    explained, result = compared("ps1010-nand", small(), "fresh", rw="randread", bs=bs, qd=qd, size="16M", ios=3_000)
    reached = explained["reached"]
    assert 0.99 * reached["at_least_iops"] < result.iops < 1.01 * reached["at_most_iops"]


# The buffer holds little of the store.
STEADY = {"over_provisioning": 0.28, "buffer_bytes": "256k"}


@pytest.mark.parametrize(
    ("rw", "changes"),
    [
        ("randwrite", small(**STEADY)),
        ("randwrite", small(**STEADY, suspend_ns=1)),
        ("randwrite", small(**STEADY, victim="fifo")),
        ("randwrite", small(**STEADY, victim="d_choices")),
        ("randrw", small(**STEADY)),
        ("write", small(**STEADY)),
    ],
)
def test_steady_state_is_that_of_the_simulation(rw: str, changes: dict[str, Any]) -> None:
    explained, result = compared(
        "ps1010-nand",
        changes,
        "steady",
        rw=rw,
        bs="4k",
        qd=128,
        size="256M",
        precondition="none" if rw == "write" else "steady",
        ramp="100ms" if rw != "write" else "800ms",
        runtime="400ms",
    )
    assert result.flash is not None
    assert result.flash["write_amplification"] == pytest.approx(explained["steady"]["write_amplification"], rel=0.03)
    assert result.iops == pytest.approx(explained["steady"]["iops"], rel=0.03)


# Large requests touch all dies, and no chance makes some wait for others.
@pytest.mark.parametrize(
    ("name", "rw", "bs", "qd"),
    [
        ("970-pro", "randread", "4k", 1),
        ("970-pro", "randread", "128k", 1024),
        ("ps1010-nand", "randread", "128k", 1024),
        ("d7-ps1010", "randread", "4k", 1024),
        ("d7-ps1010", "randwrite", "128k", 256),
        ("optane-p4800x", "randread", "4k", 1),
    ],
)
def test_profiles_reach_what_is_explained(name: str, rw: str, bs: str, qd: int) -> None:
    explained, result = compared(name, {}, "fresh", rw=rw, bs=bs, qd=qd, size="512M", ios=5_000)
    reached = explained["reached"]
    assert result.iops == pytest.approx(reached["at_most_iops"], rel=0.03)
    assert 0.97 * reached["at_least_iops"] < result.iops < 1.01 * reached["at_most_iops"]


# What is on its way to the dies takes the channels longer than their calendars remember (src/timing/nand/calendar.h).
def test_a_large_drive_writes_at_its_share_of_the_channels_and_reads_pass() -> None:
    steady: dict[str, Any] = {"precondition": "steady", "ramp": "600ms", "runtime": "200ms"}
    load = {"rw": "randwrite", "bs": "16k", "qd": 512, "size": "64G"}
    explained, result = compared("p5336-nand", {}, "steady", **load, **steady)
    assert explained["steady"]["bottleneck"] == "program share"
    assert result.flash is not None
    assert result.flash["write_amplification"] == pytest.approx(explained["steady"]["write_amplification"], rel=0.03)
    assert result.iops == pytest.approx(explained["steady"]["iops"], rel=0.03)
    steady["ramp"] = "400ms"
    mixed = compared("p5336-nand", {}, "steady", rw="randrw", bs="16k", qd=512, size="4G", **steady)[1]
    assert mixed.read is not None
    assert mixed.read.latency_ns.p99 < 10e6


# The parts of a unit that is written in order join in the buffer.
def test_small_writes_in_order_program_each_byte_once() -> None:
    explained, result = compared("p5336-nand", {}, "fresh", rw="write", bs="4k", qd=512, size="1G", ios=50_000)
    assert result.flash is not None
    assert result.flash["write_amplification"] == pytest.approx(explained["fresh"]["write_amplification"], rel=0.03)
