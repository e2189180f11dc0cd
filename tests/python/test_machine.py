"""What a container allows, in both versions of control groups, and what the doctor makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flashmob import doctor
from flashmob.machine import Limits, limits


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")
    return root


def test_version_2(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/app.scope",
            "sys/fs/cgroup/user.slice/app.scope/cpu.max": "max 100000",
            "sys/fs/cgroup/user.slice/app.scope/memory.max": "max",
            # A group above may be tighter than one's own.
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
            "sys/fs/cgroup/user.slice/memory.max": str(2 << 30),
        },
    )
    assert limits(root) == Limits(cores=1.5, memory_bytes=2 << 30)


def test_version_2_inside_of_a_container(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../docker/1234",
            "sys/fs/cgroup/cpu.max": "200000 100000",
            "sys/fs/cgroup/memory.max": str(512 << 20),
        },
    )
    assert limits(root) == Limits(cores=2.0, memory_bytes=512 << 20)


def test_version_1(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/1234\n2:cpu,cpuacct:/docker/1234\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(1 << 30),
        },
    )
    assert limits(root) == Limits(cores=0.5, memory_bytes=1 << 30)


def test_no_limit(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n1:cpu:/\n0::/\nnonsense",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert limits(root) == Limits()
    assert limits(tmp_path / "nowhere") == Limits()


def test_what_the_doctor_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: set(range(8)))
    free = doctor._cores(Limits())
    assert (free.state, free.fix) == ("yes", "")
    tight = doctor._cores(Limits(cores=1.5))
    assert tight.state == "no"
    assert tight.found.startswith("8 usable, but a quota of 1.5 cores' time (cgroup)")
    assert "--cpus" in tight.fix
    monkeypatch.setattr(doctor, "free_memory_bytes", lambda: 3 << 30)
    memory = doctor._memory(Limits(memory_bytes=4 << 30))
    assert memory.found == "3 GiB available below the container's limit of 4 GiB (cgroup)"
    assert "--size 1G" in memory.buys
    assert "--media" in memory.fix
    monkeypatch.setattr(doctor, "free_memory_bytes", lambda: 100 << 20)
    assert "--size 32M" in doctor._memory(Limits()).buys


@pytest.mark.parametrize("width", [0, 40, 60, 80, 200])
def test_what_is_to_be_typed_is_never_wrapped(width: int) -> None:
    for finding in doctor.examine():
        lines = [line.plain for line in doctor.shown(finding, width)]
        assert lines[0].endswith(finding.found)
        if finding.fix:
            assert lines[-2] == f"  how    {finding.fix}"
        if width >= 40:
            explained = lines[1 : -2 if finding.fix else -1]
            assert all(len(line) <= width for line in explained)
            assert " ".join(line[9:].strip() for line in explained) == finding.buys
