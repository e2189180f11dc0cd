"""Ssd() as a newcomer meets it: a name, whole blocks, what the drive says of itself, and errors in one sentence."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import flashmob
import numpy as np
import pytest
from flashmob import ConfigError, IdentifyController, IdentifyNamespace, SmartLog, Ssd
from flashmob.profiles import parse_profile

FAST = '[timing]\nmodel = "none"\n'


@pytest.fixture
def ssd() -> Iterator[Ssd]:
    with Ssd(parse_profile(FAST), size="1M") as device:
        yield device


def test_a_profiles_name_is_enough() -> None:
    with Ssd("d7-ps1010") as device:
        assert device.profile.name == "d7-ps1010"
        assert device.namespace.size_bytes > 1 << 40
        assert device.timeout_s == 30
    with Ssd.from_profile("d7-ps1010", size="1M", seed=7, faults=["lose at=1000"], timeout_s=math.inf) as device:
        assert device.profile.seed == 7
        assert [fault.rule for fault in device.faults] == ["lose at=1000"]


@pytest.mark.parametrize(
    ("profile", "options", "said"),
    [
        ("d7-ps101", {}, 'did you mean "d7-ps1010"?'),
        (None, {}, 'profile None is not possible: give a profile\'s name such as "d7-ps1010"'),
        ("vfio-user:/run/ssd0/cntrl", {}, "is another process's; use flashmob.bench()"),
        ("d7-ps1010", {"size": "1Q"}, "size = '1Q' is not possible: use a size such as"),
        ("d7-ps1010", {"media": "disk"}, "media = 'disk' is not possible"),
        ("d7-ps1010", {"seed": -1}, "seed = -1 is not possible: use at least 0"),
        ("d7-ps1010", {"faults": "lose at=1"}, "write a list of rules, ['lose at=1']"),
        ("d7-ps1010", {"faults": ["lose on=reed"]}, 'fault "lose on=reed": on=reed is not possible'),
        ("d7-ps1010", {"timeout_s": 0}, "timeout_s = 0 is not possible: use seconds"),
        ("d7-ps1010", {"timeout_s": math.nan}, "timeout_s = nan is not possible"),
    ],
)
def test_mistakes_are_one_sentence(profile: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Ssd(profile, **options)
    assert said in str(caught.value)
    assert ".toml: " not in str(caught.value)


def test_whole_blocks(ssd: Ssd) -> None:
    ssd.write(10, b"a" * 512 + b"b" * 512)
    ssd.flush()
    assert ssd.read(10).tobytes() == b"a" * 512
    found = ssd.read(9, 4)
    assert found.dtype == np.uint8
    assert found.tobytes() == bytes(512) + b"a" * 512 + b"b" * 512 + bytes(512)
    words = np.zeros((2, 64), np.uint64)
    ssd.read_into(np.int64(10), words)
    assert words.tobytes() == b"a" * 512 + b"b" * 512
    ssd.write(ssd.namespace.blocks - 1, np.ones(512, np.uint8), namespace=1)
    assert ssd.read(ssd.namespace.blocks - 1, namespace=ssd.namespace).all()


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        (lambda ssd: ssd.read(2048), ValueError, "LBA 2048 does not exist: namespace 1 has LBA 0 to 2047, 512 bytes"),
        (lambda ssd: ssd.read(2047, 2), ValueError, "LBA 2047 to 2048 does not exist"),
        (lambda ssd: ssd.write(2047, bytes(1024)), ValueError, "LBA 2047 to 2048 does not exist"),
        (lambda ssd: ssd.read(-1), ValueError, "LBA -1 does not exist"),
        (lambda ssd: ssd.read(0, 0), ValueError, "blocks = 0 is not possible: use at least 1"),
        (lambda ssd: ssd.read("0"), TypeError, "lba = '0' is not possible: use a whole number"),
        (lambda ssd: ssd.write(0, b"abc"), ValueError, "3 bytes is no whole number of blocks"),
        (lambda ssd: ssd.write(0, "abc"), TypeError, "give bytes, such as 'abc'.encode()"),
        (lambda ssd: ssd.read(0, namespace=2), ValueError, "namespace 2 does not exist: use 1 to 1"),
        (lambda ssd: ssd.identify_namespace(2), ValueError, "namespace 2 does not exist"),
        (lambda ssd: ssd.queue(0), ConfigError, "depth = 0 is not possible: use 1 to 1024"),
        (lambda ssd: ssd.queue("4"), TypeError, "depth = '4' is not possible"),
        (lambda ssd: ssd.log_page(2, 0), ValueError, "size_bytes = 0 is not possible"),
        (lambda ssd: ssd.log_page(0x99, 512), flashmob.NvmeError, "Invalid Log Page"),
    ],
)
def test_wrong_blocks_are_one_sentence(ssd: Ssd, wrong: Callable[[Any], Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        wrong(ssd)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_any_thread_may_read_and_write(ssd: Ssd) -> None:
    def work(number: int) -> None:
        for turn in range(30):
            ssd.write(number * 100 + turn, bytes([number]) * 512)
            found.append(int(ssd.read(number * 100 + turn)[511]) == number)

    found: list[bool] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == [True] * 90


def test_what_the_drive_says_of_itself() -> None:
    with Ssd("d7-ps1010", size="1M") as device:
        controller, namespace = device.identify_controller(), device.identify_namespace()
        device.write(0, bytes(2048))
        device.read(0)
        smart = device.smart_log()
    assert (controller.mn, controller.sn, controller.version) == ("flashmob d7-ps1010", "FLASHMOB00000001", "2.0.0")
    assert controller.subnqn.startswith("nqn.")
    assert controller.max_transfer_bytes == device.profile.controller.max_transfer_bytes
    assert controller.power_states[0].max_power_w >= 0
    assert isinstance(controller, bytes)
    assert len(controller.raw) == 4096
    assert type(controller.raw) is bytes
    assert IdentifyController(controller.raw) == controller
    assert (namespace.nsze, namespace.lba_bytes, namespace.namespace_bytes) == (2048, 512, 1 << 20)
    assert [one.lba_bytes for one in namespace.lba_formats if one.in_use] == [512]
    assert (smart.host_write_commands, smart.host_read_commands, smart.media_errors) == (1, 1, 0)
    # Rounded up to one unit of 512,000 bytes.
    assert (smart.data_units_written, smart.data_written_bytes) == (1, 512_000)
    assert smart.temperature_c == smart.composite_temperature_k - 273
    assert smart.to_dict()["power_cycles"] == 1
    assert pickle.loads(pickle.dumps(smart)) == smart
    assert SmartLog.media_errors.title == "Media and Data Integrity Errors"


@pytest.mark.parametrize("structure", [IdentifyController, IdentifyNamespace, SmartLog])
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_any_bytes_are_taken(structure: type[flashmob.SmartLog], byte: int) -> None:
    taken = structure(bytes([byte]) * structure.structure_bytes)
    assert taken.texts()
    assert "\n" not in repr(taken)
    assert "<script" not in taken._repr_html_()
    ends = [field.offset + field.length for field in structure.fields().values()]
    starts = [field.offset for field in structure.fields().values()]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= structure.structure_bytes
    with pytest.raises(ValueError, match="has 7 bytes instead of"):
        structure(bytes(7))


def test_notebooks_and_short_texts(ssd: Ssd) -> None:
    ssd.set_faults(["error on=read lba=9"])
    for shown in (ssd, ssd.profile, ssd.identify_controller(), ssd.identify_namespace(), ssd.smart_log()):
        page = shown._repr_html_()
        assert page.startswith("<table>")
        assert page.count("<tr>") == page.count("</tr>") > 3
    assert "error on=read lba=9: hit 0 of 0 commands" in ssd._repr_html_()
    things = [ssd, ssd.profile, ssd.namespace, ssd.queue(), ssd.queue().flush(), ssd.faults[0], ssd.smart_log()]
    for thing in (*things, ssd.identify_controller(), ssd.identify_namespace()):
        assert len(repr(thing)) < 160
        assert "\n" not in repr(thing)
    ssd.close()
    assert repr(ssd) == "<Ssd custom 1 MiB closed>"
    assert "closed" in ssd._repr_html_()


def test_what_comes_from_outside_is_escaped() -> None:
    with Ssd(parse_profile(FAST), size="1M", set={"subsystem.model": "<script>"}) as device:
        assert "<script>" not in device.identify_controller()._repr_html_()
        assert device.identify_controller().mn == "<script>"
