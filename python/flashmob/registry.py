"""Which SSDs this user serves: one lock and one state file a name, in a folder that nobody else may enter.

A name belongs to the process that holds the lock NAME.lock; the kernel drops the lock with the process, however it
ends, so that neither a crash nor a process number that was given out again leaves a ghost. NAME.json says what that
process serves and how it does, is replaced as a whole about once a second, and is removed at exit; one without a
holder of its lock counts for nothing and is cleared away by whoever looks next.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError

SCHEMA = "flashmob-server"
SCHEMA_VERSION = 1
# A state file of a thousand hosts has 400 KB; what is larger was not written by us.
_MAX_STATE_BYTES = 4 << 20
# A reader holds a lock for microseconds to see whether somebody else does; a claim outlasts that.
_CLAIM_TRIES, _CLAIM_PAUSE_S = 10, 0.02
_PRIVATE = os.O_NOFOLLOW | os.O_CLOEXEC


class NameTakenError(ConfigError):
    """Another process serves an SSD of that name; `state` is what it says of itself, empty if it has said nothing."""

    def __init__(self, name: str, state: Mapping[str, Any]) -> None:
        self.state = state
        by = f"process {state['pid']}" if isinstance(state.get("pid"), int) else "another process"
        super().__init__(f"an SSD called {name} is served by {by} already; stop that one, or choose another --name")


class UnusableError(OSError):
    """The folder cannot be had or is not safe to use; the text says why."""


def folders() -> list[Path]:
    """Where servers of this user may have registered; a new one does so in the first."""
    user = os.geteuid()
    runtime = [Path(path) for path in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}") if path]
    # A session's folder is there only while somebody is logged in, and only the session's programs are told of it.
    usable = [path for path in dict.fromkeys(runtime) if path.is_absolute() and _is_ours(path)]
    return [*(path / "flashmob-servers" for path in usable), Path(f"/tmp/flashmob-{user}")]


def _is_ours(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@contextmanager
def _opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder, which is ours alone: others may have made /tmp/flashmob-UID before us."""
    try:
        if make:
            with suppress(FileExistsError):
                folder.mkdir(0o700)
        handle = os.open(folder, os.O_DIRECTORY | os.O_RDONLY | _PRIVATE)
    except OSError as error:
        raise UnusableError(f"{folder}: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            raise UnusableError(f"{folder} belongs to another user")
        if found.st_mode & 0o077:
            raise UnusableError(f"{folder} is open to other users; chmod 700 {folder}")
        yield handle
    finally:
        os.close(handle)


def _open_lock(folder: int, name: str, *, make: bool) -> int | None:
    flags = os.O_RDWR | _PRIVATE | (os.O_CREAT if make else 0)
    try:
        return os.open(f"{name}.lock", flags, 0o600, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        # A folder or a link of that name is nobody's server; a name that is to be claimed must be possible.
        if make:
            raise
        return None


def _locked(lock: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(folder: int, name: str, lock: int) -> bool:
    """Whether the lock is still the file of its name, not one that its last holder has removed."""
    try:
        found = os.stat(f"{name}.lock", dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return found.st_ino == os.fstat(lock).st_ino


def _exists(folder: int, file: str) -> bool:
    try:
        os.stat(file, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _remove(folder: int, name: str) -> None:
    # The lock goes last: while it is there and held nobody else can take the name.
    for file in (f"{name}.json", f"{name}.json.new", f"{name}.lock"):
        with suppress(OSError):
            os.unlink(file, dir_fd=folder)


def _holder(folder: int, name: str) -> bool:
    """Whether a process holds the name; what a dead one left is cleared away."""
    lock = _open_lock(folder, name, make=False)
    if lock is None and _exists(folder, f"{name}.json"):
        # Nothing is removed without the lock: by now somebody may have taken the name and said so.
        with suppress(OSError):
            lock = _open_lock(folder, name, make=True)
    if lock is None:
        return False
    try:
        # Readers share, so that two of them do not take each other for a server.
        if not _locked(lock, fcntl.LOCK_SH):
            return True
        if _locked(lock) and _is_current(folder, name, lock):
            _remove(folder, name)
        return False
    finally:
        os.close(lock)


def _read(folder: int, name: str) -> dict[str, Any]:
    """What a state file says; empty where it says nothing that we wrote."""
    try:
        file = os.open(f"{name}.json", os.O_RDONLY | os.O_NONBLOCK | _PRIVATE, dir_fd=folder)
    except OSError:
        return {}
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_STATE_BYTES:
            return {}
        with os.fdopen(os.dup(file), "rb") as reader:
            state = json.loads(reader.read(_MAX_STATE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(file)
    ours = isinstance(state, dict) and state.get("schema") == SCHEMA and state.get("name") == name
    ours = ours and state.get("schema_version") == SCHEMA_VERSION and _says_the_least(state)
    return _shown(state) if ours else {}


def _says_the_least(state: Mapping[str, Any]) -> bool:
    """Whether it has what everybody takes for granted; the rest is for those who show it to see to."""
    kinds = {"pid": int, "profile": str, "addresses": list, "stats": dict}
    if not all(isinstance(state.get(key), kind) for key, kind in kinds.items()):
        return False
    return all(isinstance(address, str) for address in state["addresses"])


def printable(text: str) -> str:
    """Without what would steer a terminal, or cannot be written to one."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _shown(value: Any) -> Any:
    """What a file says, fit for a terminal: whoever prints a part of it need not think of where it is from."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {printable(key): _shown(one) for key, one in value.items()}
    return value


@dataclass
class Claim:
    """A name that is ours until release()."""

    name: str
    folder: Path
    _lock: int

    def publish(self, state: Mapping[str, Any]) -> None:
        """Says what is served and how it does; readers see the old text or the new one.

        Raises:
            OSError: if it cannot be written; serving need not stop for that.
        """
        said = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "name": self.name, "pid": os.getpid()}
        text = json.dumps({**said, **state, "written_s": time.time()}, separators=(",", ":")).encode()
        with _opened(self.folder) as folder:
            # Not a temporary name of its own each time: one that a crash leaves is overwritten by the next.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _PRIVATE
            file = os.open(f"{self.name}.json.new", flags, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as writer:
                writer.write(text)
            os.rename(f"{self.name}.json.new", f"{self.name}.json", src_dir_fd=folder, dst_dir_fd=folder)

    def release(self) -> None:
        """Gives the name up. Idempotent."""
        if self._lock < 0:
            return
        with suppress(OSError), _opened(self.folder) as folder:
            if _is_current(folder, self.name, self._lock):
                _remove(folder, self.name)
        os.close(self._lock)
        self._lock = -1


def claim(name: str) -> Claim:
    """Takes a name for this process.

    Raises:
        NameTakenError: if another process has it.
        UnusableError: if there is no folder to say so in.
    """
    first, *others = folders()
    for elsewhere in others:
        with suppress(UnusableError), _opened(elsewhere) as folder:
            if _holder(folder, name):
                raise NameTakenError(name, _read(folder, name))
    with _opened(first, make=True) as folder:
        for _ in range(_CLAIM_TRIES):
            try:
                lock = _open_lock(folder, name, make=True)
            except OSError as error:
                raise UnusableError(f"{first / name}.lock: {error.strerror}") from None
            assert lock is not None
            if _locked(lock) and _is_current(folder, name, lock):
                return Claim(name, first, lock)
            os.close(lock)
            time.sleep(_CLAIM_PAUSE_S)
        raise NameTakenError(name, _read(folder, name))


def servers() -> list[dict[str, Any]]:
    """What every SSD that this user serves says of itself, by name; those that are just starting say nothing yet."""
    found: dict[str, dict[str, Any]] = {}
    for path in folders():
        with suppress(UnusableError), _opened(path) as folder:
            with os.scandir(folder) as entries:
                names = {one.name.rpartition(".")[0] for one in entries if one.name.endswith((".json", ".lock"))}
            for name in sorted(names):
                if _holder(folder, name) and (state := _read(folder, name)):
                    found.setdefault(name, state)
    return [found[name] for name in sorted(found)]


def server(name: str) -> dict[str, Any]:
    """What one of them says of itself.

    Raises:
        ConfigError: if no SSD of that name is served.
    """
    running = servers()
    for state in running:
        if state["name"] == name:
            return state
    names = ", ".join(state["name"] for state in running)
    there = f"there is {names}" if running else "none is served by this user; `flashmob serve` starts one"
    raise ConfigError(f"no SSD called {name} is served: {there}")


def is_stopped(state: Mapping[str, Any]) -> bool:
    """Whether its process stands still, by SIGSTOP or in a debugger: then it serves nobody, however fresh its news."""
    try:
        status = Path(f"/proc/{state['pid']}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The process' name, in brackets, may hold anything.
    return status.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def silent_s(state: Mapping[str, Any]) -> float:
    """How long ago the server wrote its state, s."""
    written = state.get("written_s")
    return max(0.0, time.time() - written) if isinstance(written, int | float) else 0.0
