"""Key-value namespaces in profiles, and as Python sees those of a device."""

import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from flashmob import Ssd, bench, profiles
from flashmob.errors import ConfigError, NvmeError
from raw_hosts import RawVfioHost

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
        ("kv.max_value_bytes", "32M", "16MiB"),
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
        with pytest.raises(NvmeError, match="Invalid I/O Command Set"):
            ssd.identify_namespace(2)
        with pytest.raises(ValueError, match="has no blocks"):
            ssd.read(0, namespace=2)
        with pytest.raises(ValueError, match="has no blocks"):
            ssd.write(0, bytes(512), namespace=2)
        assert "keys and values" in ssd._repr_html_()


def test_keys_and_values() -> None:
    with Ssd(profiles.parse_profile(SMALL)) as ssd:
        ssd.kv_store(b"key", b"value")
        assert ssd.kv_retrieve(b"key") == b"value"
        assert ssd.kv_exist(b"key")
        assert not ssd.kv_exist(b"other")
        long = bytes(range(256)) * 256
        ssd.kv_store(b"key", memoryview(long), must_exist=True)
        assert ssd.kv_retrieve(b"key") == long
        assert ssd.kv_retrieve(b"key", size_bytes=100) == long[:100]
        assert ssd.kv_retrieve(b"key", size_bytes=0) == b""
        assert ssd.identify_kv(2).nuse == len(long)
        with pytest.raises(NvmeError, match="Key Exists"):
            ssd.kv_store(b"key", b"", must_not_exist=True)
        with pytest.raises(NvmeError, match="Key Does Not Exist"):
            ssd.kv_store(b"other", b"", must_exist=True)
        ssd.kv_store(b"empty", b"")
        assert ssd.kv_retrieve(b"empty") == b""
        ssd.kv_delete(b"key")
        with pytest.raises(NvmeError, match="Key Does Not Exist"):
            ssd.kv_retrieve(b"key")
        with pytest.raises(NvmeError, match="Key Does Not Exist"):
            ssd.kv_delete(b"key")


def test_keys_are_listed_in_order() -> None:
    names = sorted(f"user:{index}".encode() for index in range(700))
    with Ssd(profiles.parse_profile(SMALL), set={"controller.max_transfer_bytes": "4K"}) as ssd:
        assert list(ssd.kv_list()) == []
        for name in [*reversed(names), b"zebra", b"a"]:
            ssd.kv_store(name, name)
        assert list(ssd.kv_list()) == [b"a", *names, b"zebra"]
        assert list(ssd.kv_list(b"user:69")) == [one for one in names if one.startswith(b"user:69")]
        assert list(ssd.kv_list(b"b")) == []
        # What is deleted while it is listed does not end the list.
        seen = []
        for name in ssd.kv_list(b"user:"):
            seen.append(name)
            ssd.kv_delete(name)
        assert seen == names


def test_what_cannot_be_stored() -> None:
    with Ssd(profiles.parse_profile(SMALL)) as ssd:
        for key in (b"", b"k" * 17):
            with pytest.raises(NvmeError, match="Invalid Key Size"):
                ssd.kv_store(key, b"value")
        with pytest.raises(NvmeError, match="Invalid Value Size"):
            ssd.kv_store(b"key", bytes((64 << 10) + 1))
        with pytest.raises(ValueError, match="max_transfer_bytes"):
            ssd.kv_store(b"key", bytes((1 << 20) + 1))
        with pytest.raises(ConfigError, match="names no blocks"):
            ssd.set_faults(["error on=store lba=0-9"])
        with pytest.raises(ValueError, match="256 bytes"):
            ssd.kv_exist(b"k" * 256)
        with pytest.raises(ValueError, match="has blocks"):
            ssd.kv_exist(b"key", namespace=1)
        with pytest.raises(ValueError, match="0 or more"):
            ssd.kv_retrieve(b"key", size_bytes=-1)
        for index in range(15):
            ssd.kv_store(b"%d" % index, bytes(64 << 10))
        with pytest.raises(NvmeError, match="Capacity Exceeded"):
            ssd.kv_store(b"15", b"")
        assert ssd.kv_retrieve(b"14") == bytes(64 << 10)
        assert ssd.identify_kv(2).nuse == ssd.identify_kv(2).nsze


def test_keys_outlive_a_reset_and_no_lost_command_holds_up_the_next() -> None:
    with Ssd(profiles.parse_profile(SMALL), timeout_s=0.5) as ssd:
        ssd.kv_store(b"key", b"value")
        ssd.reset()
        assert ssd.kv_retrieve(b"key") == b"value"
        ssd.set_faults(["lose on=retrieve"])
        with pytest.raises(TimeoutError, match=r"retrieve of key b'key': .*; faults: lose on=retrieve \(1 of 1 hit\)"):
            ssd.kv_retrieve(b"key")
        ssd.set_faults(["error on=write", "error on=read"])
        assert ssd.kv_retrieve(b"key") == b"value"
        ssd.set_faults(["error on=retrieve"])
        with pytest.raises(NvmeError, match="Unrecovered Error"):
            ssd.kv_retrieve(b"key")
    with pytest.raises(RuntimeError, match="closed"):
        ssd.kv_exist(b"key")
    with Ssd("unlimited", size="1M") as ssd, pytest.raises(ValueError, match="no namespace of keys"):
        ssd.kv_exist(b"key")


@pytest.mark.parametrize("waits_for_its_turn", [False, True])
def test_ctrl_c_ends_a_call(waits_for_its_turn: bool) -> None:
    with Ssd(profiles.parse_profile(SMALL), timeout_s=40) as ssd:
        ssd.kv_store(b"key", b"value")
        ssd.set_faults(["lose on=retrieve times=1"])
        lost: list[BaseException] = []

        def lose() -> None:
            try:
                ssd.kv_retrieve(b"key")
            except RuntimeError as error:
                lost.append(error)

        other = threading.Thread(target=lose)
        if waits_for_its_turn:
            other.start()
            while ssd.faults[0].injected == 0:
                time.sleep(0.01)

        def interrupt() -> None:
            while ssd.faults[0].injected == 0:
                time.sleep(0.01)
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        finger = threading.Thread(target=interrupt)

        def wait() -> None:
            finger.start()
            ssd.kv_retrieve(b"key")

        with pytest.raises(KeyboardInterrupt):
            wait()
        finger.join()
        if waits_for_its_turn:
            ssd.reset()
            other.join()
            assert len(lost) == 1
        assert ssd.kv_retrieve(b"key") == b"value"


def test_bench_has_nothing_to_do_with_keys() -> None:
    profile = profiles.with_overrides(
        profiles.load_profile("nvmevirt-kv"), {"subsystem.namespaces.0.size_bytes": "64M"}
    )
    with pytest.raises(ConfigError, match="no blocks"):
        bench(profile, rw="randread", clock="virtual", ios=10)


@pytest.mark.parametrize("wrong", [5, "text", None, 1000, [1, 2], 1.5])
def test_keys_and_values_are_bytes(wrong: Any) -> None:
    with Ssd(profiles.parse_profile(SMALL)) as ssd:
        with pytest.raises(TypeError, match=f"^a key of type {type(wrong).__name__} is not possible: give "):
            ssd.kv_store(wrong, b"x")
        with pytest.raises(TypeError, match=f"^a value of type {type(wrong).__name__} is not possible: give "):
            ssd.kv_store(b"x", wrong)
        with pytest.raises(TypeError, match=r"^a prefix of type"):
            next(ssd.kv_list(wrong))
        assert not list(ssd.kv_list())


ROOM = """
[timing]
model = "none"

[[subsystem.namespaces]]
size_bytes = "8M"
command_set = "kv"

[subsystem.namespaces.kv]
max_value_bytes = "1M"
"""
STORE = 1


class Storing(RawVfioHost):
    """A host that has as many Stores under way as its queue takes; all of them store the same bytes."""

    ENTRIES, CQ, SQ, DATA = 64, 0x100000, 0x110000, 0x200000

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.enable(all_command_sets=True)
        self.create_queue(1, self.CQ, self.ENTRIES, self.SQ, self.ENTRIES)
        self.begun = self.done = 0
        self.statuses: set[int] = set()

    def store(self, key: bytes, size: int) -> None:
        low, high, lower, upper = struct.unpack("<4I", key.ljust(16, b"\0"))
        slot = self.begun % self.ENTRIES
        # One SGL data block; the key is in dwords 2, 3, 14 and 15, its length in 11.
        sqe = struct.pack("<BBHIII8x", STORE, 0x40, self.begun & 0xFFFF, 1, low, high)
        sqe += struct.pack("<QI3xB", self.DATA, size, 0)
        sqe += struct.pack("<6I", size, len(key), 0, 0, lower, upper)
        at = self.SQ + 64 * slot
        self.memory[at : at + 64] = sqe.ljust(64, b"\0")
        self.begun += 1
        self.ring(1, self.begun % self.ENTRIES)

    def reap(self) -> None:
        before = self.done
        while self.done < self.begun:
            (status,) = struct.unpack_from("<H", self.memory, self.CQ + 16 * (self.done % self.ENTRIES) + 14)
            if status & 1 == self.done // self.ENTRIES % 2:
                break
            self.statuses.add(status >> 1)
            self.done += 1
        if self.done != before:
            self.write_register(0x1000 + 12, self.done % self.ENTRIES)


def test_stores_on_their_way_leave_room_for_others(tmp_path: Path) -> None:
    (tmp_path / "room.toml").write_text(ROOM, encoding="utf-8")
    arguments = [sys.executable, "-m", "flashmob", "serve", "room.toml", "--vfio-user", "door"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            path = process.stdout.readline().strip().rpartition("vfio-user:")[2]
            assert process.stdout.readline() == "ready\n"
            with Storing(path) as greedy, Storing(path) as other:
                deadline = time.monotonic() + 60
                while other.done < 100:
                    assert time.monotonic() < deadline
                    while greedy.begun - greedy.done < greedy.ENTRIES - 1:
                        greedy.store(b"one", 1 << 20)
                    greedy.reap()
                    if other.begun == other.done:
                        other.store(b"key %d" % other.begun, 512)
                    other.reap()
                assert greedy.done > 0
                assert (greedy.statuses, other.statuses) == ({0}, {0})
        finally:
            process.kill()
