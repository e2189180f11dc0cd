"""A disk that does not answer: the server's operator can end it all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_hosts import PROPERTY_SET, RawHost, command

# Stands before the C library in the server: while the file STALL exists, nothing that waits for a disk comes back.
SHIM = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void stall(void) {
  const char* const until = getenv("STALL");
  while (until != NULL && access(until, F_OK) == 0) {
    close(open(getenv("STALLED"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    usleep(10000);
  }
}
int fdatasync(int fd) { stall(); return (int)syscall(SYS_fdatasync, fd); }
int fsync(int fd) { stall(); return (int)syscall(SYS_fsync, fd); }
int msync(void* at, size_t bytes, int flags) { stall(); return (int)syscall(SYS_msync, at, bytes, flags); }
"""


@pytest.fixture
def stalled(tmp_path: Path) -> dict[str, str]:
    """What a process's environment needs for a disk that stalls while `stall` exists, and says so in `stalled`."""
    (tmp_path / "shim.c").write_text(SHIM, encoding="utf-8")
    library = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "shim.c")], check=True)
    return {"LD_PRELOAD": str(library), "STALL": str(tmp_path / "stall"), "STALLED": str(tmp_path / "stalled")}


def _until(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.01)


def _shut_down(admin: RawHost, io: RawHost) -> None:
    admin.socket.sendall(command(0x7F, 3, nsid=PROPERTY_SET, dwords=(0, 0x14, 0x460001 | 1 << 14)))


def _flush(admin: RawHost, io: RawHost) -> None:
    io.socket.sendall(command(0x00, 4, nsid=1))


def _format(admin: RawHost, io: RawHost) -> None:
    admin.socket.sendall(command(0x80, 5, nsid=1))


def _delete(admin: RawHost, io: RawHost) -> None:
    admin.socket.sendall(command(0x0D, 5, nsid=1, dwords=(1,)))


def _protect(admin: RawHost, io: RawHost) -> None:
    admin.socket.sendall(command(0x09, 5, nsid=1, dwords=(0x84, 1)))


@pytest.mark.parametrize("waits", [_shut_down, _flush, _format, _delete, _protect])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_though_its_disk_does_not_answer(
    tmp_path: Path,
    stalled: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    waits: Callable[[RawHost, RawHost], None],
    number: signal.Signals,
) -> None:
    for name, value in stalled.items():
        monkeypatch.setenv(name, value)
    command_line = [sys.executable, "-m", "flashmob", "serve", "unlimited", "--size", "4M", "--tcp", "0"]
    command_line += ["--media", f"file:{tmp_path / 'disk'}", "--allow", "manage"]
    with subprocess.Popen(command_line, cwd=tmp_path, text=True, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            address = ""
            while (line := server.stdout.readline()) not in ("ready\n", ""):
                address = line.split()[-1]
            with RawHost(address) as admin, RawHost(address) as io:
                cntlid = admin.attach()
                io.initialize()
                assert io.connect(b"nqn.raw", qid=1, cntlid=cntlid)[0] == 0
                (tmp_path / "stall").touch()
                # 4 KiB of data in its capsule.
                assert io.ask(command(0x01, 2, nsid=1, dwords=(0, 0, 7), data=bytes(4096)))[0] == 0
                waits(admin, io)
                _until(tmp_path / "stalled")
                begun = time.monotonic()
                server.send_signal(number)
                assert server.wait(timeout=10) in (0, 1, 130)
                # 2 s, and what a busy machine takes.
                assert time.monotonic() - begun < 6
        finally:
            (tmp_path / "stall").unlink(missing_ok=True)
            server.kill()
