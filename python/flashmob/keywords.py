"""The keyword options of bench() and Ssd(), for editors and type checkers.

A size is a number of bytes or text such as "8G"; a time is text such as "5s", or a number of ns where the name ends in
_ns; a rate is requests per second, or text such as "2.47M".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

SizeLike: TypeAlias = int | str
TimeLike: TypeAlias = int | float | str
RateLike: TypeAlias = int | float | str
CountLike: TypeAlias = int | float | str
BlockSizes: TypeAlias = SizeLike | Sequence[SizeLike | tuple[SizeLike, float]]
Direction: TypeAlias = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]

# Where options stand in the command line's --help.
LOAD, AMOUNT, DEVICE = "Load", "How much, how long", "Device"
CHECKS, NETWORK = "Checks", "Over the network"
OF_PROFILE = "the profile's"


@dataclass(frozen=True, slots=True)
class Shown:
    """How the command line shows a keyword: panel and text of --help, what its value is called, and its default.

    One without a value is a flag; one that begins with --no- says False.
    """

    panel: str
    metavar: str | None
    text: str
    default: str = ""
    flag: str = ""


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
    readwrite: Direction | None
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

    rw: Annotated[Direction | None, Shown(LOAD, "KIND", "read, write, randread, randwrite, rw or randrw.", "randread")]
    """Which commands; rw and randrw mix reads and writes."""
    bs: Annotated[BlockSizes | None, Shown(LOAD, "BYTES", "512, 4k, or a mix such as 512:70,4k:30.", "512")]
    """Block size, or a mix: "512:70,4k:30" or [("512", 70), ("4k", 30)]."""
    block_sizes: BlockSizes | None
    """As bs."""
    read_share: Annotated[RateLike | None, Shown(LOAD, "SHARE", "Reads in rw and randrw, 0 to 1.", "0.5")]
    """Reads in rw and randrw, 0 to 1."""
    distribution: Annotated[str | None, Shown(LOAD, "KIND", "uniform, zipf:0.99 or hotcold:0.9:0.1.", "uniform")]
    """Which blocks: uniform, zipf:THETA or hotcold:SHARE_OF_IO:SHARE_OF_SPACE."""
    trace: Annotated[str | None, Shown(LOAD, "FILE", "Replay a trace instead.")]
    """Replay this trace file instead."""
    trace_path: str | None
    """As trace."""
    trace_format: Annotated[
        Literal["auto", "fio", "msr", "alibaba", "tencent"] | None,
        Shown(LOAD, "KIND", "auto, fio, msr, alibaba or tencent.", "auto"),
    ]
    """How the trace is written."""
    trace_disk: Annotated[
        str | None, Shown(LOAD, "NAME", "Replay only this disk or volume of the trace.", "all of them")
    ]
    """Replay only this disk or volume of the trace."""
    as_fast: Annotated[bool | None, Shown(LOAD, None, "Ignore the trace's timing.", flag="--as-fast")]
    """Ignore the trace's timing."""
    trace_as_fast: bool | None
    """As as_fast."""
    qd: Annotated[CountLike | None, Shown(AMOUNT, "N", "Commands in flight per queue.", "128")]
    """Commands in flight per queue."""
    queue_depth: CountLike | None
    """As qd."""
    queues: Annotated[CountLike | None, Shown(AMOUNT, "N", "I/O queue pairs.", "4")]
    """I/O queue pairs."""
    queue_entries: Annotated[CountLike | None, Shown(AMOUNT, "N", "Slots of each ring.", "the depth and one")]
    """Slots of each ring; 0: the depth and one."""
    requesters: Annotated[
        CountLike | None, Shown(AMOUNT, "N", "Closed-loop requesters over all queues.", "one per slot")
    ]
    """Closed-loop requesters over all queues."""
    think: Annotated[str | None, Shown(AMOUNT, "TIME", "Closed loop: pause of a requester, 10us.", "none")]
    """Closed loop: pause of a requester between two requests, such as "10us"."""
    think_time_ns: TimeLike | None
    """As think; a number counts ns."""
    rate: Annotated[
        RateLike | None, Shown(AMOUNT, "RATE", "Open loop: arrivals per second, such as 2M.", "a closed loop")
    ]
    """Open loop: arrivals per second."""
    rate_iops: RateLike | None
    """As rate."""
    arrivals: Annotated[
        Literal["fixed", "poisson"] | None, Shown(AMOUNT, "KIND", "Open loop: fixed or poisson.", "poisson")
    ]
    """Open loop: how arrivals are spread."""
    threads: Annotated[CountLike | None, Shown(AMOUNT, "N", "Driver threads.", "1")]
    """Driver threads."""
    completion: Annotated[
        Literal["poll", "interrupt", "hybrid"] | None,
        Shown(AMOUNT, "KIND", "How driver threads wait: poll, interrupt or hybrid.", "poll"),
    ]
    """How driver threads wait for completions, in real time."""
    cores: Annotated[
        str | int | Sequence[int] | None, Shown(AMOUNT, "LIST", "Pin driver threads: 0,2-3.", "not pinned")
    ]
    """Cores to pin driver threads to: "0,2-3" or [0, 2, 3]."""
    runtime: Annotated[str | None, Shown(AMOUNT, "TIME", "Measured time, such as 10s.", "5s; a trace to its end")]
    """Measured time, such as "5s"."""
    runtime_ns: TimeLike | None
    """As runtime; a number counts ns."""
    ramp: Annotated[
        str | None, Shown(AMOUNT, "TIME", "Time before measuring.", "1s; in virtual time two rounds of all requests")
    ]
    """Time before measuring, such as "1s"."""
    ramp_ns: TimeLike | None
    """As ramp; a number counts ns."""
    ios: Annotated[
        CountLike | None,
        Shown(AMOUNT, "N", "Stop after so many requests.", "as many as the time holds; in virtual time 5M"),
    ]
    """Stop after so many requests."""
    units: Annotated[CountLike | None, Shown(DEVICE, "N", "Service units of the engine.", OF_PROFILE)]
    """Service units of the engine."""
    workers: Annotated[
        CountLike | None, Shown(DEVICE, "N", "Workers per unit; 0: the dispatcher does both.", OF_PROFILE)
    ]
    """Workers per unit; 0: the dispatcher does both."""
    copy_engine: Annotated[
        Literal["auto", "memcpy", "avx2", "avx512", "nontemporal", "dsa"] | None,
        Shown(DEVICE, "KIND", "auto, memcpy, avx2, avx512, nontemporal or dsa.", OF_PROFILE),
    ]
    """What moves the data."""
    engine: Annotated[
        Literal["host", "gpu"] | None,
        Shown(DEVICE, "KIND", "host, or gpu: a kernel on the GPU serves queues.", OF_PROFILE),
    ]
    """Who serves the queues: threads of the host, or a kernel on the GPU."""
    sms: Annotated[CountLike | None, Shown(DEVICE, "N", "GPU engine: multiprocessors that it takes.", OF_PROFILE)]
    """GPU engine: multiprocessors that it takes."""
    move_data: Annotated[bool | None, Shown(DEVICE, None, "Frontend only: move no data.", flag="--no-data")]
    """False is --no-data: the frontend only."""
    clock: Annotated[Literal["real", "virtual"] | None, Shown(DEVICE, "KIND", "real or virtual.", "real")]
    """Wall time, or simulated time: exact, and the same for the same seed."""
    virtual_poll_ns: TimeLike | None
    """Virtual clock: how often idle threads look."""
    size: SizeLike | None
    """Size of the first namespace."""
    media: str | None
    """Where its blocks lie: memory, generated, file:PATH, direct:PATH or cow:PATH."""
    seed: Annotated[CountLike | None, Shown(DEVICE, "N", "Equal seeds, equal virtual runs.", OF_PROFILE)]
    """Equal seeds, equal virtual runs."""
    faults: Sequence[str] | None
    """What the SSD is to do wrong, one rule each (docs/guide/faults.md)."""
    verify: Annotated[RateLike | None, Shown(CHECKS, "PERCENT", "Reads whose content is checked.", "1")]
    """Percent of the reads whose content is checked."""
    verify_percent: RateLike | None
    """As verify."""
    fill: Annotated[bool | None, Shown(CHECKS, None, "Do not write the store full first.", flag="--no-fill")]
    """Whether the store is written full first; False is --no-fill."""
    allow_writes: Annotated[
        bool | None, Shown(CHECKS, None, "A drive of this machine (pci:) may lose its data.", flag="--allow-writes")
    ]
    """Target pci:ADDRESS: what is on the drive may be lost; without it, it is only read."""
    precondition: Annotated[
        Literal["none", "steady"] | None, Shown(CHECKS, "KIND", "Model nand: none, or steady at once.", "none")
    ]
    """steady: a drive of model nand is as if it had been overwritten at random for long."""
    placement: Annotated[
        Literal["none", "apart"] | None, Shown(LOAD, "KIND", "Placement handles: none, or apart.", "none")
    ]
    """apart: writes have placement handles, the hot and the cold part of a load, else each queue's, its own."""
    host_nqn: Annotated[str | None, Shown(NETWORK, "NQN", "Who we are to the target.")]
    """Target by NVMe/TCP: who we are to it."""
    host_key: Annotated[str | None, Shown(NETWORK, "FILE", "Our secret (DHHC-1), to prove it.")]
    """Target by NVMe/TCP: our secret (DHHC-1), to prove it."""
    controller_key: Annotated[str | None, Shown(NETWORK, "FILE", "The target's, to have it prove itself.")]
    """Target by NVMe/TCP: its secret, to have it prove itself."""
    tls_key: Annotated[str | None, Shown(NETWORK, "FILE", "Use TLS, with this key (NVMeTLSkey-1).")]
    """Target by NVMe/TCP: use TLS, with this key (NVMeTLSkey-1)."""
    secure_channel: Annotated[
        bool | None, Shown(NETWORK, None, "Use TLS, with a key that --host-key's proof makes.", flag="--secure-channel")
    ]
    """Target by NVMe/TCP: use TLS, with a key that the proof by host_key makes."""
    header_digest: Annotated[bool | None, Shown(NETWORK, None, "CRC32C over headers.", flag="--header-digest")]
    """Target by NVMe/TCP: CRC32C over headers."""
    data_digest: Annotated[bool | None, Shown(NETWORK, None, "CRC32C over data.", flag="--data-digest")]
    """Target by NVMe/TCP: CRC32C over data."""
    command: str | None
    """What the result says it was made by."""
