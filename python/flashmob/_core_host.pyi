"""The part of flashmob._core that needs none of its other classes: this machine, its kernel's interfaces, extents.

There is no such module of its own.
"""

from typing import Any

def free_memory_bytes(root: str = "/") -> int: ...
def container_limits(root: str = "/") -> tuple[float | None, int | None]:
    """What the control groups allow: processor time in cores, and memory in bytes; None where there is no limit."""

def config_text(config: Any) -> str: ...
def check_faults(rules: list[str]) -> None:
    """Raises ConfigError for the first rule that cannot be read."""

def machine_info() -> dict[str, Any]:
    """The machine: cpu, kernel, cores, tsc_ghz, invariant_tsc, features, hugepages, isolated_cores."""

class InterfaceOptions:
    """One run of a kernel's interface; see include/flashmob/interfaces.h."""

    interface_name: str
    path: str
    rw: str
    block_bytes: int
    depth: int
    threads: int
    direct: bool
    allow_writes: bool
    verify: bool
    seed: int
    ramp_ns: int
    runtime_ns: int
    ios: int

class InterfaceInfo:
    """An interface of the kernel's: how it submits and completes, and whether a thread has one request at most."""

    name: str
    submission: str
    completion: str
    is_synchronous: bool

def kernel_interfaces() -> list[InterfaceInfo]:
    """All interfaces of the kernel's that can be measured."""

def create_interface_file(path: str, size_bytes: int, seed: int) -> None:
    """Makes a new file of such content as a study writes with this seed."""

class InterfaceRun:
    """One measured run. run() blocks without the GIL; cancel() may be called from other threads."""

    def __init__(self, options: InterfaceOptions) -> None: ...
    def run(self) -> str: ...
    def cancel(self) -> None: ...

class ExtentError(RuntimeError):
    """A source that cannot be read: not there, refused, or damaged; see include/flashmob/extents.h."""

class FileExtent:
    """A part of a file; its place says nothing where has_place() is false."""

    file_offset: int
    device_offset: int
    bytes: int
    def has_place(self) -> bool: ...
    def flags(self) -> list[str]: ...

class FileInfo:
    """A name in a source, in the bytes that it has there."""

    path: bytes
    kind: str
    inode: int
    size_bytes: int

class ExtentSource:
    """A file system that is asked where its files lie."""

    @staticmethod
    def open(path: bytes, verify_checksums: bool = True, timeout_ns: int = 10_000_000_000) -> ExtentSource: ...
    def file_system(self) -> str: ...
    def device(self) -> bytes: ...
    def files(self) -> list[FileInfo]: ...
    def problems(self) -> list[str]: ...
    def look_up(self, path: bytes) -> FileInfo: ...
    def extents(self, path: bytes, offset: int, size_bytes: int) -> list[FileExtent]: ...
    def read(self, path: bytes, offset: int, size_bytes: int) -> bytes: ...

class FilePlan:
    """Where one file lies, as it was when it was made; it can be pickled."""

    size_bytes: int
    extents: list[FileExtent]
    def __init__(self, source: ExtentSource, path: bytes) -> None: ...

class FileReadDone:
    """A read that has ended; `error` is one sentence, or empty."""

    tag: int
    bytes: int
    error: str

class FileReadCounts:
    """What was asked of a device."""

    commands: int
    device_bytes: int
    file_bytes: int
    zero_bytes: int

class KernelFileReads:
    """Reads of files below a directory by io_uring; see include/flashmob/file_reads.h. wait() sees no Ctrl-C."""

    def __init__(self, directory: bytes, depth: int) -> None: ...
    def start(self, tag: int, path: bytes, begin: int, buffer: Any) -> None: ...
    def wait(self, at_most_ns: int) -> list[FileReadDone]: ...
    def unfinished(self) -> int: ...
    def close(self) -> None: ...

class FileReads:
    """Reads of files by their extents; see include/flashmob/file_reads.h. wait() sees no Ctrl-C."""

    @staticmethod
    def open_target(target: str, depth: int, command_bytes: int, timeout_ns: int) -> FileReads: ...
    @staticmethod
    def open_device(config: Any, depth: int, command_bytes: int, timeout_ns: int) -> FileReads: ...
    def start(self, tag: int, plan: FilePlan, begin: int, size_bytes: int, buffer: Any, offset: int) -> None: ...
    def wait(self, at_most_ns: int) -> list[FileReadDone]: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...
    def unfinished(self) -> int: ...
    def device_bytes(self) -> int: ...
    def lba_bytes(self) -> int: ...
    def counts(self) -> FileReadCounts: ...

class FaultCount:
    """What became of one fault rule since it was given."""

    rule: str
    matched: int
    injected: int
