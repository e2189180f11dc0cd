"""flashmob explain: closed forms by hand on small drives, what the command prints, and what it refuses.

test_core_bounds.py compares them with simulation.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from flashmob import bounds, cli
from flashmob.amplification import d_choices, fifo, greedy, superblocks, write_amplification
from flashmob.models import Timing
from flashmob.profiles import load_profile, profile_names

DOCS = Path(__file__).parents[2] / "docs"

# Two channels with two dies each: a die programs 16 KiB, a page, at once.
SMALL = {
    "model": "nand",
    "link_bytes_per_s": 1_000_000_000,
    "nand": {
        "channels": 2,
        "dies_per_channel": 2,
        "planes": 1,
        "bits_per_cell": 1,
        "read_ns": [50_000],
        "program_ns": 200_000,
        "channel_bytes_per_s": 800_000_000,
        "program_share": 0.5,
        "cores": 2,
        "firmware_ns": 1_000,
        "buffer_bytes": 1 << 20,
    },
}


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def small(**nand: Any) -> Timing:
    return Timing.model_validate(SMALL | {"nand": SMALL["nand"] | nand})  # type: ignore[operator]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(lambda: cli.app(["explain", *arguments], standalone_mode=True)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(lambda: cli.app(["explain", *arguments], standalone_mode=True)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("error: ").strip()


def test_reads_of_a_small_drive_by_hand() -> None:
    assert bounds.rates(small(), "read", 4096) == pytest.approx(
        {
            "dies": 4 / 50e-6,
            "channels": 2 * 800e6 / 4096,
            "controller": 2 / 1e-6,
            "link to host": 1e9 / 4096,
        }
    )
    # A sector is sensed as its page is, and only the sector crosses the channel and the link.
    assert bounds.rates(small(), "read", 512)["dies"] == pytest.approx(80_000)
    assert bounds.rates(small(), "read", 512)["channels"] == pytest.approx(1.6e9 / 512)
    # Four pages are sensed one by one; written at random, sixteen units would be.
    assert bounds.rates(small(), "read", 65_536)["dies"] == pytest.approx(20_000)
    assert bounds.rates(small(), "read", 65_536, layout="apart")["dies"] == pytest.approx(5_000)


def test_writes_of_a_small_drive_by_hand() -> None:
    transfer_s = 16_384 / (0.5 * 800e6)
    assert bounds.rates(small(), "write", 4096) == pytest.approx(
        {
            "dies": 4 * 4 / 200e-6,
            "channels": 2 * 800e6 / 4096,
            "program share": 800e6 / 4096,
            # Each of 64 rows is on its way while it is moved and programmed.
            "write buffer": 64 * 4 / (200e-6 + transfer_s),
            "controller": 2 / 1e-6,
            "link to drive": 1e9 / 4096,
        }
    )
    # A sector takes a unit.
    assert bounds.rates(small(), "write", 512)["dies"] == pytest.approx(80_000)
    cleaning = bounds.Cleaning(amplification=3.0, senses=0.7, erases=True)
    busy_s = 3 / 4 * (200e-6 + 3.5e-3 / 704) + 0.7 * 50e-6
    assert bounds.rates(small(), "write", 4096, cleaning)["dies"] == pytest.approx(4 / busy_s)
    # Two units are read for each that a host writes, and three written.
    assert bounds.rates(small(), "write", 4096, cleaning)["channels"] == pytest.approx(1.6e9 / 4096 / 5)


def test_write_amplification_counts_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    # Random writes of a quarter of a unit program whole units; those in order join in the buffer.
    for rw, times in (("randwrite", 4.0), ("write", 1.0)):
        data = json.loads(printed(capsys, "p5336-nand", "--rw", rw, "--bs", "4k", "--json"))
        whole = json.loads(printed(capsys, "p5336-nand", "--rw", rw, "--bs", "16k", "--json"))
        assert data["fresh"]["write_amplification"] == pytest.approx(times)
        assert whole["fresh"]["write_amplification"] == pytest.approx(1)
        assert data["steady"]["write_amplification"] == pytest.approx(times * whole["steady"]["write_amplification"])
    text = printed(capsys, "p5336-nand", "--rw", "randwrite", "--bs", "4k")
    assert re.search(r"amplification [\d.]+ = 4 for whole units × [\d.]+ for writes", text)


def test_a_new_drive_writes_to_its_cache(capsys: pytest.CaptureFixture[str]) -> None:
    timing = load_profile("980-pro").timing
    assert timing.rate_at("write", 1 << 20) * (1 << 20) == pytest.approx(5e9, rel=0.01)
    behind = min(bounds.rates(timing, "write", 1 << 20).values()) * (1 << 20)
    assert behind == pytest.approx(1.31e9, rel=0.01)
    text = printed(capsys, "980-pro", "--rw", "randwrite", "--bs", "4k")
    assert "in steady state without its SLC cache" in text
    assert "In steady state hosts write to that cache, too" in text
    assert "SLC cache" not in printed(capsys, "970-pro", "--rw", "randwrite", "--bs", "4k")


def test_a_mix_shares_what_both_use_and_has_the_rest_for_itself() -> None:
    reads, writes = ({"dies": 100.0, "to": 40.0}, {"dies": 50.0, "from": 10.0})
    assert bounds.mixed([(0.75, reads), (0.25, writes)]) == pytest.approx(
        {"dies": 1 / (0.75 / 100 + 0.25 / 50), "to": 40 / 0.75, "from": 10 / 0.25}
    )


def test_idle_latencies_by_hand() -> None:
    parts = bounds.latency_parts_ns(small(correction_ns=700), "read", 4096)
    assert parts == pytest.approx(
        {"firmware": 1000, "sensing": 50_000, "channel": 5120, "correction": 700, "link": 4096}
    )
    assert bounds.idle_latency_ns(small(correction_ns=700), "read") == 60_916
    written = bounds.latency_parts_ns(small(), "write", 4096)
    assert written == pytest.approx({"firmware": 1000, "link": 4096, "buffer": 5000})
    # Two rows on two channels arrive together; one after the other crosses the link.
    assert bounds.latency_parts_ns(small(), "read", 32_768)["link"] == pytest.approx(32_768)


def test_the_model_simple_by_hand() -> None:
    timing = Timing(
        read_iops=1e6, write_iops=1e5, instances=4, read_bytes_per_s=2_000_000_000, link_bytes_per_s=3_000_000_000
    )
    assert bounds.rates(timing, "read", 16_384) == pytest.approx(
        {"instances": 250_000, "bytes read": 2e9 / 16_384, "link to host": 3e9 / 16_384}
    )
    assert bounds.rates(timing, "write", 512) == pytest.approx({"instances": 1e5, "link to drive": 3e9 / 512})
    # Eight units on four instances: two rounds of 4 us each; the data take longer than that.
    parts = bounds.latency_parts_ns(timing, "read", 32_768)
    assert parts == pytest.approx({"latency": 50_000, "further units": 4000, "data": 28_672 / 2 - 4000})
    assert bounds.rates(Timing(model="none"), "read", 512) == {}


@pytest.mark.parametrize(("bytes_", "piece", "pieces"), [(512, 4096, 1), (4096, 4096, 1), (7168, 4096, 2.5), (9, 3, 3)])
def test_how_many_pieces_a_request_touches(bytes_: int, piece: int, pieces: float) -> None:
    touched = [(place + bytes_ - 1) // piece - place // piece + 1 for place in range(0, bytes_ * piece, bytes_)]
    assert bounds.touched(bytes_, piece) == sum(touched) / len(touched) == pieces


# Simulated for uniform random writes: over-provisioning, then greedy with 32, 256 and 1024 pages a block, and FIFO.
WAF = """\
0.05,8.116,10.263,10.573,10.683
0.07,6.354,7.603,7.766,7.819
0.1,4.902,5.565,5.652,5.680
0.15,3.609,3.962,4.005,4.018
0.2,2.933,3.156,3.182,3.191
0.28,2.331,2.461,2.477,2.482
0.5,1.653,1.706,1.714,1.716
1.0,1.223,1.251,1.254,1.255
"""


@pytest.mark.parametrize("row", list(csv.reader(io.StringIO(WAF))), ids=lambda row: row[0])
def test_write_amplification_is_that_of_a_simulation(row: list[str]) -> None:
    spare, *simulated = map(float, row)
    found = [greedy(1 + spare, pages) for pages in (32, 256, 1024)]
    assert [*found, fifo(1 + spare)] == pytest.approx(simulated, rel=0.005)


def test_choices_lie_between_chance_and_the_best() -> None:
    found = [d_choices(1.1, 256, choices) for choices in (1, 2, 4, 8, 64)]
    assert found == sorted(found, reverse=True)
    assert (
        found[0] == pytest.approx(write_amplification("random", 1.1, 256, 8), rel=0.01) == pytest.approx(11, rel=0.01)
    )
    assert found[-1] == pytest.approx(greedy(1.1, 256), rel=0.01)
    with pytest.raises(ValueError, match="over-provisioning"):
        write_amplification("greedy", 1.0, 256, 8)


def test_a_small_drive_has_short_superblocks_and_the_spare_space_that_it_asks_for() -> None:
    size = 64 << 20
    blocks = superblocks(small(), size, size)
    # 16,384 units and one for each of 256 namespaces, 7 % more of them; 16 units on all dies are the least.
    assert blocks.units == 64
    assert blocks.count == -(-17_805 // 64) + 4
    assert blocks.spare_factor == pytest.approx((blocks.count - 3) * 64 / 16_384)
    whole = superblocks(small(), 1 << 40, 1 << 40)
    assert whole.units == 704 * 16
    assert whole.spare_factor == pytest.approx(1.07, rel=1e-3)


def test_keys_and_values_are_not_explained_as_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has keys and values" in refused(capsys, "nvmevirt-kv", "--rw", "randread", "--bs", "4k")


@pytest.mark.parametrize("name", [one for one in profile_names() if one != "nvmevirt-kv"])
@pytest.mark.parametrize("rw", ["randread", "write", "randrw"])
def test_every_profile_fits_80_columns(name: str, rw: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, name, "--rw", rw, "--bs", "4k:70,128k:30", "--qd", "1", "--queues", "8")
    assert max(map(len, text.splitlines())) <= 80
    assert name in text
    if load_profile(name).timing.model == "none":
        assert "There is nothing to explain" in text
        return
    data = explained(capsys, name, "--rw", rw, "--bs", "4k:70,128k:30")
    first = next(one for one in data["fresh"]["resources"] if one["name"] == data["fresh"]["bottleneck"])
    assert first["busy_share"] == 1
    assert first["iops"] == data["fresh"]["iops"] == min(one["iops"] for one in data["fresh"]["resources"])
    for lift in data["fresh"]["lifts"]:
        assert lift["gain"] > 1


def test_what_lifts_a_bottleneck_does(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("ps1010-nand", "--rw", "randwrite", "--bs", "4k")
    for state in ("fresh", "steady"):
        for lift in explained(capsys, *arguments)[state]["lifts"]:
            then = explained(capsys, *arguments, "--set", f"{lift['key']}={lift['after']}")[state]
            assert then["iops"] == pytest.approx(lift["iops"])
            assert then["write_amplification"] == pytest.approx(lift["amplification"])
            assert next(one["iops"] for one in then["resources"] if one["name"] == lift["bottleneck"]) == pytest.approx(
                then["iops"], rel=1e-3
            )


def test_a_depth_reaches_what_its_latencies_allow(capsys: pytest.CaptureFixture[str]) -> None:
    one = explained(capsys, "ps1010-nand", "--bs", "4k", "--qd", "1", "--queues", "1")
    alone = 1e9 / one["idle_latency_ns"]["read"]["total"]
    assert one["reached"]["at_most_iops"] == pytest.approx(alone) == pytest.approx(one["reached"]["at_least_iops"])
    assert one["idle_latency_ns"]["read"]["total"] == pytest.approx(
        sum(one["idle_latency_ns"]["read"]["parts"].values())
    )
    assert one["reached"]["saturating"] == pytest.approx(one["fresh"]["iops"] / alone)
    surely = explained(capsys, "ps1010-nand", "--bs", "4k", "--requesters", "4578", "--qd", "1145")
    assert surely["reached"]["at_least_iops"] == pytest.approx(0.97 * surely["fresh"]["iops"], rel=1e-3)
    mixed = explained(capsys, "ps1010-nand", "--bs", "4k", "--rw", "randrw", "--read-share", "70%")
    assert mixed["load"]["read_share"] == 0.7
    assert mixed["reached"]["at_least_iops"] is None
    assert any("wait for programs" in note for note in mixed["notes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--bs 4k", "Chance spreads requests over the dies"),
        ("--bs 4k --size 64M", "64 MiB are few rows for 128 dies: some hold 1.12 times"),
        ("--bs 128k", "written in pieces of 4 KiB at random places, each piece would be sensed apart: 80.00 kIOPS"),
        ("--bs 4k --rw read", "Requests that follow one another meet on the same dies"),
        ("--bs 4k --rw randrw", "Reads wait for programs and erases"),
        ("--bs 4k --rw randrw", "A read that suspends a program takes the die's time beyond its own"),
        ("--bs 512 --rw randwrite", "A write of 512 B takes whole units of 4 KiB: 8 times its bytes are programmed"),
        ("--bs 4k --rw randwrite --set timing.nand.slc_fixed=0.1", "as fast as its cells of one bit"),
        ("--bs 4k --rw randwrite --set timing.nand.victim=random", "amplification is an upper bound"),
        ("--bs 4k:50,8k:50 --rw randwrite", "Amplification is that of requests of the mean size"),
    ],
)
def test_what_the_figures_do_not_hold_is_said(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in " ".join(explained(capsys, "ps1010-nand", *arguments.split())["notes"])


def test_without_a_model_there_is_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    data = explained(capsys, "unlimited")
    assert (data["model"], data["fresh"], data["steady"], data["reached"]) == ("none", None, None, None)
    assert data["notes"][0].startswith("There is nothing to explain: unlimited has no timing model")


def test_fio_names_mean_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    ours = printed(
        capsys, "970-pro", "--rw", "randrw", "--read-share", "0.7", "--bs", "4k", "--qd", "8", "--queues", "2"
    )
    fio = ("--readwrite=randrw", "--rwmixread=70", "--blocksize", "4k", "--iodepth", "8", "--numjobs", "2")
    assert printed(capsys, "970-pro", *fio) == ours


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nosuch", "profile 'nosuch' is not known"),
        ("d7-ps1010 --bs 500", "--bs 500 is not possible: use multiples of 512 bytes up to 16M"),
        ("d7-ps1010 --rw reed", "--rw reed is not possible: use 'read', 'write'"),
        ("d7-ps1010 --qd 0", "--qd 0 is not possible: use at least 1"),
        ("d7-ps1010 --queues x", "--queues x is not possible: use a whole number"),
        ("d7-ps1010 --read-share 0.7", "--read-share 0.7 is for mixed loads; add --rw randrw or --rw rw"),
        ("d7-ps1010 --queues 257", "--queues 257 is more than the 256 of the device"),
        ("d7-ps1010 --size 1.5", "--size 1.5 is not possible"),
        ("d7-ps1010 --set timing.read_iop=5", "--set 'timing.read_iop' is not a known key (did you mean"),
        ("d7-ps1010 --size 1G --set subsystem.namespaces.0.size_bytes=2G", "--size 1G and --set"),
        ("d7-ps1010 --runtime 5s", "--runtime is not an option of flashmob explain"),
        ("d7-ps1010 --ramp_time=5s", "--ramp_time changes nothing that flashmob explain calculates; leave it out"),
        ("d7-ps1010 --ioengine=libaio", "--ioengine is fio's"),
        ("d7-ps1010 --bs=", "--bs '' is not possible: give it a value"),
        ("ps1010-nand --set subsystem.namespaces.0.media=generated --rw write", "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, *arguments.split())


def test_terminals_without_its_signs_get_others(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    cli.spell_in_ascii()
    assert cli.run(lambda: cli.app(["explain", "ps1010-nand", "--rw", "randrw", "--bs", "4k"])) == 0
    out.seek(0)
    text = out.read()
    assert "16 channels x 8 dies" in text
    assert "?" not in text
    assert max(map(len, text.splitlines())) <= 80


def keys_of(data: Any) -> set[str]:
    if isinstance(data, dict):
        return set(data).union(*map(keys_of, data.values()))
    return set().union(*map(keys_of, data)) if isinstance(data, list) else set()


def test_the_guide_has_every_field_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = explained(capsys, "ps1010-nand", "--rw", "randrw", "--bs", "4k")
    for parts in data["idle_latency_ns"].values():
        parts["parts"] = {}
    guide = (DOCS / "guide" / "explain.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", guide.partition("## JSON")[2]))
    assert keys_of(data) - documented == set()


def test_the_guide_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (DOCS / "guide" / "explain.md").read_text(encoding="utf-8")
    command = re.search(r"```sh\nflashmob explain (.+)\n```\n\n```text\n(.+?)```", guide, re.DOTALL)
    assert command is not None
    shown = [line.rstrip() for line in command[2].splitlines()]
    assert [line.rstrip() for line in printed(capsys, *command[1].split()).splitlines()] == shown
