"""Key-value namespaces in profiles, and as Python sees those of a device."""

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
command_set = "kv"

[subsystem.namespaces.kv]
max_value_bytes = "64K"
max_keys = 1000
lookup_ns = "2us"
"""


def test_the_table_of_a_key_value_namespace() -> None:
    kv = profiles.parse_profile(SMALL).subsystem.namespaces[1].kv
    assert (kv.max_key_bytes, kv.max_value_bytes, kv.max_keys, kv.lookup_ns) == (16, 64 << 10, 1000, 2_000)


def test_settings_have_keys_where_there_are_any() -> None:
    one, other = profiles.parse_profile(SMALL).settings()["subsystem"]["namespaces"]
    assert "kv" not in one
    assert "zoned" not in other
    assert other["kv"]["max_keys"] == 1000


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("media", "file:/tmp/image", "use memory"),
        ("media", "generated", "use memory"),
        ("lba_bytes", "4096", "leave it out"),
        ("kv.max_key_bytes", "17", "16"),
        ("kv.max_value_bytes", "32M", "16777216"),
        ("kv.max_value_bytes", "1M", "use more than one value"),
        ("kv.value_granularity_bytes", "96", "power of two"),
    ],
)
def test_what_is_wrong_with_a_key_value_namespace(key: str, value: str, fix: str) -> None:
    profile = profiles.parse_profile(SMALL)
    with pytest.raises(ConfigError) as error:
        Ssd(profiles.with_overrides(profile, {f"subsystem.namespaces.1.{key}": value}))
    assert fix in str(error.value)


def test_an_ssd_says_what_its_namespaces_are() -> None:
    with Ssd(profiles.parse_profile(SMALL)) as ssd:
        assert [one.command_set for one in ssd.namespaces] == ["nvm", "kv"]
        kv = ssd.namespaces[1]
        assert (kv.size_bytes, kv.lba_bytes, kv.blocks) == ((1 << 20) - (64 << 10), 0, 0)
        found = ssd.identify_kv(2)
        assert (found.kml, found.vml, found.mnk, found.novg) == (16, 64 << 10, 1000, 512)
        assert (found.nsze, found.nuse) == (kv.size_bytes, 0)
        with pytest.raises(NvmeError, match="Invalid Field"):
            ssd.identify_kv(1)
        with pytest.raises(ValueError, match="has no blocks"):
            ssd.read(0, namespace=2)
        with pytest.raises(ValueError, match="has no blocks"):
            ssd.write(0, bytes(512), namespace=2)
        assert "keys and values" in ssd._repr_html_()
