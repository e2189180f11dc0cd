"""Flexible Data Placement in profiles, and loads that use it."""

from __future__ import annotations

import flashmob
import pytest
from flashmob import profiles
from flashmob.errors import ConfigError

PLACING = """
[timing]
model = "simple"

[subsystem.placement]
handles = 6
reclaim_groups = 2
reclaim_unit_bytes = "32M"

[[subsystem.namespaces]]
size_bytes = "64M"
placement_handles = [4, 0]
"""


def test_the_table_of_placement() -> None:
    profile = profiles.parse_profile(PLACING)
    placement = profile.subsystem.placement
    assert (placement.handles, placement.reclaim_groups, placement.reclaim_unit_bytes) == (6, 2, 32 << 20)
    assert profile.settings()["subsystem"]["namespaces"][0]["placement_handles"] == [4, 0]
    assert "placement" not in profiles.parse_profile('[timing]\nmodel = "simple"\n').settings()["subsystem"]


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("placement.handles", "1", "use 2 to 128"),
        ("placement.handles", "129", "128"),
        ("placement.reclaim_groups", "50", "use fewer"),
        ("placement.reclaim_unit_bytes", "1000", "use a multiple of 4"),
        ("namespaces.0.placement_handles", "0,200", "128"),
    ],
)
def test_what_is_wrong_with_placement(key: str, value: str, fix: str) -> None:
    profile = profiles.parse_profile(PLACING)
    with pytest.raises(ConfigError) as error:
        profiles.with_overrides(profile, {f"subsystem.{key}": value})
    assert fix in str(error.value)


def test_what_only_the_device_knows_to_be_wrong() -> None:
    profile = profiles.parse_profile(PLACING)
    twice = profiles.with_overrides(profile, {"subsystem.namespaces.0.placement_handles": "0,0"})
    with pytest.raises(ConfigError, match=r"^set subsystem\.namespaces\.0\.placement_handles .*once at most"):
        flashmob.Ssd(twice)


# Few dies and little room to spare: garbage is collected from the start.
SMALL = {
    "subsystem.placement.handles": 4,
    "timing.nand.channels": 2,
    "timing.nand.dies_per_channel": 2,
    "timing.nand.planes": 1,
    "timing.nand.buffer_bytes": "1M",
    "timing.nand.over_provisioning": 0.15,
}


def _amplification(placement: str) -> float:
    result = flashmob.bench(
        "ps1010-nand",
        size="32M",
        clock="virtual",
        rw="randwrite",
        bs="4k",
        distribution="hotcold:0.9:0.2",
        placement=placement,
        ios=80_000,
        qd=4,
        queues=1,
        verify=0,
        seed=7,
        set=SMALL,
    )
    assert result.verdict.startswith("VALID"), result.verdict_text
    assert result.flash is not None
    return float(result.flash["write_amplification"])


def test_hot_and_cold_apart_amplify_less() -> None:
    mixed, apart = _amplification("none"), _amplification("apart")
    assert apart < 0.97 * mixed


def test_a_drive_without_placement_has_none_to_use() -> None:
    with pytest.raises(ConfigError, match=r"subsystem\.placement\.handles"):
        flashmob.bench("ps1010-nand", size="64M", clock="virtual", rw="randwrite", bs="4k", ios=100, placement="apart")
