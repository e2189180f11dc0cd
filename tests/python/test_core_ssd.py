"""The SSD as a Python object: what is written is read back, errors carry their status, files read back whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import flashmob
import numpy as np
import pytest
from flashmob import ConfigError, NvmeError, Ssd
from flashmob.profiles import parse_profile
from numpy.typing import NDArray
from rich.console import Console

FAST = '[timing]\nmodel = "none"\n'


@pytest.fixture
def ssd() -> Iterator[Ssd]:
    with Ssd.from_profile(parse_profile(FAST), size="64M") as device:
        yield device


def blocks(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def test_namespace(ssd: Ssd) -> None:
    assert ssd.namespace.nsid == 1
    assert ssd.namespace.size_bytes == 64 << 20
    assert ssd.namespace.lba_bytes == 512
    assert ssd.namespace.blocks == 131_072
    assert len(ssd.namespaces) == 1


def test_reads_back_what_was_written(ssd: Ssd) -> None:
    queue = ssd.queue(depth=8)
    written = blocks(8192, 1)
    queue.write(100, written).result(timeout_s=10)
    queue.flush().result(timeout_s=10)
    read = np.zeros(8192, np.uint8)
    future = queue.read(100, read)
    future.result(timeout_s=10)
    assert future.done()
    assert future.status() == 0
    assert np.array_equal(read, written)
    # A block that nobody wrote reads as zeroes, the middle of the written ones alone as well.
    read = np.ones(512, np.uint8)
    queue.read(116, read).result(timeout_s=10)
    assert not read.any()
    queue.read(101, read).result(timeout_s=10)
    assert np.array_equal(read, written[512:1024])


def test_many_at_once(ssd: Ssd) -> None:
    queue = ssd.queue(depth=32)
    written = blocks(1 << 20, 2)
    futures = [queue.write(at // 512, written[at : at + 4096]) for at in range(0, len(written), 4096)]
    queue.drain(timeout_s=30)
    assert queue.outstanding() == 0
    for future in futures:
        future.result()
    read = np.zeros_like(written)
    futures = [queue.read(at // 512, read[at : at + 4096]) for at in range(0, len(read), 4096)]
    for future in reversed(futures):
        future.result(timeout_s=30)
    assert np.array_equal(read, written)


def test_large_transfers_and_other_buffers(ssd: Ssd) -> None:
    queue = ssd.queue(depth=4)
    data = blocks(3 << 20, 3).tobytes()
    queue.write(0, data).result(timeout_s=10)
    back = bytearray(len(data))
    queue.read(0, back).result(timeout_s=10)
    assert bytes(back) == data
    words = np.zeros((64, 64), np.uint64)
    queue.read(0, words).result(timeout_s=10)
    assert words.tobytes() == data[: words.nbytes]


def test_buffers_stay_alive_while_they_are_needed(ssd: Ssd) -> None:
    queue = ssd.queue(depth=64)
    queue.write(7, np.full(512, 9, np.uint8)).result(timeout_s=10)
    for _ in range(64):
        queue.read(7, np.zeros(512, np.uint8))
    queue.drain(timeout_s=10)


def test_errors_of_the_device_carry_their_status(ssd: Ssd) -> None:
    queue = ssd.queue(depth=4)
    future = queue.read(ssd.namespace.blocks, np.zeros(512, np.uint8))
    with pytest.raises(NvmeError, match="LBA Out of Range") as caught:
        future.result(timeout_s=10)
    assert caught.value.status & 0x7FF == 0x080
    # The queue goes on working.
    queue.read(0, np.zeros(512, np.uint8)).result(timeout_s=10)


def test_drain_leaves_errors_to_their_futures(ssd: Ssd) -> None:
    queue = ssd.queue(depth=4)
    wrong = queue.read(ssd.namespace.blocks - 1, np.zeros(1024, np.uint8))
    right = queue.read(0, np.zeros(512, np.uint8))
    queue.drain(timeout_s=10)
    right.result()
    with pytest.raises(NvmeError):
        wrong.result()


@pytest.mark.parametrize(
    "buffer",
    [np.zeros(500, np.uint8), np.zeros(0, np.uint8), np.zeros((512, 2), np.uint8)[:, 0], b"\0" * 512, "text", 512],
)
def test_unfit_buffers_are_refused(ssd: Ssd, buffer: object) -> None:
    queue = ssd.queue(depth=4)
    with pytest.raises((TypeError, ValueError, BufferError)):
        queue.read(0, buffer)  # type: ignore[arg-type]
    assert queue.outstanding() == 0


def test_closed_devices_say_so() -> None:
    device = Ssd.from_profile(parse_profile(FAST), size="1M")
    queue = device.queue(depth=2)
    device.close()
    device.close()
    with pytest.raises(RuntimeError, match="closed"):
        queue.read(0, np.zeros(512, np.uint8))
    with pytest.raises(RuntimeError, match="closed"):
        device.queue(depth=2)
    with pytest.raises(RuntimeError, match="closed"):
        device.identify_controller()


def test_queue_depths(ssd: Ssd) -> None:
    with pytest.raises(ConfigError, match="depth"):
        ssd.queue(depth=0)
    for _ in range(5):
        queue = ssd.queue(depth=1)
        queue.read(0, np.zeros(512, np.uint8)).result(timeout_s=10)


def test_several_namespaces() -> None:
    text = (
        FAST + '[[subsystem.namespaces]]\nsize_bytes="1M"\n[[subsystem.namespaces]]\nsize_bytes="2M"\nlba_bytes=4096\n'
    )
    with Ssd.from_profile(parse_profile(text)) as device:
        assert [(ns.size_bytes, ns.lba_bytes) for ns in device.namespaces] == [(1 << 20, 512), (2 << 20, 4096)]
        queue = device.queue(depth=4)
        first, second = blocks(4096, 4), blocks(4096, 5)
        queue.write(0, first)
        queue.write(0, second, namespace=device.namespaces[1])
        queue.drain(timeout_s=10)
        read = np.zeros(4096, np.uint8)
        queue.read(0, read).result(timeout_s=10)
        assert np.array_equal(read, first)
        queue.read(0, read, namespace=device.namespaces[1]).result(timeout_s=10)
        assert np.array_equal(read, second)


def test_identify_and_logs() -> None:
    with Ssd.from_profile("d7-ps1010", media="generated") as device:
        controller = device.identify_controller().texts()
        assert controller["sn"] == "FLASHMOB00000001"
        assert controller["mn"] == "flashmob d7-ps1010"
        assert controller["sqes"] == "0x66"
        assert controller["subnqn"].startswith("nqn.")
        namespace = device.identify_namespace().texts()
        assert int(namespace["nsze"], 16) == 1_920_383_410_176 // 512
        queue = device.queue(depth=2)
        queue.read(0, np.zeros(512, np.uint8)).result(timeout_s=10)
        smart = device.log_page(2, 512)
        assert len(smart) == 512
        # Host Read Commands, bytes 64 to 79 of the SMART log (NVMe Base 2.0c, 5.16.1.3).
        assert int.from_bytes(smart[64:80], "little") >= 1


def test_generated_content_is_the_same_for_the_same_seed() -> None:
    def content(seed: int) -> bytes:
        with Ssd.from_profile(parse_profile(FAST), size="1M", media="generated", seed=seed) as device:
            buffer = np.zeros(4096, np.uint8)
            device.queue(depth=2).read(3, buffer).result(timeout_s=10)
            return buffer.tobytes()

    assert content(1) == content(1)
    assert content(1) != content(2)


def test_file_media_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    data = blocks(4096, 6)
    for attempt in range(2):
        with Ssd.from_profile(parse_profile(FAST), size="1M", media=f"file:{path}") as device:
            queue = device.queue(depth=2)
            if attempt == 0:
                queue.write(5, data).result(timeout_s=10)
                queue.flush().result(timeout_s=10)
            read = np.zeros(4096, np.uint8)
            queue.read(5, read).result(timeout_s=10)
            assert np.array_equal(read, data)
    assert path.stat().st_size == 1 << 20


def test_copy_on_write_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "original"
    original = blocks(10_000, 7).tobytes()
    path.write_bytes(original)
    with Ssd.from_profile(parse_profile(FAST), media=f"cow:{path}") as device:
        assert device.namespace.size_bytes == 12_288
        queue = device.queue(depth=4)
        read = np.zeros(12_288, np.uint8)
        queue.read(0, read).result(timeout_s=10)
        assert read[:10_000].tobytes() == original
        assert not read[10_000:].any()
        queue.write(0, np.zeros(512, np.uint8)).result(timeout_s=10)
        queue.read(0, read[:512]).result(timeout_s=10)
        assert not read[:512].any()
    assert path.read_bytes() == original
    with pytest.raises(ConfigError, match="missing"):
        Ssd.from_profile(parse_profile(FAST), media=f"cow:{tmp_path}/missing")


@pytest.mark.parametrize("file_bytes", [1, 512, 100_000, 5_000_001])
def test_the_demo_reads_a_file_back_whole(tmp_path: Path, file_bytes: int) -> None:
    from flashmob.demo import read_file_back

    path = tmp_path / "file"
    path.write_bytes(blocks(file_bytes, 8).tobytes())
    done = read_file_back(path, Console(quiet=True))
    assert done.right
    assert done.file_bytes == file_bytes
    assert done.found == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_demos_default_file_exists() -> None:
    from flashmob.demo import default_file

    assert default_file().stat().st_size > 100_000
    assert flashmob.__version__
