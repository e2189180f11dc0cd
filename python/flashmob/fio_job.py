"""Job files of fio (fio(1), "Job file format") as benchmarks: what a job asks for, in options of bench().

What fio does with threads, files and the operating system has no meaning where requests go to an SSD's queues: such
options are listed, not refused, so that a job file need not be edited. What would change the load is refused.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean
from flashmob.units import parse_cores, parse_duration_ns, parse_number, parse_percent, parse_rate, parse_size

SUFFIXES = (".fio", ".job", ".jobs")
# Characters of a value that a message repeats.
_SHOWN = 60
_SECTION = re.compile(r"\[([^\]]+)\]\s*(?:[;#].*)?")
_VARIABLE = re.compile(r"\$\{(\w+)\}", re.ASCII)
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")

# Other names that fio has for its own options.
_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "io_limit": "io_size",
    "wait_for_previous": "stonewall",
    "allrandrepeat": "randrepeat",
}
# How fio has the operating system asked, how it writes its report, and what is so here anyway.
_UNUSED_NAMES = """
    allow_mounted_write atomic buffer_compress_percentage buffer_pattern buffered clat_percentiles clocksource
    create_fsync create_on_open create_serialize dedupe_percentage description direct disable_bw
    disable_bw_measurement disable_clat disable_lat disable_slat disk_util do_verify eta exitall fadvise_hint
    fallocate file_append file_service_type fixedbufs force_async group_reporting gtod_cpu gtod_reduce hipri
    hipri_percentage hugepage-size invalidate ioengine iodepth_batch iodepth_batch_complete
    iodepth_batch_complete_max iodepth_batch_complete_min iodepth_batch_submit iodepth_low iomem ioscheduler
    lat_percentiles lockmem mem name new_group nice nonvectored norandommap numa_cpu_nodes numa_mem_policy openfiles
    overwrite percentile_list pre_read prio prioclass random_generator randrepeat refill_buffers registerfiles
    scramble_buffers slat_percentiles softrandommap sqthread_poll sqthread_poll_cpu thread uncached
    unified_rw_reporting unlink userspace_reap verify_async verify_backlog verify_dump verify_fatal verify_pattern
    verify_state_load verify_state_save zero_buffers
"""
_UNUSED = frozenset(_UNUSED_NAMES.split())
# What would make the load another, and why it cannot be had.
_REFUSED = {
    "fsync": "the load has no Flush commands of its own",
    "fdatasync": "the load has no Flush commands of its own",
    "sync": "the load's writes ask for nothing but themselves",
    "directory": "the load goes to an SSD's namespace, not to files",
    "filesize": "the load goes to an SSD's namespace, not to files; use size",
    "nrfiles": "the load goes to one namespace",
    "zonemode": "loads of zones are not there",
    "zonesize": "loads of zones are not there",
    "startdelay": "a job begins when the one before it has ended",
    "include": "a job file is one file",
    "latency_target": "no rate is looked for; run several",
    "rate_min": "a run is not given up for its rate",
    "bsrange": "sizes are drawn from a list; use bssplit",
    "bs_unaligned": "requests are whole blocks of 512 bytes",
    "percentage_random": "a load is random or sequential",
    "thinktime_blocks": "a requester pauses after each request",
    "thinktime_spin": "a requester that pauses takes no processor time",
    "cpus_allowed_policy": "driver threads share the cores that cpus_allowed names",
    "flow": "jobs are run one after another",
    "offset_increment": "all jobs of a section have the whole namespace",
    "replay_redirect": "a trace goes to the SSD",
}
_TAKEN = """
    bs bssplit cpus_allowed filename iodepth io_size loops number_ios numjobs offset ramp_time randseed
    random_distribution rate rate_iops rate_process read_iolog replay_no_stall runtime rw rwmixread rwmixwrite size
    stonewall thinktime time_based verify
"""
# Engines of fio's that know no depth.
_SYNCHRONOUS = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "libpmem", "dev-dax")
_LOADS = ("read", "write", "randread", "randwrite", "rw", "readwrite", "randrw")
# What a trace says instead of the job: what is asked, when, and how much.
_BY_TRACE_NAMES = """
    rw rwmixread rwmixwrite bs bssplit offset random_distribution rate rate_iops rate_process thinktime size io_size
    time_based ramp_time
"""
_BY_TRACE = tuple(_BY_TRACE_NAMES.split())
# With a trace that the command line names, what the job says of its own trace or of where its load ends goes, too.
_BY_OTHER_TRACE = (*_BY_TRACE, "number_ios", "loops", "runtime", "read_iolog", "replay_no_stall")
# Options of bench(), and the job's that each comes from: the first of them that is there.
_FROM = {
    "distribution": ("random_distribution",),
    "bs": ("bssplit", "bs"),
    "rate_iops": ("rate_iops", "rate"),
    "arrivals": ("rate_process",),
    "think_time_ns": ("thinktime",),
    "runtime_ns": ("runtime",),
    "ramp_ns": ("ramp_time",),
    "ios": ("number_ios", "io_size", "size"),
    "trace_format": ("read_iolog",),
    "as_fast": ("replay_no_stall",),
    "threads": ("cpus_allowed",),
}


@dataclass(frozen=True, slots=True)
class FioJob:
    """One job: its SSD, where it names one, its options by bench()'s names, and those that mean nothing here.

    Attributes:
        unused: options about the operating system or fio's own report.
        by_trace: options beside a trace, which says itself what they say.
        typed: all options of the file: name -> the name as it stands there, value.
        depth_note: what there is to say of its depth.
    """

    name: str
    filename: str
    options: dict[str, Any]
    unused: tuple[str, ...] = ()
    by_trace: tuple[str, ...] = ()
    typed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    depth_note: str = ""

    def written(self) -> dict[str, tuple[str, str]]:
        """How the file has each of the options: its name there, and that with its value."""
        found = {}
        for option, value in self.options.items():
            keys = _FROM.get(option, (option,))
            key = next((key for key in keys if key in self.typed), None)
            if key is None:
                found[option] = (keys[-1], f"{keys[-1]}={value} (fio's default)")
            else:
                name, text = self.typed[key]
                found[option] = (name, f"{name}={text[:_SHOWN]}")
        return found

    def said_by_a_trace(self) -> tuple[str, ...]:
        """Those of its options that a trace which the command line names says itself."""
        return tuple(name for key, (name, _) in self.typed.items() if key in _BY_OTHER_TRACE)


@dataclass(slots=True)
class _Section:
    name: str
    # Name among _ALIASES' values -> name as it stands in the file, value.
    values: dict[str, tuple[str, str]] = field(default_factory=dict)


def is_job_file(name: object) -> bool:
    """Whether a benchmark's target is a job file, by its name."""
    return isinstance(name, str) and name.lower().endswith(SUFFIXES)


def read_jobs(path: str | os.PathLike[str], names: Sequence[str] = ()) -> list[FioJob]:
    """The jobs of a file, in their order: those of the names, or all where none is named.

    Raises:
        ConfigError: for a file that cannot be read, a name that is none of a job, a line that is no option, an option
            that cannot be had, and jobs that would run at the same time.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; name a job file of fio's") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is no text; name a job file of fio's") from None
    sections = list(_sections(path, text))
    if not sections:
        raise ConfigError(f"{path}: has no job; a line [NAME] begins one")
    there = [section.name for section in sections]
    for name in names:
        if name not in there:
            raise ConfigError(f"--section {name}: {path} has no such job{did_you_mean(name, there)}")
    sections = [section for section in sections if not names or section.name in names]
    jobs = []
    for place, section in enumerate(sections):
        reader = _Job(path, section)
        if not reader.flag("stonewall") and place != 0:
            raise ConfigError(
                f"{path}: jobs {sections[place - 1].name} and {section.name} would run at the same time, and only "
                f"jobs one after another can be run; add stonewall to {section.name}, or choose one with --section"
            )
        jobs.append(reader.job())
    return jobs


def _sections(path: Path, text: str) -> Iterator[_Section]:
    common: dict[str, tuple[str, str]] = {}
    now: _Section | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in ";#":
            continue
        begins = _SECTION.fullmatch(line)
        if begins:
            if now is not None and now.name != "global":
                yield now
            now = _Section(begins[1], {} if begins[1] == "global" else dict(common))
            continue
        if now is None:
            raise ConfigError(f"{path}, line {number}: an option before the first [NAME]; put [global] before it")
        key, equals, value = re.split("[;#]", line, maxsplit=1)[0].partition("=")
        key = key.strip().lower()
        if key.partition(" ")[0] == "include":
            raise ConfigError(f"{path}, line {number}: include: {_REFUSED['include']}")
        values = common if now.name == "global" else now.values
        name = _ALIASES.get(key, key)
        values.pop(name, None)  # The last one stands last.
        values[name] = (key, _expanded(path, number, value.strip()) if equals else "1")
    if now is not None and now.name != "global":
        yield now


def _expanded(path: Path, number: int, value: str) -> str:
    def of(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ConfigError(f"{path}, line {number}: there is no variable {found[1]} in the environment; set it")
        return os.environ[found[1]]

    return _VARIABLE.sub(of, value)


class _Job:
    """A section as it is read: each option that is looked at is taken."""

    def __init__(self, path: Path, section: _Section) -> None:
        self._path = path
        self._name = section.name
        self._values = {key: value for key, (_, value) in section.values.items()}
        self._typed: Mapping[str, str] = dict(self._values)
        self._section: Mapping[str, tuple[str, str]] = section.values

    def flag(self, key: str) -> bool:
        """Whether an option that is on or off is on."""
        value = self._values.pop(key, "0").lower()
        if value not in (*_TRUE, *_FALSE):
            self._wrong(key, "use 1 or 0")
        return value in _TRUE

    def job(self) -> FioJob:
        """The whole job."""
        for key, why in _REFUSED.items():
            if key in self._values:
                self._wrong(key, f"{why}; take it out")
        filename = self._values.pop("filename", "").replace("\\:", ":")
        if "read_iolog" in self._values:
            by_trace = tuple(self._section[key][0] for key in self._values if key in _BY_TRACE)
            options = self._trace() | self._depth() | self._rest(reads=True)
        else:
            by_trace = ()
            reads = self._typed.get("rw", "read") not in ("write", "randwrite")
            options = self._load() | self._depth()
            options |= self._pace(options["numjobs"]) | self._rest(reads=reads) | self._amount(options)
        unused = tuple(key for key in self._values if key in _UNUSED)
        for key in self._values:
            if key not in _UNUSED:
                self._wrong(
                    key, f"is no option of fio's that has a meaning here{did_you_mean(key, _known())}; take it out"
                )
        options = {key: value for key, value in options.items() if value is not None}
        return FioJob(self._name, filename, options, unused, by_trace, self._section, self._depth_note())

    def _load(self) -> dict[str, Any]:
        options: dict[str, Any] = {"rw": self._rw(), "distribution": self._distribution()}
        mixed = options["rw"] in ("rw", "randrw")
        # The last one counts where there are both.
        if shares := [key for key in self._values if key in ("rwmixread", "rwmixwrite")]:
            share = self._values[shares[-1]]
            options |= {shares[-1]: share} if mixed else {}
        for key in shares:
            del self._values[key]
        sizes = self._values.pop("bs", "4k"), self._values.pop("bssplit", None)
        options["bs"] = self._block_sizes(*sizes)
        if (offset := self._values.pop("offset", None)) is not None and self._bytes("offset", offset) != 0:
            self._wrong("offset", "the load covers the whole namespace; choose its size")
        return options

    def _rw(self) -> str:
        value = self._values.pop("rw", "read")
        if value not in _LOADS:
            self._wrong("rw", f"use one of {', '.join(_LOADS)}")
        return "rw" if value == "readwrite" else value

    def _distribution(self) -> str | None:
        value = self._values.pop("random_distribution", "random")
        kind, _, number = value.partition(":")
        if kind == "random":
            return None
        if kind != "zipf":
            self._wrong("random_distribution", "use random or zipf:THETA")
        return f"zipf:{number or '1.1'}"

    def _block_sizes(self, single: str, split: str | None) -> str | list[tuple[int, float]]:
        if split is None:
            if "," in single and len(set(single.split(","))) > 1:
                self._wrong("bs", "reads and writes have the same sizes; give one")
            return str(self._block_bytes("bs", single.partition(",")[0]))
        if "," in split:
            self._wrong("bssplit", "reads and writes have the same sizes; give one list")
        shares: list[tuple[int, float | None]] = []
        for part in split.split(":"):
            size, _, share = part.partition("/")
            number = parse_number(share) if share else None
            if share and (number is None or not 0 <= number <= 100):
                self._wrong("bssplit", "write SIZE/PERCENT:SIZE/PERCENT")
            shares.append((self._block_bytes("bssplit", size), number))
        without = sum(share is None for _, share in shares)
        given = sum(share for _, share in shares if share is not None)
        if given > 100:
            self._wrong("bssplit", "the shares are more than 100 %; make them less")
        taken = [(size, (100 - given) / without if share is None else share) for size, share in shares]
        # A size without a share is never asked for.
        if not (taken := [(size, share) for size, share in taken if share > 0]):
            self._wrong("bssplit", "no size has a share; give one of them more than 0 %")
        return taken

    def _block_bytes(self, key: str, value: str) -> int:
        bytes_ = self._bytes(key, value)
        if bytes_ < 1:
            self._wrong(key, "a request has at least one block; use a size above 0")
        return bytes_

    def _depth(self) -> dict[str, Any]:
        depth = self._values.pop("iodepth", "1")
        # A thread that waits for each of its requests has one of them under way.
        if self._typed.get("ioengine") in _SYNCHRONOUS:
            depth = "1"
        return {"numjobs": self._count("numjobs", "1"), "iodepth": depth}

    def _depth_note(self) -> str:
        """What there is to say where fio would ask with another depth than the job has."""
        depth, engine = self._typed.get("iodepth", "1"), self._typed.get("ioengine")
        if parse_number(depth) == 1:
            return ""
        if engine in _SYNCHRONOUS:
            return f"iodepth={depth[:_SHOWN]} is 1, as with fio: ioengine={engine} is synchronous"
        if engine is None:
            return f"iodepth={depth[:_SHOWN]} is taken; fio has 1 by its default ioengine, which is synchronous"
        return ""

    def _pace(self, jobs: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        process = self._values.pop("rate_process", "linear")
        if process not in ("linear", "poisson"):
            self._wrong("rate_process", "use linear or poisson")
        if (rate := self._rate_of_job()) is not None:
            options |= {"rate_iops": rate * jobs, "arrivals": "poisson" if process == "poisson" else "fixed"}
        if (think := self._values.pop("thinktime", None)) is not None:
            options["think_time_ns"] = self._time_ns("thinktime", think, unit_ns=1_000) or None
        return options

    def _rate_of_job(self) -> float | None:
        """Requests a second of each job: fio has them as such, or as bytes, for each direction; 0 is no limit."""
        iops, bandwidth = self._values.pop("rate_iops", None), self._values.pop("rate", None)
        if iops is not None and bandwidth is not None:
            self._wrong("rate", "and rate_iops are two rates; leave one of them out")
        key, text = ("rate_iops", iops) if iops is not None else ("rate", bandwidth)
        if text is None:
            return None
        # Of reads, writes and trims; one alone is of all, and an empty one is no limit.
        parts = text.split(",") if "," in text else [text, text]
        reads, writes = (self._one_rate(key, part.strip()) if part.strip() else 0.0 for part in parts[:2])
        rw = self._typed.get("rw", "read")
        if rw in ("write", "randwrite"):
            return writes or None
        if rw in ("read", "randread"):
            return reads or None
        if reads != writes or (reads and self._read_percent() != 50):
            self._wrong(
                key,
                "fio holds reads and writes to a rate each, and here they share one, by their shares; take it out, and "
                "give the rate of both with --rate",
            )
        return reads + writes or None

    def _one_rate(self, key: str, text: str) -> float:
        if key == "rate":
            return self._bytes(key, text) / self._mean_bytes()
        try:
            rate = parse_rate(text)
        except ValueError as error:
            self._wrong(key, str(error))
        if rate < 0:
            self._wrong(key, "use a rate above 0")
        return rate

    def _read_percent(self) -> float:
        """The share of reads in a mixed load; the last one counts where both are given."""
        shares = [key for key in self._typed if key in ("rwmixread", "rwmixwrite")]
        if not shares:
            return 50.0
        try:
            percent = parse_percent(self._typed[shares[-1]])
        except ValueError as error:
            self._wrong(shares[-1], str(error))
        return percent if shares[-1] == "rwmixread" else 100 - percent

    def _mean_bytes(self) -> float:
        sizes = self._block_sizes(self._typed.get("bs", "4k"), self._typed.get("bssplit"))
        if isinstance(sizes, str):
            return int(sizes)
        return sum(size * share for size, share in sizes) / sum(share for _, share in sizes)

    def _amount(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A job ends when it has moved `size` bytes or when its time is over, and with time_based by its time alone."""
        size, io_size = self._values.pop("size", None), self._values.pop("io_size", None)
        number_ios, loops = self._values.pop("number_ios", None), self._count("loops", "1")
        time_based = self.flag("time_based")
        amount: dict[str, Any] = {}
        if (runtime := self._values.pop("runtime", None)) is not None:
            amount["runtime_ns"] = self._time_ns("runtime", runtime) or None
        ramp_ns = self._time_ns("ramp_time", self._values.pop("ramp_time", "0"))
        if size is not None and size.endswith("%") and size != "100%":
            self._wrong("size", "use bytes, or 100 % of the SSD")
        # Without one, and with 0, a job has all there is.
        amount["size"] = None if size in (None, "100%") else self._bytes("size", str(size)) or None
        if time_based and amount.get("runtime_ns") is None:
            self._wrong("time_based", "there is no runtime; add one")
        if not time_based:
            moved = self._bytes("io_size", io_size or "0") or amount["size"]
            if number_ios is not None:
                amount["ios"] = self._number("number_ios", number_ios) * options["numjobs"]
            elif moved is not None:
                amount["ios"] = max(1, round(moved * loops * options["numjobs"] / self._mean_bytes()))
            elif amount.get("runtime_ns") is None:
                missing = "is not there" if size is None else "names no number of bytes"
                self._wrong("size", f"{missing}, and there is no runtime either; add one of them")
        if "ios" in amount and amount.get("runtime_ns") is not None:
            self._wrong("runtime", "and a size would end it, whichever comes first; add time_based, or take one out")
        if "ios" not in amount:
            amount["ramp_ns"] = ramp_ns
        elif ramp_ns:
            self._wrong("ramp_time", "a job that ends by its size has none; add time_based, or take it out")
        return amount

    def _trace(self) -> dict[str, Any]:
        for key in _BY_TRACE:
            self._values.pop(key, None)
        for key, why in (
            ("numjobs", "each of them would replay the whole trace, and here one SSD's queues share it; use 1"),
            ("loops", "a trace is replayed once; take it out"),
        ):
            if self._number(key, self._typed.get(key, "1")) > 1:
                self._wrong(key, why)
        self._values.pop("loops", None)
        runtime, number = self._values.pop("runtime", None), self._values.pop("number_ios", None)
        return {
            "read_iolog": self._values.pop("read_iolog").replace("\\:", ":"),
            "trace_format": "fio",
            "as_fast": self.flag("replay_no_stall") or None,
            "runtime_ns": None if runtime is None else self._time_ns("runtime", runtime) or None,
            "ios": None if number is None else self._number("number_ios", number),
        }

    def _rest(self, *, reads: bool) -> dict[str, Any]:
        verify = self._values.pop("verify", "0").lower()
        if verify not in ("0", "null") and not reads:
            self._wrong("verify", "what is read is checked, and this job reads nothing; add a job that does")
        cores = self._cores()
        return {
            "verify": 100 if verify not in ("0", "null") else 0 if reads else None,
            "randseed": self._values.pop("randseed", None),
            # fio's threads are its jobs; a driver thread here may have several.
            "threads": len(cores) if cores else None,
            "cpus_allowed": cores,
        }

    def _cores(self) -> list[int] | None:
        value = self._values.pop("cpus_allowed", None)
        if value is None:
            return None
        try:
            return parse_cores(value)[: int(parse_number(self._typed.get("numjobs", "1")) or 1)]
        except ValueError as error:
            self._wrong("cpus_allowed", str(error))

    def _count(self, key: str, default: str) -> int:
        return self._number(key, self._values.pop(key, default))

    def _number(self, key: str, value: str) -> int:
        number = parse_number(value)
        if number is None or not math.isfinite(number) or number != int(number) or number < 1:
            self._wrong(key, "use a whole number from 1 on")
        return int(number)

    def _bytes(self, key: str, value: str) -> int:
        """Fio's K, M, G are powers of 1024 whatever follows but a reversed `i`, which nobody means."""
        try:
            bytes_ = parse_size(value, binary=True)
        except ValueError as error:
            self._wrong(key, str(error))
        if bytes_ < 0:
            self._wrong(key, "use a number of bytes, 0 or more")
        return bytes_

    def _time_ns(self, key: str, value: str, unit_ns: int = 1_000_000_000) -> int:
        number = parse_number(value)
        try:
            time_ns = round(number * unit_ns) if number is not None else parse_duration_ns(value)
        except (ValueError, OverflowError):
            time_ns = -1
        if time_ns < 0:
            self._wrong(key, "use a time such as 60, 1m or 500ms")
        return time_ns

    def _wrong(self, key: str, why: str) -> NoReturn:
        name, typed = self._section.get(key, (key, None))
        shown = f"{name}={typed[:_SHOWN]}" if typed is not None else name
        raise ConfigError(f"{self._path}, job {self._name}: {shown}: {why}")


def _known() -> tuple[str, ...]:
    return (*_TAKEN.split(), *_UNUSED)
