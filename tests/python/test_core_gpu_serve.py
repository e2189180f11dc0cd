"""`flashmob gpu serve` as a process of its own: kernels of other processes do verified I/O, and may be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flashmob.gpu
import numpy as np
import pytest
from flashmob import ConfigError
from flashmob.gpu import GpuServer

FAST = '[timing]\nread_latency_ns = "10us"\nwrite_latency_ns = "10us"\nread_iops = 5e6\nwrite_iops = 5e6\n'
FLASHMOB = [sys.executable, "-m", "flashmob"]
SMALL = ("--set", "commands=256", "--set", "span_blocks=32", "--set", "in_flight=2", "--set", "threads=32")


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its address."""
    (folder / "fast.toml").write_text(FAST, encoding="utf-8")
    command = [*FLASHMOB, "gpu", "serve", "fast.toml", "--socket", "ssd", "--size", "4M", "--backend", "fibres"]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(3)]
            if lines[2] != "ready":
                process.kill()
                assert process.stderr is not None
                pytest.fail(f"it never was ready: {lines} {process.stderr.read()}")
            assert "far slower than on a GPU" in lines[1]
            assert lines[0] == "gpu-socket:ssd"
            yield process, f"gpu-socket:{folder / 'ssd'}"
        finally:
            if process.poll() is None:
                process.kill()


def open_files(process: subprocess.Popen[str]) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


def mapped(process: subprocess.Popen[str]) -> int:
    return Path(f"/proc/{process.pid}/maps").read_text().count("memfd:flashmob")


def test_workloads_of_another_process(tmp_path: Path) -> None:
    with served(tmp_path) as (process, address):
        command = [*FLASHMOB, "gpu", "run", "random-io", address, *SMALL, "--backend", "fibres", "--json", "-"]
        done = subprocess.run(command, text=True, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["outcome"]["verified"]
        assert result["outcome"]["commands"] == 256
        assert result["backend"]["clock"] == "real"
        assert "another process's" in re.sub(r"\s+", " ", done.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert not (tmp_path / "ssd").exists()


def test_the_python_api(tmp_path: Path) -> None:
    with served(tmp_path) as (_, address), flashmob.gpu.attach(address, backend="fibres", queues=2) as gpu:
        assert gpu.ssds[0].namespace_bytes == (4 << 20,)
        values = np.random.default_rng(3).random(4096, np.float32)
        gpu.write(0, values)
        back = np.empty_like(values)
        gpu.read(0, back)
        assert np.array_equal(values, back)
        blocks = gpu.gather_blocks([0, 3, 7])
        assert np.array_equal(blocks.numpy()[1], values[3 * 128 : 4 * 128].view(np.uint8))
        with pytest.raises(ConfigError, match=r"gpu\.empty"):
            gpu.gather_blocks([0], out=np.empty((1, 512), np.uint8))
        found = gpu.gather([7, 42, 4000], access=flashmob.gpu.Access(cache_bytes="64K", threads=32))
        assert np.array_equal(found.numpy(), values[[7, 42, 4000]])


def test_a_client_that_is_killed_under_load(tmp_path: Path) -> None:
    with served(tmp_path) as (process, address), flashmob.gpu.attach(address, backend="fibres") as gpu:
        assert gpu.random_io(commands=64, threads=32, in_flight=1, span_blocks=32).verified
        files, memory = open_files(process), mapped(process)
        command = [*FLASHMOB, "gpu", "run", "random-io", address, *SMALL, "--set", "commands=100000000"]
        for _ in range(2):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
                deadline = time.monotonic() + 30
                while mapped(process) == memory and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.5)
                assert client.poll() is None
                client.kill()
            assert gpu.random_io(commands=64, threads=32, in_flight=1, span_blocks=32).verified
        deadline = time.monotonic() + 20
        while (open_files(process), mapped(process)) != (files, memory) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert open_files(process) == files
        assert mapped(process) == memory


def test_a_server_in_this_process_and_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "fast.toml").write_text(FAST, encoding="utf-8")
    server = GpuServer(
        str(tmp_path / "fast.toml"),
        tmp_path / "ssd",
        {"subsystem.namespaces.0.size_bytes": "4M"},
        backend="fibres",
    )
    with flashmob.gpu.attach(server.address, backend="fibres") as gpu:
        gpu.write(0, np.zeros(512, np.uint8))
        time.sleep(0.4)
        stats = server.stats()
        assert [client.pid for client in stats.clients] == [os.getpid()]
        assert stats.clients[0].write_commands == 1
        assert stats.clients[0].written_bytes == 512
        server.close()
        with pytest.raises(RuntimeError, match="gone"):
            gpu.read(0, np.zeros(512, np.uint8))
    assert server.stats().clients_seen == 1


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("gpu-socket:/nowhere/ssd",), {}, "is the server running"),
        (("gpu-socket:a", "d7-ps1010"), {}, "beside other SSDs"),
        (("gpu-socket:a",), {"size": "1G"}, "configured by who serves it"),
        (("gpu-socket:a",), {"engine": "gpu"}, "configured by who serves it"),
        (("gpu-socket:a",), {"clock": "virtual"}, "real time"),
    ],
)
def test_what_cannot_be_attached(arguments: tuple[str, ...], options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        flashmob.gpu.attach(*arguments, **options)  # type: ignore[arg-type]


def test_what_cannot_be_served(tmp_path: Path) -> None:
    for arguments, says in (
        (("unlimited", "--socket", "ssd", "--media", "generated"), "generated"),
        (("unlimited", "--socket", "nowhere/ssd"), "make it first"),
        (("unlimited", "--socket", "ssd", "--backend", "threads"), "not possible"),
    ):
        command = [*FLASHMOB, "gpu", "serve", *arguments]
        done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 2
        assert says in done.stderr
