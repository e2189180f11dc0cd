"""Data sets of files that mean no good: what hangs, what is too large, what names and lists can say."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from flashmob.cli import run
from flashmob.dataset import FileDataset, FileReadError, Manifest, make_files
from flashmob.dataset import files as files_module
from flashmob.dataset.manifest import CHECKSUMS_NAME, list_bytes, parse_checksums
from flashmob.dataset.posix import PosixThreads
from flashmob.errors import ConfigError
from flashmob.outputs import plain
from numpy.typing import NDArray
from test_core_dataset import files_command

FIRST = "class-000/image-0000000.bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    make_files(root, "images", files=20, size_bytes=3000, seed=5)
    return root


# --- Lists ---


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ('{"/a": [1e999, 0]}', "inf is no whole number"),
        ('{"/a": [1, -Infinity]}', "-inf is no whole number"),
        ('{"/a": [NaN, 0]}', "nan is no whole number"),
        ('{"/a": [1.5, 0]}', "1.5 is no whole number"),
        ('{"/a": [true, 0]}', "True is no whole number"),
        ('{"/a": ["\x7f\\u001b[31m", 0]}', r"'\x7f\x1b[31m' is no whole number"),
        ('{"/a": [' + "9" * 5000 + ", 0]}", "4300 digits"),
        ('{"/a": ["' + "x" * 100_000 + '", 0]}', "xxx"),
    ],
)
def test_numbers_of_a_list_that_are_none_are_one_error(files: str, why: str) -> None:
    text = f'{{"schema": "flashmob-files", "version": 1, "files": {files}}}'
    with pytest.raises(ConfigError, match=r"list\.json: is no list of checksums") as caught:
        parse_checksums(text.encode(), "list.json")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_lists_larger_than_their_files_need_are_not_read(folder: Path) -> None:
    assert list_bytes(20, 16 << 20, "list") == 16 << 20
    assert list_bytes(100_000, 100 << 20, "list") == 100 << 20
    for files, size_bytes in ((20, 17 << 20), (10_000_000, (256 << 20) + 1)):
        with pytest.raises(
            ConfigError, match=f"^list: has {size_bytes} bytes, and a list of {files} files has at most"
        ):
            list_bytes(files, size_bytes, "list")
    with (folder / CHECKSUMS_NAME).open("wb") as file:
        file.truncate(40 << 30)
    begin = time.monotonic()
    with pytest.raises(ConfigError, match=f"{CHECKSUMS_NAME}: has 42949672960 bytes, and a list of 21 files"):
        FileDataset(folder)
    assert time.monotonic() - begin < 5


# --- Names ---


def test_text_of_strangers_is_shown_as_escapes() -> None:
    assert plain("/a b/é") == "/a b/é"
    assert plain("\x1b[31m\n\udcff\ud800\u202e") == r"\x1b[31m\n\xff\ud800\u202e"
    assert plain("one\ntwo\x1b", keeps="\n") == "one\ntwo\\x1b"


def test_names_that_would_steer_a_terminal_are_escaped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "esc\x1b[31mred\nwrong: b"
    found = Manifest.of([(f"/{name}", 2)], checksums={f"/{name}": (1, 7), "/gone\x1b": (1, 1)})
    assert len(found.problems) == 2
    assert all(problem.isprintable() for problem in found.problems)
    (folder / name).write_bytes(b"x")
    with FileDataset(folder, on_error="yield") as files:
        (folder / name).unlink()
        (wrong,) = (sample for sample in files if sample.error)
        assert wrong.path == f"/{name}"
        assert wrong.error == r"/esc\x1b[31mred\nwrong: b: No such file or directory"
    (folder / name).write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"there is none of /esc\\x1b"):
        FileDataset(folder, verify=True)
    with FileDataset(folder) as files:
        (folder / name).unlink()
        with pytest.raises(FileReadError) as caught:
            list(files)
    assert str(caught.value).isprintable()

    def fail() -> None:
        raise ConfigError("a\x1b[31m\nb")

    capsys.readouterr()
    assert run(fail) == 2
    assert capsys.readouterr().err == "error: a\\x1b[31m\nb\n"


def test_the_command_shows_no_escapes_of_a_folders(folder: Path) -> None:
    path = folder / FIRST
    text = (folder / CHECKSUMS_NAME).read_text().replace(f"/{FIRST}", r"/\u001b[31m\ud800")
    (folder / CHECKSUMS_NAME).write_text(text)
    path.unlink()
    code, shown = files_command("verify", folder)
    assert code == 1
    assert r"wrong: /\x1b[31m\ud800: is in flashmob-files.json, and is not there" in shown
    assert "\x1b" not in shown


# --- What hangs ---


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_in_a_files_place_is_refused(folder: Path, has_writer: bool) -> None:
    with FileDataset(folder, backend="posix", on_error="yield") as files:
        (folder / FIRST).unlink()
        os.mkfifo(folder / FIRST)
        writer = os.open(folder / FIRST, os.O_RDWR) if has_writer else None
        assert [one.error for one in files if one.error] == [f"/{FIRST}: it is no plain file"]
        if writer is not None:
            os.close(writer)


HANGING = """
import os, sys, threading
from flashmob.dataset import FileDataset
def hang(*arguments):
    print("hangs", flush=True)
    threading.Event().wait()
with FileDataset(sys.argv[1], backend="posix") as files:
    os.preadv = hang
    for sample in files:
        pass
"""


def test_ctrl_c_ends_reads_that_hang(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING, str(folder)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == -signal.SIGINT
        finally:
            process.kill()


def test_closing_waits_for_hanging_reads_a_moment_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    threads = PosixThreads(folder, 2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "preadv", fails)
        threads.start(1, FIRST, 0, np.empty(100, np.uint8))
        assert threads.wait() == [(1, "Resource temporarily unavailable")]
    with monkeypatch.context() as patched:
        patched.setattr(os, "preadv", lambda *arguments: time.sleep(5) or 0)
        for tag in range(8):
            threads.start(tag, FIRST, 0, np.empty(100, np.uint8))
        time.sleep(0.1)
        begin = time.monotonic()
        threads.close()
        assert time.monotonic() - begin < 4
    assert threads.wait() == []
    with pytest.raises(RuntimeError, match="closed"):
        threads.start(1, FIRST, 0, np.empty(100, np.uint8))


# --- What is too large ---


def test_a_file_larger_than_memory_is_an_error_of_its_own(folder: Path) -> None:
    with (folder / "giant").open("wb") as file:
        file.truncate(12 << 40)
    text = "/giant: its 13194139533312 bytes are more than there is memory for; read it in pieces"
    with FileDataset(folder, on_error="yield", seed=3) as files:
        assert [one.error for one in files if one.error] == [text]
        assert len(files) == 21
    with FileDataset(folder, seed=3) as files, pytest.raises(FileReadError, match=f"^{text}$"):
        list(files)


def test_memory_that_lacks_for_a_moment_is_waited_for(folder: Path) -> None:
    held = 0

    def allocate(length: int) -> NDArray[np.uint8]:
        nonlocal held
        if held + length > 10_000:
            raise MemoryError
        held += length
        return np.empty(length, np.uint8)

    with FileDataset(folder, allocate=allocate) as files:
        count = 0
        for sample in files:
            held -= sample.data.nbytes
            count += sample.data.nbytes > 0
    assert count == 20


def test_files_are_verified_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    taken: list[tuple[int, int]] = []
    allocate, start = files_module._allocate, PosixThreads.start

    def counted(length: int) -> NDArray[np.uint8]:
        lengths.append(length)
        return allocate(length)

    def seen(self: PosixThreads, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        taken.append((tag, begin))
        start(self, tag, path, begin, to)

    monkeypatch.setattr(files_module, "_VERIFIED_BYTES", 1000)
    monkeypatch.setattr(files_module, "_allocate", counted)
    monkeypatch.setattr(PosixThreads, "start", seen)
    (folder / "empty").touch()
    text = (folder / CHECKSUMS_NAME).read_text().replace('"files": {', '"files": {"/empty": [0, 0],')
    (folder / CHECKSUMS_NAME).write_text(text)
    with FileDataset(folder, rank=1, world=2, ahead_bytes=1500) as files:
        assert [error for _, error in files.verified()] == [""] * 21
        assert max(lengths) == 1000
        damaged = folder / "class-003/image-0000003.bin"
        data = damaged.read_bytes()
        damaged.write_bytes(data[:1500] + b"!" + data[1501:])
        (folder / FIRST).write_bytes(b"x" * 10)
        taken.clear()
        wrong = {entry.path: error for entry, error in files.verified() if error}
    crc32 = zlib.crc32(damaged.read_bytes())
    assert set(wrong) == {f"/{FIRST}", "/class-003/image-0000003.bin"}
    assert wrong[f"/{FIRST}"] == f"/{FIRST}: it ends at byte 10; it has become shorter"
    assert wrong["/class-003/image-0000003.bin"].startswith(
        f"/class-003/image-0000003.bin: its CRC-32 is {crc32:08x} and should be "
    )


def test_what_is_wrong_with_a_file_is_said_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_VERIFIED_BYTES", 4)
    with FileDataset(folder, ahead_bytes=64) as files:
        (folder / FIRST).unlink()
        reads = 0
        start = PosixThreads.start

        def seen(self: PosixThreads, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
            nonlocal reads
            reads += path == f"/{FIRST}"
            start(self, tag, path, begin, to)

        monkeypatch.setattr(PosixThreads, "start", seen)
        assert [(entry.path, error) for entry, error in files.verified() if error] == [
            (f"/{FIRST}", f"/{FIRST}: No such file or directory")
        ]
    # One that is known to be wrong is not asked for piece by piece to its end.
    assert reads < 40


def test_a_file_without_a_checksum_costs_nobody_the_others(folder: Path) -> None:
    (folder / "new").write_bytes(b"x")
    (folder / FIRST).write_bytes(b"x" * (folder / FIRST).stat().st_size)
    with FileDataset(folder) as files:
        wrong = [error for _, error in files.verified() if error]
    assert len(wrong) == 2
    assert wrong[0].startswith(f"/{FIRST}: its CRC-32 is")
    assert wrong[1] == f"/new: there is no checksum of it in {CHECKSUMS_NAME}"
    code, text = files_command("verify", folder)
    assert code == 1
    assert "2 wrong" in text
    (folder / CHECKSUMS_NAME).unlink()
    with FileDataset(folder) as files, pytest.raises(ConfigError, match="there is none of"):
        files.verified()
