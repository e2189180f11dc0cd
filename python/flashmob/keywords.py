"""The keyword options of bench() and Ssd(), for editors and type checkers.

A size is a number of bytes or text such as "8G"; a time is text such as "5s", or a number of ns where the name ends in
_ns; a rate is requests per second, or text such as "2.47M".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

SizeLike: TypeAlias = int | str
TimeLike: TypeAlias = int | float | str
RateLike: TypeAlias = int | float | str
CountLike: TypeAlias = int | float | str
BlockSizes: TypeAlias = SizeLike | Sequence[SizeLike | tuple[SizeLike, float]]


class SsdKeywords(TypedDict, total=False):
    """What Ssd() takes beside the profile."""

    size: SizeLike | None
    """Size of the first namespace. Memory is taken only for what is written."""
    media: str | None
    """Where the first namespace's blocks lie: memory, generated, file:PATH, direct:PATH or cow:PATH."""
    seed: int | None
    """Names generated content, and steers faults drawn by chance."""
    faults: Sequence[str] | None
    """What the SSD is to do wrong, one rule each, instead of the profile's rules (docs/guide/faults.md)."""
    set: Mapping[str, Any] | None
    """Other changes of the profile: dotted key -> value."""
    timeout_s: float
    """How long a wait lasts before TimeoutError, in seconds; math.inf waits forever."""


class FioKeywords(TypedDict, total=False):
    """fio's names for options of bench(), which are understood too."""

    iodepth: CountLike | None
    """As qd."""
    numjobs: CountLike | None
    """As queues."""
    blocksize: BlockSizes | None
    """As bs."""
    readwrite: Literal["read", "write", "randread", "randwrite", "rw", "randrw"] | None
    """As rw."""
    rwmixread: RateLike | None
    """As read_share, in percent."""
    rwmixwrite: RateLike | None
    """The rest of read_share, in percent."""
    ramp_time: str | None
    """As ramp."""
    thinktime: str | None
    """As think."""
    number_ios: CountLike | None
    """As ios."""
    random_distribution: str | None
    """As distribution."""
    randseed: CountLike | None
    """As seed."""
    cpus_allowed: str | int | Sequence[int] | None
    """As cores."""
    read_iolog: str | None
    """As trace."""


class BenchKeywords(FioKeywords, total=False):
    """What bench() takes beside the profile, `set` and progress: the command line's options with underscores.

    None counts as not given. The long names (queue_depth for qd, ...) are those of the result's `options`.
    """

    rw: Literal["read", "write", "randread", "randwrite", "rw", "randrw"] | None
    """Which commands; rw and randrw mix reads and writes."""
    read_share: RateLike | None
    """Reads in rw and randrw, 0 to 1."""
    bs: BlockSizes | None
    """Block size, or a mix: "512:70,4k:30" or [("512", 70), ("4k", 30)]."""
    block_sizes: BlockSizes | None
    """As bs."""
    distribution: str | None
    """Which blocks: uniform, zipf:THETA or hotcold:SHARE_OF_IO:SHARE_OF_SPACE."""
    qd: CountLike | None
    """Commands in flight per queue."""
    queue_depth: CountLike | None
    """As qd."""
    queues: CountLike | None
    """I/O queue pairs."""
    queue_entries: CountLike | None
    """Slots of each ring; 0: the depth and one."""
    requesters: CountLike | None
    """Closed-loop requesters over all queues."""
    think: str | None
    """Closed loop: pause of a requester between two requests, such as "10us"."""
    think_time_ns: TimeLike | None
    """As think; a number counts ns."""
    rate: RateLike | None
    """Open loop: arrivals per second."""
    rate_iops: RateLike | None
    """As rate."""
    arrivals: Literal["fixed", "poisson"] | None
    """Open loop: how arrivals are spread."""
    threads: CountLike | None
    """Driver threads."""
    cores: str | int | Sequence[int] | None
    """Cores to pin driver threads to: "0,2-3" or [0, 2, 3]."""
    runtime: str | None
    """Measured time, such as "5s"."""
    runtime_ns: TimeLike | None
    """As runtime; a number counts ns."""
    ramp: str | None
    """Time before measuring, such as "1s"."""
    ramp_ns: TimeLike | None
    """As ramp; a number counts ns."""
    ios: CountLike | None
    """Stop after so many requests."""
    verify: RateLike | None
    """Percent of the reads whose content is checked."""
    verify_percent: RateLike | None
    """As verify."""
    fill: bool | None
    """Whether the store is written full first; False is --no-fill."""
    precondition: Literal["none", "steady"] | None
    """steady: a drive of model nand is as if it had been overwritten at random for long."""
    trace: str | None
    """Replay this trace file instead."""
    trace_path: str | None
    """As trace."""
    trace_format: Literal["auto", "fio", "msr", "alibaba", "tencent"] | None
    """How the trace is written."""
    trace_disk: str | None
    """Replay only this disk or volume of the trace."""
    as_fast: bool | None
    """Ignore the trace's timing."""
    trace_as_fast: bool | None
    """As as_fast."""
    clock: Literal["real", "virtual"] | None
    """Wall time, or simulated time: exact, and the same for the same seed."""
    virtual_poll_ns: TimeLike | None
    """Virtual clock: how often idle threads look."""
    size: SizeLike | None
    """Size of the first namespace."""
    media: str | None
    """Where its blocks lie: memory, generated, file:PATH, direct:PATH or cow:PATH."""
    units: CountLike | None
    """Service units of the engine."""
    workers: CountLike | None
    """Workers per unit; 0: the dispatcher does both."""
    copy_engine: Literal["auto", "memcpy", "avx2", "avx512", "nontemporal", "dsa"] | None
    """What moves the data."""
    engine: Literal["host", "gpu"] | None
    """Who serves the queues: threads of the host, or a kernel on the GPU."""
    sms: CountLike | None
    """GPU engine: multiprocessors that it takes."""
    move_data: bool | None
    """False is --no-data: the frontend only."""
    seed: CountLike | None
    """Equal seeds, equal virtual runs."""
    faults: Sequence[str] | None
    """What the SSD is to do wrong, one rule each (docs/guide/faults.md)."""
    host_nqn: str | None
    """Target by NVMe/TCP: who we are to it."""
    host_key: str | None
    """Target by NVMe/TCP: our secret (DHHC-1), to prove it."""
    controller_key: str | None
    """Target by NVMe/TCP: its secret, to have it prove itself."""
    tls_key: str | None
    """Target by NVMe/TCP: use TLS, with this key (NVMeTLSkey-1)."""
    header_digest: bool | None
    """Target by NVMe/TCP: CRC32C over headers."""
    data_digest: bool | None
    """Target by NVMe/TCP: CRC32C over data."""
    command: str | None
    """What the result says it was made by."""
