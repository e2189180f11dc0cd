"""What a user may write that is refused before a benchmark starts: one sentence that names it and the way out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, Ssd, bench, cli
from flashmob.device import core_module
from flashmob.given import FIO_ONLY
from flashmob.runner import prepare

DOOR = "nvme-tcp:127.0.0.1:4420/nqn.x"
MISSING_CORE = str(max(os.sched_getaffinity(0)) + 97)


def refused(arguments: str | list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence that the command says; it must say so at once and leave with 2."""
    given = arguments.split() if isinstance(arguments, str) else arguments
    assert cli.run(lambda: cli.app(["bench", *given], standalone_mode=True)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert ".toml" not in captured.err
    return captured.err.removeprefix("error: ").strip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--read-share 0.7", "--read-share 0.7 is for mixed loads; add --rw randrw or --rw rw"),
        ("--rw randread --read-share 0.7", "--read-share 0.7 is for mixed loads"),
        ("--think 10us --rate 1M", "--think 10us is for a closed loop, and --rate 1M makes an open one"),
        ("--requesters 10 --rate 1M", "--requesters 10 is for a closed loop"),
        ("--arrivals fixed", "--arrivals fixed is for an open loop; add --rate"),
        (
            "--rw read --distribution zipf:0.9",
            "--distribution zipf:0.9 is for random loads, and --rw read is sequential",
        ),
        ("--trace-format msr", "--trace-format msr is for a trace; add --trace"),
        ("--as-fast", "--as-fast is for a trace; add --trace"),
        ("--trace /etc/passwd --rw read", "--rw read is what --trace says itself"),
        ("--trace /etc/passwd --bs 4k", "--bs 4k is what --trace says itself"),
        ("--trace /etc/passwd --rate 1M", "--rate 1M is what --trace says itself"),
        ("--trace /etc/passwd --ramp 5s", "--ramp 5s is what --trace says itself"),
        ("--trace=", "--trace '' is not possible: give it a value, or leave it out"),
        ("--cores=", "--cores '' is not possible: give it a value"),
        ("--trace-disk 1", "--trace-disk 1 is for a trace; add --trace"),
        ("--trace /", "--trace / is not possible: it is a folder"),
        ("--trace /nowhere/at/all", "--trace /nowhere/at/all cannot be read: No such file"),
        ("--clock virtual --cores 0", "--cores 0 pins threads, and virtual time has none"),
        (
            "--clock virtual --completion hybrid",
            "--completion hybrid is about threads that sleep, and virtual",
        ),
        ("--completion sleep", "--completion"),
        ("--clock virtual --ios 0", "--ios 0 is not possible: use at least 1"),
        ("--ramp 1s --ios 1000", "--ramp 1s is for a run by time, and --ios 1000 makes one by count"),
        ("--runtime 1s --ios 1000", "--runtime 1s ends a run by time, and --ios 1000 one by count"),
        ("--clock virtual --set timing.path_ns=600", "--set timing.path_ns is what the way to the device costs"),
        ("--runtime 1e30s", "--runtime 1e30s is not possible: use at most 24h"),
        ("--runtime 99999999999s", "--runtime 99999999999s is not possible: use at most 24h"),
        ("--rate -1", "--rate -1 is not possible: use a rate above 0"),
        ("--ios 0", "--ios 0 is not possible: use at least 1"),
        ("--ios=-5", "--ios -5 is not possible: use at least 1"),
        ("--requesters=-5", "--requesters -5 is not possible: use at least 1"),
        ("--bs 512:70,4k", "--bs 512:70,4k is not possible: give every size a weight"),
        ("--rate 0", "--rate 0 is not possible: use a rate above 0"),
        ("--rate 0M", "--rate 0M is not possible: use a rate above 0"),
        ("--rate 1e-9 --clock virtual --ios 10", "--rate 1e-9 is not possible: use at least 0.001"),
        ("--runtime 0s", "--runtime 0s is not possible: use a time above 0"),
        ("--requesters 0", "--requesters 0 is not possible: use at least 1"),
        (f"--cores {MISSING_CORE}", f"--cores {MISSING_CORE} is not possible: core {MISSING_CORE} is not among"),
        (f"--set engine.cores={MISSING_CORE}", f"engine.cores = {MISSING_CORE} is not possible: core {MISSING_CORE}"),
        ("--cores 0,0", "--cores 0,0 names 2 cores for 1 driver thread"),
        ("--threads 5", "--threads 5 is more than --queues 4"),
        ("--sms 2", "--sms 2 is for the GPU engine; add --engine gpu"),
        ("--engine gpu --units 2", "--units 2 is for the host's engine"),
        ("--engine gpu --copy-engine avx2", "--copy-engine avx2 is for the host's engine"),
        ("--engine gpu --no-data", "--no-data is not possible on the GPU engine"),
        ("--engine abacus", "--engine abacus is not possible: use 'host' or 'gpu'"),
        ("--sms 9999 --engine gpu", "--sms 9999 is not possible: use at most 1024"),
        ("--no-data --copy-engine avx2", "--copy-engine avx2 needs data, but --no-data moves none"),
        ("--no-data --verify 5", "--verify 5 needs data, but --no-data moves none"),
        ("--rw randwrite --verify 5", "--verify 5 checks reads, and this load has none"),
        ("--rw randrw --read-share 0 --verify 5", "--verify 5 checks reads, and this load has none"),
        ("--no-fill --verify 100", "--verify 100 has nothing to check: with --no-fill the store is empty"),
        ("--verify half", "--verify half is not possible: use a percentage from 0 to 100"),
        ("--rw randrw --read-share 2", "--read-share 2 is not possible: use a share from 0 to 1"),
        ("--rw randrw --read-share 50", "use a share from 0 to 1 such as 0.7, or write 50% for a percentage"),
        ("--units 99", "--units 99 is not possible: use at most 64"),
        ("--units 2 --set engine.units=3", "--units 2 and --set engine.units mean the same"),
        ("--size 8G --set subsystem.namespaces.0.size_bytes=4G", "mean the same; leave one of them out"),
        ("--size 1000", "--size 1000 is not possible: 1000 is not a multiple"),
        ("--size 0", "--size 0 is not possible: 0 takes the size of a file:"),
        ("--set subsystem.namespaces.0.size_bytes=1000", "--set subsystem.namespaces.0.size_bytes: size_bytes = 1000"),
        ("--media file:/", "--media file:/ is not possible: / is a folder"),
        ("--media cow:/", "--media cow:/ is not possible: it is a folder"),
        ("--media cow:/nowhere/at/all", "--media cow:/nowhere/at/all cannot be read: No such file"),
        ("--media file:/nowhere/at/all --size 1M", "the folder /nowhere/at does not exist"),
        ("--media generated --rw randwrite", "--media generated cannot be written"),
        ("--media generated --rw randrw", "and --rw randrw writes; use media memory"),
        ("--bs 4kb --set subsystem.namespaces.0.lba_bytes=4096 --bs 512", "--bs 512 is not possible: use multiples"),
        ("--size 4k --bs 64k", "--size 4k has no room for --bs 64k; use a larger size, or smaller blocks"),
        ("--requesters 10000000", "--requesters 10000000 is not possible: use at most 2097152"),
        ("--queues 64 --qd 65000", "--queues 64 and --qd 65000 are 4160000 requests at once; use at most 2097152"),
        ("--bs 2M", "--bs 2M is beyond the device's largest transfer"),
        ("--queues 4096 --set controller.max_queue_pairs=4", "--queues 4096 is more than the 4 of the device"),
        ("--qd 100 --set controller.max_queue_entries=64", "--qd asks for rings of 101 slots"),
        ("--json /", "--json / is a folder; name a file in it"),
        ("--json /proc/x.json", "--json /proc/x.json cannot be written (No such file"),
        ("--rate 1e13", "--rate 1e13 is not possible: use at most 1000000000000"),
        ("--host-key /nowhere/at/all", "--host-key /nowhere/at/all cannot be read (No such file or directory)"),
        ("--host-nqn nqn.x", "--host-nqn nqn.x is for a target behind NVMe/TCP, not for a profile"),
        ("--runtime 5", "--runtime 5 is not possible: write its unit, for example 5s"),
        ("--ramp 1", "--ramp 1 is not possible: write its unit"),
        ("--rate fast", "--rate fast is not possible: use a rate in requests per second"),
        ("--iodepth 0", "--iodepth 0 is not possible: use at least 1"),
        ("--iodepth=4 --qd 4", "--iodepth and --qd mean the same"),
        ("--rwmixread=70", "--rwmixread 70 is for mixed loads"),
        ("--rw randrw --rwmixread=700", "--rwmixread 700 is not possible: use a percentage"),
        ("--iodepth", "--iodepth has no value"),
        ("--ioengine=libaio", "--ioengine is fio's: the requests go to the SSD's queues"),
        ("--filename /dev/nvme0n1", "--filename is fio's: bench makes an SSD of its own; media file:PATH"),
        ("--time_based", "--time_based is fio's: a run ends by its runtime"),
    ],
)
def test_what_has_no_effect_or_no_meaning(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(["unlimited", *arguments.split()], capsys)


@pytest.mark.parametrize("verify", ["0", "0.0", 0])
def test_nothing_to_check_is_no_contradiction_to_an_empty_store(verify: object) -> None:
    """On the command line it is text, of which "0" counts as something."""
    _, load = prepare("unlimited", {"verify": verify, "fill": False, "ios": 10, "clock": "virtual"}, command_line=True)
    assert load.verify_percent == 0
    assert not load.fill


def test_a_fault_is_named_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    rule = "error on=sometimes"
    said = refused(["unlimited", "--fault", rule], capsys)
    assert said.startswith(f"--fault '{rule}': ")
    assert said.count(rule) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"{DOOR} --size 4G", "--size 4G describes a device of flashmob's own"),
        (f"{DOOR} --media memory", "--media memory describes a device"),
        (f"{DOOR} --no-data", "--no-data describes a device"),
        (f"{DOOR} --clock virtual", "another process's; leave it out"),
        (f"{DOOR} --precondition steady", "another process's; leave it out"),
        (f"{DOOR} --set timing.read_iops=1", "--set timing.read_iops describes a device"),
        (f"{DOOR} --fault lose", "--fault lose describes a device"),
        ("vfio-user:/x --host-nqn nqn.x", "--host-nqn nqn.x is for NVMe/TCP, and vfio-user:/x is not"),
        ("vfio-user:/x --data-digest", "--data-digest is for NVMe/TCP"),
        (f"{DOOR} --controller-key /dev/null", "--controller-key /dev/null: holds no key that begins with DHHC-1"),
        ("nvme-tcp:127.0.0.1:4420", "nvme-tcp:127.0.0.1:4420 is not possible: write nvme-tcp:ADDRESS:PORT/NQN"),
        ("vfio-user:", "vfio-user: is not possible: write vfio-user:PATH"),
        ("vfio:/x", "'vfio:/x' is not possible: no door is called vfio; write vfio-user:PATH or nvme-tcp:ADDRESS"),
        ("nvme:/x", "'nvme:/x' is not possible: no door is called nvme; write vfio-user:PATH or nvme-tcp:ADDRESS"),
        ("tcp:127.0.0.1:4420/nqn.x", "'tcp:127.0.0.1:4420/nqn.x' is not possible: no door is called tcp"),
        ("a:" + "x" * 300, "is not possible: no door is called a; write vfio-user:PATH"),
    ],
)
def test_doors_of_others(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"runtime": 5}, "runtime=5 is not possible: write its unit, for example 5s"),
        ({"think": 5, "qd": 1}, "think=5 is not possible: write its unit"),
        ({"ramp": "1"}, "ramp='1' is not possible: write its unit"),
        ({"qd": 0}, "qd=0 is not possible: use at least 1"),
        ({"queue_depth": 0}, "queue_depth=0 is not possible: use at least 1"),
        ({"qd": 1, "queue_depth": 1}, "qd and queue_depth mean the same"),
        ({"ios": 0}, "ios=0 is not possible: use at least 1"),
        ({"bs": [(512, 70), 4096]}, "give every size a weight"),
        ({"size": "4kb"}, "size='4kb' is not possible: 4000 is not a multiple"),
        ({"size": -1}, "size=-1 is not possible: use at least 0"),
        ({"move_data": False, "verify": 5}, "verify=5 needs data, but move_data moves none"),
        ({"faults": ["nothing"]}, r"faults=\['nothing'\]: "),
        ({"ioengine": "libaio"}, "ioengine is fio's"),
        ({"read_share": 0.5}, r"read_share=0.5 is for mixed loads; add rw='randrw' or rw='rw'"),
    ],
)
def test_python_names_what_was_written_there(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare("unlimited", options)


def test_a_host_proves_itself_first() -> None:
    with pytest.raises(ConfigError, match="controller_key needs host_key"):
        prepare(DOOR, {"controller_key": "DHHC-1:00:x:"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host_key": "DHHC-1:00:x:", "tls_key": "NVMeTLSkey-1:01:x:"}, "so it cannot go with tls_key; leave one out"),
        ({}, "secure_channel needs host_key"),
    ],
)
def test_a_secure_channel_makes_its_own_key_from_a_proof(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare(DOOR, {"secure_channel": True, **options})


def test_unknown_hosts_are_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("nvme-tcp:nohost.invalid:4420/nqn.x", capsys)
    assert said.startswith("nvme-tcp nohost.invalid:4420: the address cannot be found")


def test_requests_are_blocks_of_the_namespace_unless_told_otherwise() -> None:
    assert prepare("unlimited", {})[1].block_sizes == ((512, 1.0),)
    assert prepare("zn540", {"clock": "virtual"})[1].block_sizes == ((4096, 1.0),)
    with pytest.raises(ConfigError, match="multiples of the namespace's LBA size, 4096"):
        prepare("zn540", {"clock": "virtual", "bs": 512})


def test_shares_may_be_percentages_and_name_what_they_need() -> None:
    def changed(**keys: object) -> object:
        return prepare("ps1010-nand", {"clock": "virtual"}, {f"timing.nand.{key}": v for key, v in keys.items()})[0]

    assert changed(over_provisioning="28%").timing.nand.over_provisioning == pytest.approx(0.28)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"use a share such as 0\.28 or 28%"):
        changed(over_provisioning="lots")
    with pytest.raises(ConfigError, match=r"slc_dynamic.*needs timing.nand.slc_read_ns"):
        changed(slc_dynamic=0.3)


def test_numbers_of_ns_are_for_names_that_say_so() -> None:
    assert prepare("unlimited", {"runtime_ns": 5})[1].runtime_ns == 5
    assert prepare("unlimited", {"runtime": "5 s"})[1].runtime_ns == 5_000_000_000
    assert prepare("unlimited", {"ramp": 0})[1].ramp_ns == 0


def test_fio_names_mean_the_same() -> None:
    ours = {"qd": 32, "queues": 2, "bs": "4k", "rw": "randrw", "read_share": 0.7, "cores": "0"}
    fio = {"iodepth": "32", "numjobs": 2, "blocksize": "4kb", "readwrite": "randrw", "rwmixread": "70"}
    fio["cpus_allowed"] = "0"
    assert prepare("unlimited", fio) == prepare("unlimited", ours)
    assert prepare("unlimited", fio | {"rwmixread": None, "rwmixwrite": 30}) == prepare("unlimited", ours)
    assert "time_based" in FIO_ONLY


def test_units_of_everyday_are_understood() -> None:
    options = prepare("unlimited", {"rate": "5M", "ios": "5M", "bs": "4KiB", "size": "64MiB"})[1]
    assert (options.rate_iops, options.ios, options.block_sizes) == (5e6, 5_000_000, ((4096, 1.0),))
    assert prepare("unlimited", {"rate": "2.47 MIOPS"})[1].rate_iops == 2.47e6
    assert prepare("unlimited", {"bs": "4kb"})[1].block_sizes == ((4096, 1.0),)
    assert prepare("nvme-tcp:localhost:4420/nqn.x", {})[1].target == DOOR


def test_the_containers_limit_counts(tmp_path: Path) -> None:
    free = core_module().free_memory_bytes

    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")

    write("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:    3000 kB\n")
    write("proc/self/cgroup", "0::/outer/inner\n")
    assert free(str(tmp_path)) == 3000 * 1024
    write("sys/fs/cgroup/outer/memory.max", "1000000\n")
    write("sys/fs/cgroup/outer/memory.current", "600000\n")
    write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 100000\n")
    write("sys/fs/cgroup/outer/inner/memory.max", "max\n")
    assert free(str(tmp_path)) == 500_000
    # The group's folder is mounted at the root, as in most containers; and version 1 of the interface.
    write("sys/fs/cgroup/memory.max", "70000\n")
    write("sys/fs/cgroup/memory.current", "0\n")
    assert free(str(tmp_path)) == 70_000
    write("proc/self/cgroup", "5:cpu,memory:/docker/abc\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "90000\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "20000\n")
    assert free(str(tmp_path)) == 70_000


@pytest.mark.skipif(Path("/sys/bus/dsa/devices").exists(), reason="there may be a DSA here")
def test_the_cores_errors_name_what_was_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("unlimited --size 1M --copy-engine dsa", capsys)
    assert said.startswith("--copy-engine dsa needs an Intel DSA")
    said = refused("unlimited --size 1M --set engine.copy=dsa", capsys)
    assert said.startswith('engine.copy = "dsa" needs an Intel DSA')
    with pytest.raises(ConfigError, match=r"^copy_engine='dsa' needs"):
        bench("unlimited", size="1M", copy_engine="dsa")
    trace = tmp_path / "--trace"
    trace.write_text("what is this\n", encoding="utf-8")
    assert "name its format with --trace-format" in refused(["unlimited", "--trace", str(trace)], capsys)
    with pytest.raises(ConfigError, match="name its format with trace_format to learn more") as raised:
        bench("unlimited", trace=str(trace))
    assert str(trace) in str(raised.value)


def test_a_key_that_is_none_is_shown_how_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("unlimited --set foo=1", capsys)
    assert said.startswith("--set 'foo' is not a known key; write TABLE.KEY=VALUE, such as timing.read_iops=5e6")
    assert 'did you mean "timing.read_iops"' in refused("unlimited --set read_iops=1", capsys)


def test_a_delay_needs_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(["unlimited", "--fault", "delay delay=5"], capsys)
    assert (
        said == "--fault 'delay delay=5': delay=5 is not possible: use a time such as 200us, 5ms or 2s, up to an hour"
    )


def test_python_values_of_the_wrong_kind_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^set=\['timing.read_iops=1'\] is not possible: write a dict"):
        prepare("unlimited", {}, ["timing.read_iops=1"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^profile 5 is not possible: give a profile's name such as"):
        bench(5, ios=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^set=.* is not possible: write a dict"):
        Ssd("unlimited", set=["timing.read_iops=1"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^faults='error on=read' is not possible: write a list of rules, \['error"):
        prepare("unlimited", {"faults": "error on=read"})
    core = min(os.sched_getaffinity(0))
    assert prepare("unlimited", {"cores": core})[1].cores == [core]
