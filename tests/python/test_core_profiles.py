"""Packaged profiles on the compiled model: each gives exactly the rates that its numbers promise."""

from __future__ import annotations

import flashmob
import pytest
from flashmob.device import core_device
from flashmob.errors import ConfigError
from flashmob.profiles import load_profile, profile_files

PACKAGED = sorted(name for name, file in profile_files().items() if file.packaged)
# What zones take beside the model has tests of its own.
MODELLED = [
    name
    for name in PACKAGED
    if load_profile(name).timing.model == "simple" and load_profile(name).subsystem.namespaces[0].command_set == "nvm"
]
NAND = [name for name in PACKAGED if load_profile(name).timing.model == "nand"]


@pytest.mark.parametrize("name", PACKAGED)
def test_every_key_reaches_the_core(name: str) -> None:
    timing = load_profile(name).timing
    core = core_device(load_profile(name)).timing
    for key, value in timing.model_dump(mode="json").items():
        assert getattr(core, key) == value


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.parametrize("bs", [4096, 131_072])
def test_saturated_rates_are_those_of_the_profile(name: str, bs: int) -> None:
    timing = load_profile(name).timing
    for direction, rw in (("read", "read"), ("write", "write")):
        result = flashmob.bench(
            name, rw=rw, bs=str(bs), clock="virtual", queues=8, requesters=4096, ios=20_000, size="64M", move_data=False
        )
        assert result.verdict.startswith("VALID")
        # The wheel that holds requests has ticks; they show where a request takes a few nanoseconds.
        assert result.iops == pytest.approx(timing.rate_at(direction, bs), rel=0.02)


# Chance leaves some dies idle while others have several reads to serve.
@pytest.mark.parametrize("name", NAND)
def test_a_nand_drive_comes_near_the_rate_of_what_is_narrowest(name: str) -> None:
    timing = load_profile(name).timing
    options = {"bs": "4k", "clock": "virtual", "queues": 8, "requesters": 2048, "size": "64M"}
    reads = flashmob.bench(name, rw="randread", ios=50_000, **options)
    assert reads.verdict.startswith("VALID")
    assert 0.8 < reads.iops / timing.rate_at("read", 4096) < 1.01
    writes = flashmob.bench(name, rw="randwrite", ios=50_000, **options)
    assert writes.verdict.startswith("VALID")
    assert writes.flash is not None
    # Counted as they are fetched, and the requests as they are answered.
    assert writes.flash["host_written_bytes"] == pytest.approx(50_000 * 4096, rel=0.05)
    # What is overwritten in the buffer is not programmed.
    joined = writes.flash["joined_bytes"] / writes.flash["host_written_bytes"]
    assert writes.flash["write_amplification"] >= 0.999 - joined


def test_a_nand_drive_is_refused_by_a_gpu_engine() -> None:
    with pytest.raises(ConfigError, match=r'engine.* is not possible: the timing model "nand" runs on the host'):
        flashmob.bench("ps1010-nand", engine="gpu", clock="virtual", size="64M")


def test_a_buffered_write_takes_its_latency_and_the_next_waits_for_the_service() -> None:
    options = {"rw": "randwrite", "bs": "4k", "clock": "virtual", "queues": 1, "size": "64M", "move_data": False}
    calm = flashmob.bench("d5-p5336", **options, qd=1, think="1ms", requesters=1, ios=500)
    assert calm.latency_ns.p50 == pytest.approx(15_000, rel=0.02)
    busy = flashmob.bench("d5-p5336", **options, qd=1, ios=2_000)
    assert busy.latency_ns.p50 == pytest.approx(1e9 / 38_000, rel=0.02)
