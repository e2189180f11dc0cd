"""Zoned namespaces in profiles, and as Python sees those of a device."""

import pytest
from flashmob import Ssd, profiles
from flashmob.errors import ConfigError, NvmeError

SMALL = """
[timing]
model = "simple"

[[subsystem.namespaces]]
size_bytes = "1M"

[[subsystem.namespaces]]
size_bytes = "1M"
lba_bytes = 4096
command_set = "zns"

[subsystem.namespaces.zoned]
zone_bytes = "64K"
zone_capacity_bytes = "48K"
max_open_zones = 3
max_active_zones = 5
descriptor_extension_bytes = 128
reset_ns = "1ms, 2ms"
"""


def test_the_table_of_a_zoned_namespace() -> None:
    zoned = profiles.parse_profile(SMALL).subsystem.namespaces[1].zoned
    assert (zoned.zone_bytes, zoned.zone_capacity_bytes) == (64 << 10, 48 << 10)
    assert zoned.reset_ns == (1_000_000, 2_000_000)


def test_settings_have_zones_where_there_are_any() -> None:
    one, other = profiles.parse_profile(SMALL).settings()["subsystem"]["namespaces"]
    assert "zoned" not in one
    assert other["zoned"]["max_open_zones"] == 3


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("media", "file:/tmp/image", "use memory"),
        ("command_set", "fdp", "zns"),
        ("size_bytes", "1028K", "zone_bytes"),
        ("zoned.zone_bytes", "96K", "power of two"),
        ("zoned.zone_capacity_bytes", "128K", "lower it"),
        ("zoned.max_open_zones", "6", "use 1 to 5"),
        ("zoned.finish_ns", "1ms, 2ms, 3ms", "six"),
    ],
)
def test_what_is_wrong_with_a_zoned_namespace(key: str, value: str, fix: str) -> None:
    profile = profiles.parse_profile(SMALL)
    with pytest.raises(ConfigError) as error:
        profiles.with_overrides(profile, {f"subsystem.namespaces.1.{key}": value})
    assert fix in str(error.value)


def test_an_ssd_says_what_its_namespaces_are() -> None:
    with Ssd(profiles.parse_profile(SMALL)) as ssd:
        assert [one.command_set for one in ssd.namespaces] == ["nvm", "zns"]
        zoned = ssd.identify_zoned(2)
        assert (zoned.mor, zoned.mar, zoned.ozcs) == (2, 4, 1)
        assert (zoned.zone_blocks(1), zoned.extension_bytes(1)) == (16, 128)
        assert zoned.to_dict()["zsze1"] == 16
        assert repr(zoned) == "<IdentifyNamespaceZoned zsze=0x80 mar=0x4 mor=0x2>"
        assert zoned.texts()["lbafe  1"] == "zsze:0x10 zdes:128"
        with pytest.raises(NvmeError, match="Invalid Field"):
            ssd.identify_zoned(1)
        ssd.write(0, bytes(8192), namespace=2)
        with pytest.raises(NvmeError, match="Zone Invalid Write"):
            ssd.write(0, bytes(4096), namespace=2)
