"""Profiles: the packaged ones are right, and whatever is wrong is one clear sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from flashmob import profiles
from flashmob.errors import ConfigError
from flashmob.models import Profile, known_keys
from flashmob.profile_toml import to_toml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DRIVES = ("d7-ps1010", "d5-p5336", "optane-p5800x", "pm9a3", "pm1743", "990-pro", "cm7", "fl6")
GENERIC = ("generic-sata", "generic-pcie3", "generic-pcie4", "generic-pcie5")
NAND = ("ps1010-nand", "970-pro", "980-pro", "p5336-nand", "fl6-nand", "storagenext-nand")
NAMES = (*DRIVES, *GENERIC, *NAND, "optane-p4800x", "kioxia-10m", "swarmio-40m", "storagenext-100m", "unlimited")
GB = 1_000_000_000


def test_the_promised_profiles_are_there() -> None:
    assert set(NAMES) <= set(profiles.profile_names())


@pytest.mark.parametrize("name", profiles.profile_names())
def test_packaged_profile(name: str) -> None:
    profile = profiles.load_profile(name)
    assert profile.name == name
    assert profile.description
    assert profile.subsystem.namespaces


def test_figures_of_the_profiles() -> None:
    d7 = profiles.load_profile("d7-ps1010").timing
    assert (d7.read_iops, d7.read_latency_ns) == (2.47e6, 50_000)
    for rate, name in ((10, "kioxia-10m"), (40, "swarmio-40m"), (100, "storagenext-100m")):
        assert profiles.load_profile(name).timing.rate_at("read", 512) == rate * 1e6
    assert profiles.load_profile("swarmio-40m").timing.read_latency_ns == 50_000
    assert profiles.load_profile("unlimited").timing.model == "none"


def test_writes_and_sequential_rates_of_a_drive_are_its_own() -> None:
    d7 = profiles.load_profile("d7-ps1010").timing
    assert d7.rate_at("write", 4096) == 150_000
    assert d7.rate_at("read", 4096) == 2.47e6
    assert d7.rate_at("read", 128 << 10) * (128 << 10) == pytest.approx(14.5 * GB)
    assert d7.rate_at("write", 128 << 10) * (128 << 10) == pytest.approx(4.1 * GB)


# With 128 KiB a drive moves what its datasheet calls sequential, with 4 KiB it has the rate of small requests.
@pytest.mark.parametrize("name", [*DRIVES, *GENERIC])
@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_drive_reaches_both_of_its_datasheets_figures(name: str, direction: Any) -> None:
    timing = profiles.load_profile(name).timing
    assert timing.rate_at(direction, 128 << 10) * (128 << 10) == timing.limit_bytes_per_s(direction) > 0
    iops = timing.read_iops if direction == "read" else timing.write_iops
    assert timing.rate_at(direction, 512) == iops
    assert timing.rate_at(direction, 4096) == pytest.approx(iops, rel=3e-3)  # a generic drive's link gives it exactly


def test_drives_for_gpus_are_not_slower_than_todays_nor_faster_than_their_link() -> None:
    today = profiles.load_profile("d7-ps1010").timing
    for name in ("kioxia-10m", "storagenext-100m"):
        timing = profiles.load_profile(name).timing
        assert timing.rate_at("read", 4096) > 2 * today.rate_at("read", 4096)
        assert timing.read_latency_ns < 30_000
        for bytes_ in (512, 1024, 4096, 1 << 20):
            assert timing.rate_at("read", bytes_) * bytes_ <= 2 * 29.5 * GB  # PCIe 7.0 x4, raw


def test_writes_may_be_answered_before_they_are_served() -> None:
    timing = profiles.parse_profile("[timing]\nwrite_iops = 38_000\nwrite_latency_ns = 15_000\n").timing
    assert timing.service_ns("write") > timing.write_latency_ns
    with pytest.raises(ConfigError, match="more than read_latency_ns"):
        profiles.parse_profile("[timing]\nread_iops = 19_000\n")


def test_byte_rates() -> None:
    text = '[timing]\nread_bytes_per_s = "14.5GB"\nwrite_bytes_per_s = 4.1e9\nlink_bytes_per_s = "7GB"\n'
    timing = profiles.parse_profile(text).timing
    assert (timing.read_bytes_per_s, timing.write_bytes_per_s) == (14_500_000_000, 4_100_000_000)
    assert timing.limit_bytes_per_s("read") == 7 * GB
    assert timing.limit_bytes_per_s("write") == 4_100_000_000
    assert profiles.parse_profile("").timing.limit_bytes_per_s("read") == 0
    assert profiles.parse_profile("").timing.rate_at("read", 4096) == 1e6


@pytest.mark.parametrize("name", NAND)
def test_a_nand_drive_has_the_rates_of_what_is_narrowest(name: str) -> None:
    timing = profiles.load_profile(name).timing
    nand = timing.nand
    sensing_ns = sum(nand.read_ns) / len(nand.read_ns)
    dies = nand.channels * nand.dies_per_channel
    assert timing.model == "nand"
    assert timing.rate_at("read", 4096) <= 1.001 * dies * 1e9 / sensing_ns
    if name in ("970-pro", "ps1010-nand"):
        assert timing.rate_at("read", 4096) == pytest.approx(dies * 1e9 / sensing_ns)
    assert timing.rate_at("read", 1 << 20) == pytest.approx(timing.link_bytes_per_s / (1 << 20))
    assert timing.rate_at("write", 1 << 20) * (1 << 20) <= timing.link_bytes_per_s
    assert timing.idle_latency_ns("write") < timing.idle_latency_ns("read") < 150_000


def test_the_table_of_a_nand_drive() -> None:
    text = '[timing]\nmodel = "nand"\n[timing.nand]\nbits_per_cell = 2\nread_ns = ["30us", 41_000]\n'
    profile = profiles.parse_profile(text)
    assert profile.timing.nand.read_ns == (30_000, 41_000)
    changed = profiles.with_overrides(profile, {"timing.nand.read_ns": "1us, 2us", "timing.nand.program_ns": "2ms"})
    assert (changed.timing.nand.read_ns, changed.timing.nand.program_ns) == ((1_000, 2_000), 2_000_000)
    again = profiles.parse_profile(to_toml(changed))
    assert again.timing == changed.timing
    assert "nand" in profile.settings()["timing"]
    assert "nand" not in profiles.load_profile("cm7").settings()["timing"]


@pytest.mark.parametrize(
    ("assignment", "key", "fix"),
    [
        ("timing.nand.channels=0", "timing.nand.channels", "use at least 1"),
        ("timing.nand.chanels=2", "timing.nand.chanels", 'did you mean "timing.nand.channels"'),
        ("timing.nand.read_ns=1us", "timing.nand", "one for each page of a cell"),
        ("timing.nand.victim=worst", "timing.nand.victim", "greedy"),
        ("timing.nand.buffer_bytes=64K", "timing.nand", "make it larger"),
        ("timing.unit_bytes=64K", "timing", "at most nand.page_bytes"),
    ],
)
def test_what_is_wrong_with_a_nand_drive(assignment: str, key: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        profiles.load_profile("ps1010-nand", profiles.parse_overrides([assignment]))
    assert key in str(error.value)
    assert fix in str(error.value)


def test_former_names_still_work() -> None:
    assert profiles.load_profile("storagenext-10m").name == "kioxia-10m"
    assert profiles.load_profile("storagenext-40m").name == "swarmio-40m"


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "flashmob" / "profiles"
    folder.mkdir(parents=True)
    return folder


def test_profiles_of_ones_own_have_names(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text("[timing]\nread_iops = 3e6\n", encoding="utf-8")
    (own_folder / "cm7.toml").write_text("[timing]\nread_iops = 4e6\n", encoding="utf-8")
    (own_folder / "notes.txt").write_text("no profile", encoding="utf-8")
    assert profiles.load_profile("mine").timing.read_iops == 3e6
    assert profiles.load_profile("mine").path == own_folder / "mine.toml"
    assert profiles.load_profile("cm7").timing.read_iops == 4e6
    files = profiles.profile_files()
    assert (files["cm7"].packaged, files["cm7"].shadows) == (False, True)
    assert (files["mine"].packaged, files["mine"].shadows) == (False, False)
    assert files["pm9a3"].packaged
    assert "notes" not in files
    assert list(files) == sorted(files) == profiles.profile_names()


def test_where_ones_own_profiles_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert profiles.user_profile_folder() == tmp_path / ".config" / "flashmob" / "profiles"
    assert set(NAMES) <= set(profiles.profile_names())  # there is no such folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("overrides", [{}, {"timing.read_iops": "1.5M", "seed": 7, "engine.cores": "0,2-3"}])
def test_toml_loads_back_equal(name: str, overrides: dict[str, Any], tmp_path: Path) -> None:
    if profiles.load_profile(name).timing.model != "simple":
        overrides = {key: value for key, value in overrides.items() if key != "timing.read_iops"}
    profile = profiles.load_profile(name, overrides)
    path = tmp_path / f"{name}.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    again = profiles.load_profile(path)
    assert again == profile.model_copy(update={"path": path})
    assert again.given_keys() == profile.given_keys() | {"path"}
    # What stands behind a # are keys with their right values, too.
    path.write_text(re.sub(r"^# (?=[a-z_]+ = |\[)", "", path.read_text("utf-8"), flags=re.M), encoding="utf-8")
    assert profiles.load_profile(path).settings() == profile.settings()


def test_toml_of_what_is_awkward(tmp_path: Path) -> None:
    text = """description = "a \\"quoted\\" \\u00fc \\U0001F600 \\u007f \\\\ line\\nbreak"
        faults = ["error on=read p=0.01", "x"]
        [timing]
        read_iops = 1234.5
        read_latency_ns = "1ms"
        [subsystem]
        namespaces = []
        spare_capacity_bytes = "1G"
        [engine]
        cores = [1, 2]
        """
    profile = profiles.parse_profile(text)
    path = tmp_path / "custom.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert profiles.load_profile(path) == profile.model_copy(update={"path": path})
    two = profiles.parse_profile('[[subsystem.namespaces]]\n[[subsystem.namespaces]]\nmedia = "generated"\n')
    path.write_text(to_toml(two), encoding="utf-8")
    assert profiles.load_profile(path) == two.model_copy(update={"path": path})


def test_the_rate_that_a_profile_names_is_one_of_4_kib() -> None:
    timing = profiles.parse_profile('[timing]\nread_iops = "1.5M"\n').timing
    assert timing.rate_at("read", 512) == timing.rate_at("read", 4096) == 1.5e6
    assert timing.rate_at("read", 8192) == 0.75e6


def test_given_keys_are_told_from_defaults() -> None:
    profile = profiles.load_profile("cm7", {"engine.units": 2})
    assert {"timing.read_iops", "engine.units", "subsystem.namespaces.0.size_bytes"} <= profile.given_keys()
    assert not {"timing.link_bytes_per_s", "engine.workers", "seed"} & profile.given_keys()
    assert profile.sources["engine.units"] == profiles.SET_BY_HAND
    changed = profiles.with_overrides(profile, {"timing.read_iops": 1e6})
    assert changed.given_keys() == profile.given_keys()
    assert changed.sources["timing.read_iops"] == profiles.SET_BY_HAND
    assert profile.sources["timing.read_iops"] != profiles.SET_BY_HAND


def test_text_with_units() -> None:
    profile = profiles.parse_profile(
        '[timing]\nread_iops = "2.47M"\nread_latency_ns = "50us"\nunit_bytes = "4k"\n'
        '[[subsystem.namespaces]]\nsize_bytes = "16T"\nlba_bytes = 4096\n'
        "[engine]\nunits = 2.0\ncores = [0, 1]\n"
    )
    assert profile.timing.read_iops == 2.47e6
    assert profile.timing.read_latency_ns == 50_000
    assert profile.timing.unit_bytes == 4096
    assert profile.subsystem.namespaces[0].size_bytes == 16 << 40
    assert profile.engine.units == 2
    assert profile.engine.cores == [0, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[timing]\nread_iop = 1", ["timing.read_iop", 'did you mean "read_iops"']),
        ("[timng]", ["timng", 'did you mean "timing"']),
        ("timing = 3", ["timing = 3", "table"]),
        ("[timing]\ninstances = 3", ["timing.instances = 3", "power of two"]),
        ("[timing]\ninstances = 2048", ["timing.instances = 2048", "at most 1024"]),
        ("[timing]\nread_iops = 0", ["timing.read_iops = 0", "more than 0"]),
        ("[timing]\nread_iops = true", ["timing.read_iops = True", "rate"]),
        ("[timing]\nread_iops = inf", ["timing.read_iops", "finite"]),
        ('[timing]\nread_latency_ns = "5 fortnights"', ["timing.read_latency_ns", "50us"]),
        ("[timing]\nread_latency_ns = 0.5", ["timing.read_latency_ns = 0.5", "whole"]),
        ('[timing]\nmodel = "smple"', ["timing.model = 'smple'", "'none', 'simple' or 'nand'"]),
        ('[timing]\nmodel = "nand"\nread_iops = 1e6', ["timing.read_iops belongs to model simple", "is model nand"]),
        ("[timing.nand]\nchannels = 4", ["timing.nand belongs to model nand", "is model simple"]),
        ("[timing]\nlink_bytes_per_s = 1", ["timing.link_bytes_per_s = 1", "0 for no limit", "1MB"]),
        ("[timing]\nread_iops = 10", ["timing", "read_latency_ns = 50000", "raise"]),
        ('[engine]\ncopy = "dma"', ["engine.copy = 'dma'", "nontemporal", "dsa"]),
        ("[engine]\ncores = [0, 5000]", ["engine.cores[1] = 5000", "at most 1023"]),
        ("[[subsystem.namespaces]]\nlba_bytes = 520", ["subsystem.namespaces[0].lba_bytes = 520", "512 or 4096"]),
        ("[[subsystem.namespaces]]\nsize_bytes = 1000", ["subsystem.namespaces[0]", "multiple of lba_bytes"]),
        ("[[subsystem.namespaces]]\nsize_bytes = 0", ["subsystem.namespaces[0]", "give a size"]),
        ('[[subsystem.namespaces]]\nsize_bytes = "65T"', ["namespaces[0].size_bytes", "at most"]),
        ('[[subsystem.namespaces]]\nmedia = "tape"', ["namespaces[0].media = 'tape'", "cow:PATH"]),
        ('[[subsystem.namespaces]]\nmedia = "cow:"', ["namespaces[0].media", "cow:PATH"]),
        ('[[subsystem.namespaces]]\nmedia = "direct:"', ["namespaces[0].media", "direct:PATH"]),
        ('[[subsystem.namespaces]]\ncache_bytes = "2TiB"', ["namespaces[0].cache_bytes"]),
        ("[subsystem]\nnamespaces = []", ["namespaces is empty"]),
        ('[subsystem]\nserial = "a serial that is far too long"', ["subsystem.serial", "at most 20"]),
        ('[subsystem]\nmodel = "\\u00fcber"', ["subsystem.model", "ASCII"]),
        ('[subsystem]\nnqn = "mine"', ["subsystem.nqn = 'mine'", "nqn"]),
        ("[fidelity]\nmax_error_share = 3", ["fidelity.max_error_share = 3", "at most 1"]),
        ("[engine]\nmove_data = 7", ["engine.move_data = 7", "true or false"]),
        ("[engine\n", ["TOML"]),
        ('name = "x"', ["name", "remove"]),
        ('[sources]\n"timing.read_iop" = "x"', ['sources."timing.read_iop"', "timing.read_iops"]),
        ("sources = 3", ["sources = 3", "table"]),
    ],
)
def test_mistakes_are_one_sentence_that_names_file_key_and_fix(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        profiles.load_profile(path)
    message = str(caught.value)
    assert "\n" not in message
    for word in (str(path), *words):
        assert word in message


def test_packaged_profiles_must_source_every_number_of_timing() -> None:
    text = '[timing]\nread_iops = 5e6\nread_latency_ns = 50_000\n[sources]\n"timing.read_iops" = "a paper"\n'
    profiles.parse_profile(text)
    with pytest.raises(ConfigError, match=r"timing\.read_latency_ns has no source"):
        profiles.parse_profile(text, every_number_sourced=True)


def test_unknown_profile_suggests_one() -> None:
    with pytest.raises(ConfigError, match='did you mean "d7-ps1010"'):
        profiles.load_profile("d7-ps101")
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot be read"):
        profiles.load_profile("missing.toml")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        profiles.load_profile(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        profiles.load_profile(str(tmp_path) + "/")


def test_overrides() -> None:
    overrides = profiles.parse_overrides(
        [
            "timing.read_iops=5e6",
            "timing.read_latency_ns=60us",
            "subsystem.namespaces.0.media=generated",
            "engine.cores=0,1",
            "engine.copy=avx2",
            "engine.move_data=false",
            "seed=9",
        ]
    )
    profile = profiles.load_profile("d7-ps1010", overrides)
    assert profile.timing.read_iops == 5e6
    assert profile.timing.read_latency_ns == 60_000
    assert profile.timing.write_iops == 150_000
    assert profile.subsystem.namespaces[0].media == "generated"
    assert profile.subsystem.namespaces[0].size_bytes == 1_920_383_410_176
    assert profile.engine.cores == [0, 1]
    assert profile.engine.copy_ == "avx2"
    assert profile.engine.move_data is False
    assert profile.seed == 9


def test_overrides_that_change_the_model() -> None:
    profile = profiles.load_profile(
        "unlimited", {"timing.model": "simple", "timing.instances": 8, "timing.read_iops": 1e9}
    )
    assert profile.timing.model == "simple"
    assert profile.timing.service_ns("read") == 8.0
    # What the file says for the model before goes with it; what one writes oneself does not.
    fast = profiles.load_profile("d7-ps1010", {"timing.model": "none"})
    assert "read_iops" not in fast.settings()["timing"]
    assert fast.settings()["timing"]["unit_bytes"] == profiles.load_profile("d7-ps1010").timing.unit_bytes
    to_nand = {"timing.model": "nand", "timing.unit_bytes": 4096}
    nand = profiles.with_overrides(profiles.load_profile("d7-ps1010"), to_nand)
    assert not any(key.startswith("timing.read_") for key in (*nand.given_keys(), *nand.sources))
    with pytest.raises(ConfigError, match=r"timing\.instances belongs to model simple"):
        profiles.load_profile("ps1010-nand", {"timing.instances": 8})


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("timing.read_iop=1", ["--set 'timing.read_iop'", 'did you mean "timing.read_iops"']),
        ("read_iops=1", ['did you mean "timing.read_iops"']),
        ("timing.read_iops=fast", ["--set timing.read_iops = 'fast'", "2.47M"]),
        ("timing.read_iops", ["'='"]),
        ("=3", ["no key"]),
        ("timing=3", ["not a known key"]),
        ("subsystem.namespaces.7.media=generated", ["no item 7; use 0"]),
        ("xyzzy=1", ["not a known key", "profiles show"]),
        ("name=x", ["not a known key"]),
    ],
)
def test_wrong_overrides(assignment: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        profiles.load_profile("d7-ps1010", profiles.parse_overrides([assignment]))
    for word in words:
        assert word in str(caught.value)


def test_with_overrides_keeps_the_rest() -> None:
    profile = profiles.load_profile("d7-ps1010")
    changed = profiles.with_overrides(profile, {"subsystem.namespaces.0.size_bytes": "1G"})
    assert changed.subsystem.namespaces[0].size_bytes == 1 << 30
    assert changed.timing == profile.timing
    assert changed.path == profile.path
    assert profile.subsystem.namespaces[0].size_bytes != 1 << 30


def test_file_media_take_the_size_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 5000)
    key = "subsystem.namespaces.0."
    assert profiles.namespace_overrides(None, f"cow:{path}") == {key + "media": f"cow:{path}", key + "size_bytes": 0}
    assert profiles.namespace_overrides(None, f"file:{path}")[key + "size_bytes"] == 0
    assert profiles.namespace_overrides(None, f"direct:{path}")[key + "size_bytes"] == 0
    assert key + "size_bytes" not in profiles.namespace_overrides(None, f"file:{tmp_path}/new")
    assert key + "size_bytes" not in profiles.namespace_overrides(None, f"direct:{tmp_path}/new")
    assert profiles.namespace_overrides("1M", f"cow:{path}")[key + "size_bytes"] == "1M"


SECTIONS = ("timing", "controller", "engine", "subsystem", "fidelity", "sources", "tming")
KEYS = sorted({key.rpartition(".")[2] for key in known_keys()} | {"read_iop", "x"})
VALUES = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.booleans(),
    st.text(max_size=20),
    st.lists(st.integers(-5, 2000), max_size=3),
    st.sampled_from(["8G", "50us", "2.47M", "simple", "none", "cow:/x", "generated", "1e400", "9" * 50]),
)


def toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        escaped = "".join(f"\\U{ord(letter):08X}" if not 0xD800 <= ord(letter) < 0xE000 else "?" for letter in value)
        return f'"{escaped}"'
    return repr(value)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    for section in draw(st.lists(st.sampled_from(SECTIONS), max_size=4, unique=True)):
        lines.append(f"[{section}]")
        keys = draw(st.lists(st.sampled_from(KEYS), max_size=5, unique=True))
        lines += [f"{key} = {toml_value(draw(VALUES))}" for key in keys if key != "namespaces"]
    if draw(st.booleans()):
        lines.append("[[subsystem.namespaces]]")
        keys = draw(st.lists(st.sampled_from(["size_bytes", "lba_bytes", "media", "shared", "y"]), unique=True))
        lines += [f"{key} = {toml_value(draw(VALUES))}" for key in keys]
    return "\n".join(lines)


def loads_or_explains(text: str, overrides: dict[str, object] | None = None) -> None:
    try:
        profile = profiles.parse_profile(text, overrides=overrides)
    except ConfigError as error:
        message = str(error)
    else:
        assert isinstance(profile, Profile)
        return
    assert 0 < len(message) < 2000


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_fuzz_structured_toml(text: str) -> None:
    loads_or_explains(text)


@settings(max_examples=300)
@given(st.text(max_size=200))
def test_fuzz_any_text(text: str) -> None:
    loads_or_explains(text)


def test_no_example_has_a_deadline() -> None:
    assert settings(max_examples=20).deadline is None


@given(st.integers(2, 3000))
@settings(max_examples=20)
def test_fuzz_deep_nesting(depth: int) -> None:
    loads_or_explains("a = " + "[" * depth + "]" * depth)
    loads_or_explains("[" + ".".join(["timing"] * depth) + "]\nx = 1")


@settings(max_examples=400)
@given(st.sampled_from([*known_keys(), "timing", "a.b", "subsystem.namespaces.1.media"]), VALUES)
def test_fuzz_overrides_of_any_value(key: str, value: object) -> None:
    loads_or_explains("[timing]\nread_iops = 1e6\n[[subsystem.namespaces]]\n", {key: value})
    loads_or_explains("timing = 3\nsubsystem = [1]\n", {key: value})


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_fuzz_override_texts(text: str) -> None:
    try:
        overrides = profiles.parse_overrides([text, f"timing.{text}", f"timing.read_iops={text}"])
    except ConfigError:
        return
    loads_or_explains("", dict(overrides))


def test_a_device_without_an_end_is_no_profile() -> None:
    with pytest.raises(ConfigError, match="is larger than any file of settings"):
        profiles.load_profile("/dev/zero")
