"""TLS on the NVMe/TCP door: keys from files, our own initiator, and OpenSSL's client, which knows nothing of NVMe."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOST = "nqn.2014-08.org.example:host"
HASHES = {32: ("sha256", "01", "TLS_AES_128_GCM_SHA256"), 48: ("sha384", "02", "TLS_AES_256_GCM_SHA384")}
IC_REQ = struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120)
IC_RESP_HEAD = struct.pack("<BBBBI", 1, 0, 128, 0, 128)


def key_text(key: bytes) -> str:
    """A key in the interchange format, to be transformed by the hash that fits its length."""
    checked = key + zlib.crc32(key).to_bytes(4, "little")
    return f"NVMeTLSkey-1:{HASHES[len(key)][1]}:{base64.b64encode(checked).decode()}:"


def expand_label(name: str, secret: bytes, label: bytes, context: bytes) -> bytes:
    """RFC 5869 and RFC 8446, 7.1, for one block."""
    size = hashlib.new(name).digest_size
    prk = hmac.new(bytes(size), secret, name).digest()
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + bytes([len(context)]) + context
    return hmac.new(prk, info + b"\1", name).digest()


def tls_psk(key: bytes, host: str, nqn: str) -> tuple[str, str]:
    """Identity and PSK in hexadecimal digits, as the specification says: a second opinion beside the C++ code's."""
    name, number, _ = HASHES[len(key)]
    retained = expand_label(name, key, b"HostNQN", host.encode())
    seed = f"{host} {nqn} NVMe-over-Fabrics".encode()
    digest = base64.b64encode(hmac.new(retained, seed, name).digest()).decode()
    psk = expand_label(name, retained, b"nvme-tls-psk", f"{number} {digest}".encode())
    return f"NVMe1R{number} {host} {nqn} {digest}", psk.hex()


def key_file(folder: Path, key: bytes, name: str = "key", mode: int = 0o600) -> str:
    path = folder / name
    path.touch()
    path.chmod(mode)
    path.write_text(key_text(key) + "\n")
    return str(path)


@contextmanager
def served(folder: Path, *arguments: str, config: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process with an NVMe/TCP door, and the door's address."""
    command = [sys.executable, "-m", "flashmob", "serve"]
    if config:
        (folder / "lab.toml").touch(0o600)
        (folder / "lab.toml").write_text(config)
        command += ["--config", "lab.toml"]
    else:
        command += ["unlimited", "--size", "4M", "--tcp", "0", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, text=True, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert process.stdout.readline() == "ready\n"
            yield process, line.strip().partition(" ")[2]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            if process.poll() is None:
                process.kill()


def bench(door: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashmob", "bench", door, "--ios", "2000", "--qd", "8", "--queues", "2"]
    command += ["--no-fill", "--json", "-", *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)


def place_of(door: str) -> tuple[str, int, str]:
    place, _, nqn = door.removeprefix("nvme-tcp:").partition("/")
    host, _, port = place.rpartition(":")
    return host, int(port), nqn


def openssl_client(door: str, identity: str, psk: str, suite: str) -> bytes:
    """What comes back for an ICReq through `openssl s_client`."""
    host, port, _ = place_of(door)
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_3", "-quiet", "-ciphersuites", suite]
    command += ["-psk_identity", identity, "-psk", psk]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(IC_REQ)
            got = b""
            while len(got) < 128 and (piece := process.stdout.read(128 - len(got))):
                got += piece
            return got
        except BrokenPipeError:
            return b""
        finally:
            process.kill()


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")


@needs_openssl
def test_openssl_is_let_in_with_the_key_that_python_derives(tmp_path: Path) -> None:
    key = bytes(range(32))  # s_client's -psk knows no other hash than SHA-256
    with served(tmp_path, "--tls-key", key_file(tmp_path, key)) as (_, door):
        nqn = place_of(door)[2]
        identity, psk = tls_psk(key, HOST, nqn)
        suite = HASHES[32][2]
        assert openssl_client(door, identity, psk, suite).startswith(IC_RESP_HEAD)
        wrong = f"{int(psk[0], 16) ^ 1:x}{psk[1:]}"
        assert openssl_client(door, identity, wrong, suite) == b""
        assert openssl_client(door, identity.replace("host", "tsoh"), psk, suite) == b""
        assert openssl_client(door, "Client_identity", psk, suite) == b""
        assert openssl_client(door, identity, psk, "TLS_AES_256_GCM_SHA384") == b"", "the suite is the hash's"
        assert openssl_client(door, identity, psk, suite).startswith(IC_RESP_HEAD), "still"


@pytest.mark.parametrize("size", [32, 48])
def test_bench_by_tls(tmp_path: Path, size: int) -> None:
    key, other = os.urandom(size), os.urandom(size)
    with served(tmp_path, "--tls", "required", "--tls-key", key_file(tmp_path, key)) as (_, door):
        done = bench(door, "--tls-key", str(tmp_path / "key"), "--rw", "randrw", "--bs", "64k", "--data-digest")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["errors"] == {}
        assert key_text(key) not in done.stdout + done.stderr
        refused = bench(door, "--tls-key", key_file(tmp_path, other, "other"))
        assert refused.returncode == 2
        assert "no TLS connection" in refused.stderr
        assert key_text(other) not in refused.stderr
        plain = bench(door)
        assert plain.returncode == 2
        assert "tls_key" in plain.stderr
        again = bench(door, "--tls-key", str(tmp_path / "key"))
        assert again.returncode == 0, again.stderr


def test_a_door_without_tls_is_not_spoken_to(tmp_path: Path) -> None:
    with served(tmp_path) as (_, door):
        refused = bench(door, "--tls-key", key_file(tmp_path, bytes(32)))
        assert refused.returncode == 2
        assert "no TLS connection" in refused.stderr


def test_hosts_with_keys_of_their_own(tmp_path: Path) -> None:
    key = os.urandom(32)
    config = f"""
        [[ssd]]
        name = "ssd0"
        profile = "unlimited"
        tcp = "127.0.0.1:0"
        size = "4M"
        tls = "allowed"
        hosts = [{{ nqn = "{HOST}", tls_key = "{key_text(key)}" }}, {{ nqn = "nqn.plain" }}]
    """
    with served(tmp_path, config=config) as (_, door):
        named = key_file(tmp_path, key)
        assert bench(door, "--host-nqn", HOST, "--tls-key", named).returncode == 0
        assert bench(door, "--host-nqn", "nqn.plain").returncode == 0
        assert bench(door, "--host-nqn", HOST).returncode == 2
        assert bench(door, "--host-nqn", "nqn.plain", "--tls-key", named).returncode == 2


def test_a_secure_channel_from_a_proof(tmp_path: Path) -> None:
    key = os.urandom(32)
    secret = key_text(key).replace("NVMeTLSkey-1:01:", "DHHC-1:00:")
    config = f"""
        [[ssd]]
        name = "ssd0"
        profile = "unlimited"
        tcp = "127.0.0.1:0"
        size = "4M"
        hosts = [{{ nqn = "{HOST}", key = "{secret}" }}, {{ nqn = "nqn.plain" }}]
    """
    with served(tmp_path, config=config) as (_, door):
        named = key_file(tmp_path, key)
        Path(named).write_text(secret + "\n")
        proof = ("--host-nqn", HOST, "--host-key", named)
        done = bench(door, *proof, "--secure-channel", "--rw", "randrw", "--bs", "64k")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["errors"] == {}
        assert bench(door, *proof).returncode == 0, "in the clear, too"
        refused = bench(door, "--host-nqn", "nqn.plain", "--host-key", named, "--secure-channel")
        assert refused.returncode == 2
        assert "has no secret of this host" in refused.stderr
        # The door is there, and has said what is wrong: no word of its address.
        lacking = bench(door, *proof, "--secure-channel", "--controller-key", named)
        assert lacking.returncode == 2
        assert "it has no secret of its own (dhchap_controller_secret)" in lacking.stderr
        for said in (refused.stderr, lacking.stderr):
            assert "check the address" not in said
    gone = bench(door, *proof)
    assert gone.returncode == 2
    assert "check the address and that the target runs there" in gone.stderr


def test_ctrl_c_ends_the_wait_for_a_silent_target() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = f"nvme-tcp:127.0.0.1:{listener.getsockname()[1]}/nqn.silent"
        command = [sys.executable, "-m", "flashmob", "bench", door]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            listener.settimeout(60)
            accepted, _ = listener.accept()
            with accepted:
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=60)
        # Not the code of an error: the target is given up before its time.
        assert (process.returncode, said) == (-signal.SIGINT, "")


def test_the_server_ends_amid_handshakes(tmp_path: Path) -> None:
    with served(tmp_path, "--tls-key", key_file(tmp_path, bytes(32))) as (process, door):
        host, port, _ = place_of(door)
        half = [socket.create_connection((host, port), 5) for _ in range(20)]
        for count, one in enumerate(half):
            one.sendall((b"\x16\x03\x01\x02\x00\x01" + bytes(500))[: count + 1])
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - started < 5
        for one in half:
            one.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls", "required"], "--tls required needs a key; give --tls-key FILE"),
        (["--tls", "perhaps", "--tls-key", "good"], "--tls perhaps is not possible"),
        (["--tls-key", "open"], "chmod 600 open"),
        (["--tls-key", "others"], "--tls-key others: holds no key that begins with NVMeTLSkey-1"),
        (["--tls-key", "missing"], "--tls-key missing cannot be read (No such file"),
        (
            ["--tls-key", "dhchap"],
            "--tls-key dhchap: holds no key that begins with NVMeTLSkey-1; give a file that holds an",
        ),
        (["--tls-key", "mistyped"], "its checksum does not fit"),
    ],
)
def test_keys_that_cannot_be_used(tmp_path: Path, arguments: list[str], said: str) -> None:
    key_file(tmp_path, bytes(32), "good")
    key_file(tmp_path, bytes(32), "open", 0o644)
    (tmp_path / "others").write_text("root:SECRET:0:0::/root:/bin/bash\n")
    (tmp_path / "others").chmod(0o644)
    for name, text in (("dhchap", "DHHC-1:00:SECRET:"), ("mistyped", key_text(bytes(32)).replace("AAAA", "BBBB", 1))):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "flashmob", "serve", "unlimited", "--size", "4M", "--tcp", "0", *arguments]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert said in told
    assert ("chmod" in told) == ("open" in arguments)
    assert "SECRET" not in told
    assert "BBBB" not in told
