"""From what a user asks to the load and the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flashmob import NvmeError
from flashmob.errors import ConfigError
from flashmob.given import DEVICE_KEYS, FIO_NAMES, FIO_ONLY, SHORT_NAMES, Given
from flashmob.models import Profile
from flashmob.options import KNOWN, BenchOptions, virtual_ramp_ns
from flashmob.options import make_options as options_of
from flashmob.profiles import load_profile
from flashmob.runner import prepare

D7 = load_profile("d7-ps1010")


def make_options(profile: Profile, given: dict[str, Any]) -> BenchOptions:
    return options_of(profile, Given(given, KNOWN))


def test_short_names_name_options() -> None:
    assert set(SHORT_NAMES.values()) <= set(BenchOptions.model_fields)
    assert set(FIO_NAMES.values()) <= set(KNOWN)
    assert not set(FIO_ONLY) & {*KNOWN, *SHORT_NAMES, *FIO_NAMES}
    assert not set(DEVICE_KEYS) & set(BenchOptions.model_fields)


def test_text_with_units() -> None:
    options = make_options(
        D7,
        {
            "bs": "512:70,4k:30",
            "runtime": "3s",
            "ramp": "10ms",
            "rate": "2M",
            "verify": "50%",
            "think": None,
            "cores": "0",
        },
    )
    assert options.block_sizes == ((512, 70.0), (4096, 30.0))
    assert (options.runtime_ns, options.ramp_ns) == (3_000_000_000, 10_000_000)
    assert options.rate_iops == 2e6
    assert options.verify_percent == 50.0
    assert options.cores == [0]
    assert make_options(D7, {"bs": 4096}).block_sizes == ((4096, 1.0),)
    assert make_options(D7, {"block_sizes": [(512, 1), (4096, 3)]}).block_sizes == ((512, 1.0), (4096, 3.0))


def test_mixed_loads_are_half_and_half_unless_told() -> None:
    assert make_options(D7, {"rw": "randrw"}).read_share == 0.5
    assert make_options(D7, {"rw": "randrw", "read_share": "0.7"}).read_share == 0.7
    assert make_options(D7, {"rw": "randread"}).read_share == 1.0


def test_requesters_get_slots() -> None:
    options = make_options(D7, {"requesters": 262_144, "queues": 256})
    assert options.queue_depth == 1024
    assert options.in_flight() == 262_144
    assert make_options(D7, {"requesters": 1, "queues": 256}).queue_depth == 1
    assert make_options(D7, {"requesters": 1 << 21, "queues": 1}).queue_depth == 65_535
    assert make_options(D7, {"requesters": 2048, "queues": 1, "queue_entries": 1024}).queue_depth == 1023
    assert make_options(D7, {"requesters": 2048, "queues": 1, "qd": 7}).queue_depth == 7


def test_virtual_runs_end_by_count() -> None:
    options = make_options(D7, {"clock": "virtual", "qd": 128, "queues": 4})
    assert options.ios == 5_000_000
    assert options.runtime_ns >= 3_600_000_000_000
    # Two rounds of 512 requests at 2.47 MIOPS and two latencies of 50 us.
    assert options.ramp_ns == pytest.approx(2 * 512 / 2.47e6 * 1e9 + 100_000, abs=1)
    assert make_options(D7, {"clock": "virtual", "runtime": "1ms"}).ios == 0
    assert virtual_ramp_ns(load_profile("unlimited"), options) == 100_000


def test_the_store_of_a_benchmark_fits_the_machine(tmp_path: Path) -> None:
    def store(**options: Any) -> tuple[str, int]:
        profile, _ = prepare("d7-ps1010", options)
        return profile.subsystem.namespaces[0].media, profile.subsystem.namespaces[0].size_bytes

    media, size = store()
    assert media == "memory"
    assert 1 << 20 <= size <= 1 << 30
    assert store(clock="virtual") == ("memory", size)
    assert store(size="64M") == ("memory", 64 << 20)
    assert store(media="generated") == ("generated", D7.subsystem.namespaces[0].size_bytes)
    path = tmp_path / "data"
    path.write_bytes(b"x" * 10_000)
    assert store(media=f"cow:{path}") == (f"cow:{path}", 0)
    profile, _ = prepare("d7-ps1010", {}, {"subsystem.namespaces.0.size_bytes": "32G"})
    assert profile.subsystem.namespaces[0].size_bytes == 32 << 30


def test_device_options() -> None:
    assert prepare("d7-ps1010", {"copy_engine": "memcpy"})[0].engine.copy_ == "memcpy"
    profile, options = prepare("d7-ps1010", {"units": 2, "workers": "1", "seed": 9, "move_data": False})
    assert (profile.engine.units, profile.engine.workers, profile.seed) == (2, 1, 9)
    assert profile.engine.move_data is False
    assert options.verify_percent == 0
    assert options.fill is False
    again, _ = prepare(profile, {"seed": 10})
    assert (again.engine.units, again.seed) == (2, 10)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match='did you mean "queue_depth"'):
        prepare("d7-ps1010", {"queue_deph": 1})


def test_nvme_error_says_what_the_device_said() -> None:
    error = NvmeError(0x4080, "read of namespace 1 at LBA 9")
    assert str(error) == "read of namespace 1 at LBA 9 failed: LBA Out of Range (SCT 0h, SC 80h, do not retry)"
    assert (error.status_code_type, error.status_code, error.do_not_retry) == (0, 0x80, True)
    assert not NvmeError(0x281).do_not_retry
