"""What a container allows, in both versions of control groups, and what the doctor makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flashmob import doctor
from flashmob.device import core_module


def limits(root: Path) -> tuple[float | None, int | None]:
    return core_module().container_limits(str(root))


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
    assert limits(root) == (1.5, 2 << 30)


def test_version_2_inside_of_a_container(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../docker/1234",
            "sys/fs/cgroup/cpu.max": "200000 100000",
            "sys/fs/cgroup/memory.max": str(512 << 20),
        },
    )
    assert limits(root) == (2.0, 512 << 20)


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
    assert limits(root) == (0.5, 1 << 30)


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
    assert limits(root) == (None, None)
    assert limits(tmp_path / "nowhere") == (None, None)


def test_what_the_doctor_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: set(range(8)))
    free = doctor._cores(None)
    assert (free.state, free.fix) == ("yes", "")
    tight = doctor._cores(1.5)
    assert tight.state == "no"
    assert tight.found.startswith("8 usable, but a quota of 1.5 cores' time (cgroup)")
    assert "--cpus" in tight.fix
    monkeypatch.setattr(doctor, "free_memory_bytes", lambda: 3 << 30)
    memory = doctor._memory(4 << 30)
    assert memory.found == "3 GiB available below the container's limit of 4 GiB (cgroup)"
    assert "--size 1G" in memory.buys
    assert "--media" in memory.fix
    monkeypatch.setattr(doctor, "free_memory_bytes", lambda: 100 << 20)
    assert "--size 32M" in doctor._memory(None).buys


def test_the_doctor_advises_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def advice(cores: set[int], free_bytes: int) -> tuple[str, str]:
        monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: cores)
        monkeypatch.setattr(doctor, "free_memory_bytes", lambda: free_bytes)
        return doctor._isolation().fix, doctor._reserved_huge_pages().fix

    monkeypatch.setattr(doctor, "_read", lambda _: "")
    monkeypatch.setattr(doctor, "_CONTAINER_MARKS", ())
    monkeypatch.setattr(doctor, "_limits", lambda: (None, 4 << 30))
    isolation, pages = advice({4, 5, 8, 9}, 3 << 30)
    assert "isolcpus=8,9 nohz_full=8,9" in isolation
    assert "`--set engine.cores=8` and `--cores 9`" in isolation
    # 576 pages are 1 GiB and an eighth of it, which is what 3 GiB have room for.
    assert "vm.nr_hugepages=576`" in pages
    assert "a store of 1 GiB" in pages
    assert "as root, on the machine that runs this container" in pages
    monkeypatch.setattr(doctor, "_limits", lambda: (None, None))
    isolation, pages = advice({0, 1}, 64 << 30)
    assert "isolcpus" not in isolation
    assert "vm.nr_hugepages=4608` (as root) for a store of 8 GiB" in pages


@pytest.mark.parametrize("width", [0, 60, 80, 200])
def test_the_doctors_lines_fit(width: int) -> None:
    long = doctor.Finding(
        "cores",
        "partly",
        "256 usable, but a quota of 1.5 cores' time (cgroup), A Processor With a Very Long Name @ 2.00GHz",
        "a sentence that explains what this is good for, and that is longer than a narrow terminal",
        "boot with `isolcpus=252,253 nohz_full=252,253`, then `--set engine.cores=252` and `--cores 253` for the run",
    )
    for finding in (long, *doctor.examine()):
        lines = [line.plain for line in doctor.shown(finding, width)]
        text = " ".join(" ".join(lines).split())
        for said in (finding.found, finding.buys, finding.fix):
            assert said in text
        assert not width or all(len(line) <= width or "`" in line for line in lines)
        # What is to be typed is never broken, so that it can be copied.
        for typed in finding.fix.split("`")[1::2]:
            assert any(f"`{typed}`" in line for line in lines)
        if not width:
            assert len(lines) == 3 + bool(finding.fix)  # A blank line ends it.
