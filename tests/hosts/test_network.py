"""What only a network has: discovery, digests, TLS, many hosts, hosts that are not let in or must prove themselves."""

from __future__ import annotations

import base64
import secrets
import shutil
import socket
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import NvmeTcp, connect_command, discover
from guest import Guest, Machine
from serve import ServedSsd

pytestmark = pytest.mark.doors("nvme-tcp")

HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
OTHER = "nqn.2014-08.org.nvmexpress:uuid:66666666-7777-8888-9999-aaaaaaaaaaaa"
AS_HOST = f"--hostnqn={HOST} --hostid=11111111-2222-3333-4444-555555555555"
AS_OTHER = f"--hostnqn={OTHER} --hostid=66666666-7777-8888-9999-aaaaaaaaaaaa"
VERIFY = (
    "fio --name=v --direct=1 --ioengine=io_uring --iodepth=32 --rw=randwrite --bsrange=512-256k --blockalign=512 "
    "--size=8m --offset=320m --verify=crc32c --verify_fatal=1 --output-format=terse"
)
NEWEST = "N=$(ls -td /dev/nvme*n1 | head -n 1); for try in $(seq 50); do [ -b $N ] && break; sleep 0.1; done"


def test_discovery_names_the_subsystem(guest: Guest, door: NvmeTcp) -> None:
    (entry,) = [entry for entry in discover(guest, door.ssd.port) if entry["subtype"] == "nvme subsystem"]
    assert entry["subnqn"] == door.ssd.nqn
    assert entry["trtype"] == "tcp"
    assert entry["adrfam"] == "ipv4"
    assert entry["trsvcid"].strip() == str(door.ssd.port)


def test_connect_all_follows_the_discovery_log(guest: Guest, door: NvmeTcp) -> None:
    """The log holds the address at which the target was reached: the loopback of the machine outside."""
    guest.run(
        f"""
        # In the guest that address is the guest's own, so something has to pass it on.
        nc -ll -p {door.ssd.port} -e nc 10.0.2.2 {door.ssd.port} </dev/null >/dev/null 2>&1 &
        echo $! >/run/relay
        sleep 0.5
        before=$(nvme list-subsys | grep -c 'traddr=127.0.0.1.*live') || true
        nvme connect-all -t tcp -a 10.0.2.2 -s {door.ssd.port} {AS_OTHER} --ctrl-loss-tmo=5
        after=$(nvme list-subsys | grep -c 'traddr=127.0.0.1.*live')
        [ $after -gt $before ]
        """
    )
    guest.run(f"{leave(AS_OTHER)}; kill $(cat /run/relay)")


@pytest.mark.parametrize("digests", ["", "--hdr-digest", "--data-digest", "--hdr-digest --data-digest"])
@pytest.mark.parametrize("more", ["--nr-io-queues=1", "--queue-size=16"], ids=["one queue", "short queues"])
def test_fio_verifies_with_digests(guest: Guest, door: NvmeTcp, digests: str, more: str) -> None:
    """A second host of the same namespace, with digests or without."""
    command = connect_command("10.0.2.2", door.ssd.port, door.ssd.nqn, AS_OTHER, digests, more)
    guest.run(f"{leave_all(door)}; {command}")
    door.settle(guest)
    guest.run(f"{VERIFY} --filename=$N", 60)
    guest.run(f"{leave_all(door)}; {connect_command('10.0.2.2', door.ssd.port, door.ssd.nqn)}")
    door.settle(guest)


def leave_all(door: NvmeTcp) -> str:
    return f"nvme disconnect -n {door.ssd.nqn}"


def leave(host: str) -> str:
    """Disconnects the controllers that this host made, and no others."""
    nqn = host.split()[0].partition("=")[2]
    return f"for c in /sys/class/nvme/nvme*; do [ $(cat $c/hostnqn) != {nqn} ] || nvme disconnect -d ${{c##*/}}; done"


def test_an_idle_host_stays_connected(guest: Guest) -> None:
    """Longer than the keep alive timeout of 5 s: the driver keeps it alive."""
    before = guest.run("dmesg | grep -c 'reconnect' || true").output
    guest.run("sleep 7")
    assert guest.run("cat /sys/class/nvme/${C##*/}/state").output.strip() == "live"
    assert guest.run("dmesg | grep -c 'reconnect' || true").output == before


def test_a_host_that_stood_still_reconnects(guest: Guest, door: NvmeTcp) -> None:
    """The whole guest stops for longer than the keep alive timeout, so the target gives it up. Then it goes on."""
    guest.run("dd if=/dev/urandom of=/run/kept bs=64k count=8; dd if=/run/kept of=$N bs=64k oflag=direct")
    guest.monitor("stop")
    time.sleep(12)
    guest.monitor("cont")
    guest.run("dd if=$N of=/run/found bs=64k count=8 iflag=direct; cmp /run/kept /run/found", 40)
    door.settle(guest)


@pytest.fixture(scope="module")
def visitor(environment: Path) -> Iterator[Guest]:
    """A guest that is connected to nothing yet."""
    with Guest(environment, Machine(network=True)) as made:
        made.run("modprobe nvme-tcp")
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="flashmob-network-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def served(folder: Path) -> Iterator[ServedSsd]:
    """An SSD for known hosts, not started yet."""
    made = ServedSsd(folder, tcp=True, size="256MiB")
    yield made
    made.close()


@pytest.mark.usefixtures("door_name")
def test_only_named_hosts_are_let_in(visitor: Guest, served: ServedSsd) -> None:
    served.options = ["--host-nqn", HOST]
    served.start()
    refused = visitor.run(connect_command("10.0.2.2", served.port, served.nqn, AS_OTHER), 30, check=False)
    assert refused.status != 0
    assert not visitor.run("ls /dev/nvme*n1 2>/dev/null || true").output.strip()
    assert "host" in visitor.run("dmesg | tail -n 5").output.lower(), "the driver says why"
    visitor.run(connect_command("10.0.2.2", served.port, served.nqn, AS_HOST))
    visitor.run(f"{NEWEST}; dd if=$N of=/dev/null bs=64k count=4 iflag=direct")
    visitor.run(f"nvme disconnect -n {served.nqn}")


@pytest.mark.usefixtures("door_name")
def test_hosts_that_may_only_read(visitor: Guest, served: ServedSsd) -> None:
    """The kernel makes a read-only disk of it, and offers nothing that is not there."""
    served.options = ["--allow", "tcp=read-only"]
    served.start()
    visitor.run(connect_command("10.0.2.2", served.port, served.nqn, AS_HOST))
    visitor.run(f"{NEWEST}; [ $(blockdev --getro $N) = 1 ]; dd if=$N of=/dev/null bs=64k count=4 iflag=direct")
    assert visitor.run(f"{NEWEST}; dd if=/dev/zero of=$N bs=4k count=1 oflag=direct", check=False).status != 0
    refused = visitor.run(f"{NEWEST}; nvme format $N -n 1 --force", check=False)
    assert refused.status != 0
    assert "opcode" in refused.output.lower()
    visitor.run(f"nvme disconnect -n {served.nqn}")


@pytest.mark.usefixtures("door_name")
def test_a_namespace_becomes_write_protected_and_writable_again(visitor: Guest, served: ServedSsd) -> None:
    """While it is in use: the event that says so makes the kernel look again."""
    served.start()
    visitor.run(connect_command("10.0.2.2", served.port, served.nqn, AS_HOST))
    for state in (1, 0):
        visitor.run(
            f"{NEWEST}; nvme set-feature $N -n 1 -f 0x84 -V {state}; "
            f"for try in $(seq 50); do [ $(blockdev --getro $N) = {state} ] && exit 0; sleep 0.1; done; exit 1"
        )
    visitor.run(f"{NEWEST}; dd if=/dev/zero of=$N bs=4k count=1 oflag=direct")
    visitor.run(f"nvme disconnect -n {served.nqn}")


def without_ipv6() -> str:
    """Why nothing can listen at this machine's IPv6 loopback address; empty where something can."""
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError as error:
        return f"no IPv6 loopback address here: {error}"
    return ""


@pytest.mark.usefixtures("door_name")
def test_ipv6(visitor: Guest, served: ServedSsd) -> None:
    """fec0::2 is the machine outside; QEMU takes such connections to its IPv6 loopback address."""
    if reason := without_ipv6():
        pytest.skip(reason)
    served.listen = "[::1]"
    served.start()
    visitor.run("echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip -6 addr add fec0::15/64 dev eth0")
    (entry,) = [e for e in discover(visitor, served.port, "fec0::2") if e["subtype"] == "nvme subsystem"]
    assert entry["adrfam"] == "ipv6"
    assert entry["traddr"] == "::1"
    visitor.run(connect_command("fec0::2", served.port, served.nqn, AS_HOST))
    visitor.run(f"{NEWEST}; {VERIFY} --offset=32m --filename=$N")
    assert "traddr=fec0::2" in visitor.run("nvme list-subsys").output
    visitor.run(f"nvme disconnect -n {served.nqn}")


def make_secret(hmac: int) -> str:
    """A new secret as hosts are given it: DHHC-1, the hash that transforms it, the secret and its CRC-32 in base64."""
    secret = secrets.token_bytes({0: 32, 1: 32, 2: 48, 3: 64}[hmac])
    checked = secret + zlib.crc32(secret).to_bytes(4, "little")
    return f"DHHC-1:{hmac:02}:{base64.b64encode(checked).decode()}:"


@pytest.mark.usefixtures("door_name")
@pytest.mark.parametrize("hmac", [0, 1, 2, 3], ids=["plain", "sha256", "sha384", "sha512"])
def test_hosts_prove_who_they_are(visitor: Guest, served: ServedSsd, hmac: int) -> None:
    """DH-HMAC-CHAP against the kernel's own: the right secret, a wrong one, none, and both ends proving themselves."""
    ours, theirs, wrong = (make_secret(hmac) for _ in range(3))
    served.lab = f"""
        [[ssd]]
        name = "{served.name}"
        profile = "{served.profile}"
        tcp = "127.0.0.1:0"
        size = "{served.size}"
        hosts = [{{ nqn = "{HOST}", key = "{ours}", controller_key = "{theirs}" }}]
    """
    served.start()

    def connect(*keys: str) -> int:
        command = connect_command("10.0.2.2", served.port, served.nqn, AS_HOST, "--nr-io-queues=1", *keys)
        return visitor.run(command, 30, check=False).status

    assert connect() != 0
    assert connect(f"--dhchap-secret={wrong}") != 0
    assert connect(f"--dhchap-secret={ours}", f"--dhchap-ctrl-secret={wrong}") != 0
    assert not visitor.run("ls /dev/nvme*n1 2>/dev/null || true").output.strip()
    for keys in ((f"--dhchap-secret={ours}",), (f"--dhchap-secret={ours}", f"--dhchap-ctrl-secret={theirs}")):
        assert connect(*keys) == 0, visitor.run("dmesg | tail -n 5").output
        visitor.run(f"{NEWEST}; dd if=$N of=/dev/null bs=64k count=4 iflag=direct")
        visitor.run(f"nvme disconnect -n {served.nqn}")


def make_tls_key() -> str:
    """A new key of TLS in the interchange format."""
    key = secrets.token_bytes(32)
    checked = key + zlib.crc32(key).to_bytes(4, "little")
    return f"NVMeTLSkey-1:01:{base64.b64encode(checked).decode()}:"


TLSHD = r"""
modprobe -a tls gcm ghash-generic
printf '[authenticate]\nkeyrings=.nvme\n' >/etc/tlshd.conf
pidof tlshd || { tlshd -s >/run/tlshd 2>&1 </dev/null & sleep 0.5; }
"""


@pytest.mark.usefixtures("door_name")
def test_tls(visitor: Guest, served: ServedSsd) -> None:
    """The kernel's own TLS, with tlshd for the handshake and the key that nvme-cli derives.

    With SHA-256 only: tlshd 1.0 offers keys for SHA-384 with a binder of SHA-256, which no peer may accept.
    """
    key, wrong = make_tls_key(), make_tls_key()
    (served.folder / "key").touch(0o600)
    (served.folder / "key").write_text(key)
    served.options = ["--tls-key", str(served.folder / "key")]
    served.start()
    visitor.run(TLSHD)

    def connect(name: str, *more: str) -> int:
        host = f"--hostnqn={name} --hostid={name[-36:]}"
        command = connect_command("10.0.2.2", served.port, served.nqn, host, "--nr-io-queues=1", *more)
        return visitor.run(command, 30, check=False).status

    (entry,) = [entry for entry in discover(visitor, served.port) if entry["subtype"] == "nvme subsystem"]
    assert entry["sectype"] == "tls13"
    # Hosts of their own, because of several keys for one host the kernel takes the one that it finds first.
    one, two = (f"nqn.2014-08.org.nvmexpress:uuid:{uuid.uuid4()}" for _ in range(2))
    assert connect(one) != 0, "without TLS"
    assert "authentication required" in visitor.run("dmesg | tail -n 5").output
    assert connect(one, "--tls") != 0, "without a key"
    for given, name, works in ((wrong, one, False), (key, two, True)):
        visitor.run(f"nvme check-tls-key -d {given} -n {name} -c {served.nqn} -I 1 --insert")
        assert (connect(name, "--tls") == 0) is works, visitor.run("dmesg | tail -n 5; cat /run/tlshd").output
    visitor.run(f"{NEWEST}; {VERIFY} --offset=32m --filename=$N")
    visitor.run(f"nvme disconnect -n {served.nqn}")
