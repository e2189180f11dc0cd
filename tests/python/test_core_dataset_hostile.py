"""Data sets of files that mean no good, by the compiled module: file systems that hang, images that lie."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flashmob.dataset import FileDataset, make_files
from flashmob.dataset.manifest import CHECKSUMS_NAME
from flashmob.device import core_module
from flashmob.errors import ConfigError
from strange_fs import content, strange_fs
from test_core_dataset import files_command, has_io_uring, image_of, needs_ext4

needs_io_uring = pytest.mark.skipif(not has_io_uring(), reason="this kernel or container gives no io_uring")
UNMOUNTED = "this machine does not let us mount a file system of our own"


@pytest.mark.parametrize("has_writer", [False, True])
@needs_io_uring
def test_a_pipe_in_a_files_place_is_refused(tmp_path: Path, has_writer: bool) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 100)
    with FileDataset(tmp_path, backend="io_uring", on_error="yield") as files:
        (tmp_path / "b").unlink()
        os.mkfifo(tmp_path / "b")
        writer = os.open(tmp_path / "b", os.O_RDWR) if has_writer else None
        assert [one.error for one in files if one.error] == ["/b: it is no plain file"]
        if writer is not None:
            os.close(writer)


@needs_io_uring
def test_reads_that_are_to_be_asked_for_again_without_end_are_errors(tmp_path: Path) -> None:
    with strange_fs(tmp_path / "strange", "a", "eagain", "b", "eintr", "c") as is_mounted:
        if not is_mounted:
            pytest.skip(UNMOUNTED)
        with FileDataset(tmp_path / "strange", backend="io_uring", on_error="yield") as files:
            found = {one.path: one.error or one.data.tobytes() for one in files}
    assert found == {f"/{name}": content(name) for name in "abc"} | {
        "/eagain": "/eagain: Resource temporarily unavailable",
        "/eintr": "/eintr: Interrupted system call",
    }


HANGING = """
import sys
from flashmob.dataset import FileDataset
with FileDataset(sys.argv[1], backend=sys.argv[2], shuffle=False) as files:
    for sample in files:
        print(sample.path, flush=True)
"""


@pytest.mark.parametrize("backend", ["posix", pytest.param("io_uring", marks=needs_io_uring)])
def test_ctrl_c_ends_what_a_file_system_holds_up(tmp_path: Path, backend: str) -> None:
    with strange_fs(tmp_path / "strange", "a", "hang", "z") as is_mounted:
        if not is_mounted:
            pytest.skip(UNMOUNTED)
        command = [sys.executable, "-c", HANGING, str(tmp_path / "strange"), backend]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                assert process.stdout.readline() == "/a\n"
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
                assert process.wait(timeout=30) == -signal.SIGINT
                assert process.stderr.read().endswith("KeyboardInterrupt\n")
            finally:
                process.kill()


@needs_io_uring
def test_memory_of_reads_that_hang_is_kept(tmp_path: Path) -> None:
    core = core_module()
    data = np.full(10_000, 7, np.uint8)
    others = [np.zeros(10_000, np.uint8) for _ in range(4)]
    with strange_fs(tmp_path / "strange", "a", "deaf") as is_mounted:
        if not is_mounted:
            pytest.skip(UNMOUNTED)
        reads = core.KernelFileReads(os.fsencode(tmp_path / "strange"), 2)
        reads.start(1, b"deaf", 0, core.HeldBuffer(data, True))
        for tag, other in enumerate(others, 2):
            reads.start(tag, b"a", 0, core.HeldBuffer(other, True))
        ended: list[tuple[int, str]] = []
        until = time.monotonic() + 60
        while reads.unfinished() > 1 and time.monotonic() < until:
            ended += [(one.tag, one.error) for one in reads.wait(50_000_000)]
        assert sorted(ended) == [(tag, "") for tag in range(2, 6)]
        assert all(other.tobytes() == content("a") for other in others)
        begin = time.monotonic()
        assert reads.wait(200_000_000) == []
        assert reads.unfinished() == 1
        before = sys.getrefcount(data)
        reads.close()
        assert 0.2 <= time.monotonic() - begin < 20
        # The kernel may write to it still.
        assert sys.getrefcount(data) == before
    with pytest.raises(RuntimeError, match="closed"):
        reads.wait(0)


# --- Images ---


@needs_ext4
def test_an_image_cannot_have_its_list_read_however_large_it_says_it_is(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"x")
    with (tree / CHECKSUMS_NAME).open("wb") as file:
        file.truncate(40 << 30)
    image = image_of(tree, tmp_path / "image", 16 << 20)
    text = f"/{CHECKSUMS_NAME}: has 42949672960 bytes, and a list of 2 files has at most 16779264; make it anew"
    with pytest.raises(ConfigError, match=text):
        FileDataset(image)
    code, shown = files_command("verify", image)
    assert code == 2
    assert text in shown


@needs_ext4
@pytest.mark.parametrize("backend", ["driver", "gpu"])
def test_a_file_larger_than_memory_costs_nobody_the_others(tmp_path: Path, backend: str) -> None:
    tree = tmp_path / "tree"
    make_files(tree, "images", files=5, size_bytes=3000)
    with (tree / "giant").open("wb") as file:
        file.truncate(12 << 40)
    image = image_of(tree, tmp_path / "image", 32 << 20)
    with FileDataset(image, backend=backend, on_error="yield") as files:
        wrong = [one.error for one in files if one.error]
    assert wrong == ["/giant: its 13194139533312 bytes are more than there is memory for; read it in pieces"]


@needs_ext4
@pytest.mark.parametrize("backend", ["driver", "gpu"])
def test_large_files_of_an_image_are_verified_in_pieces(tmp_path: Path, backend: str) -> None:
    tree = tmp_path / "tree"
    make_files(tree, "huge", files=1, size_bytes=9_000_000)
    image = image_of(tree, tmp_path / "image", 64 << 20)
    code, text = files_command("verify", image, "--backend", backend)
    assert (code, f"1 files, 8.583 MiB by {backend}: none wrong" in text) == (0, True), text


def test_a_deaf_server_is_waited_for_as_long_as_was_said() -> None:
    core = core_module()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        target = f"nvme-tcp:127.0.0.1:{deaf.getsockname()[1]}/nqn.2014-08.org.nvmexpress:uuid:1"
        with pytest.raises((ConfigError, core.ExtentError), match="no answer in 300 ms"):
            core.FileReads.open_target(target, 4, 4096, 300_000_000)
        with pytest.raises((ConfigError, core.ExtentError), match="no answer in 300 ms"):
            core.ExtentSource.open(os.fsencode(target), timeout_ns=300_000_000)
