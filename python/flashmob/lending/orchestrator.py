"""`flashmob orchestrate`: `flashmob serve`, of SSDs whose doors come and go."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flashmob.errors import ConfigError
from flashmob.json_log import JsonLog
from flashmob.lab import SOCKET_NAME
from flashmob.lending.config import Orchestra, load
from flashmob.lending.control import ControlSocket
from flashmob.lending.lender import Lender
from flashmob.serve import DEFAULT_INTERVAL_S, serve

if TYPE_CHECKING:
    from flashmob import _core

# What a UNIX socket's address holds, its terminating zero byte not included.
_MOST_PATH_BYTES = 107


class _Lending:
    """The control socket and the leases, while the SSDs run."""

    def __init__(self, config: Orchestra, folder: Path, servers: Mapping[str, _core.Server]) -> None:
        self._folder = _locked(folder)
        try:
            self._log = None if config.audit is None else JsonLog(config.audit, sys.stdout)
        except BaseException:
            os.close(self._folder)
            raise
        try:
            lender = Lender(config, servers, folder, self._audit)
            is_for_others = os.geteuid() == 0 and any(rule.uid != 0 for rule in config.allow)
            self._control = ControlSocket(config.socket, lender, is_for_others=is_for_others)
            try:
                _clear_away(folder)
                lender.restore()
            except BaseException:
                self._control.close()
                raise
        except BaseException:
            if self._log is not None:
                self._log.close()
            os.close(self._folder)
            raise
        self._control.start()
        self.said: Sequence[str] = [f"lend {config.socket}"]

    def _audit(self, event: str, **values: Any) -> None:
        if self._log is not None:
            self._log.write(event, **values)

    def close(self) -> None:
        """Takes no more requests. Idempotent."""
        if self._folder < 0:
            return
        self._control.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        os.close(self._folder)
        self._folder = -1


def orchestrate(path: str, console: Console) -> int:
    """Lends until SIGINT, SIGTERM or SIGHUP; returns the exit code.

    Raises:
        ConfigError: naming file, key and fix.
    """
    folder = Path(path).expanduser().resolve().parent
    config = resolved(load(path), folder)
    leases = _make_folder(Path(config.leases or f"{config.socket}.leases"), max(len(ssd.name) for ssd in config.ssd))
    return serve(
        config.ssd,
        console=console,
        folder=folder,
        metrics=config.metrics,
        json_log=config.json_log,
        interval_s=DEFAULT_INTERVAL_S,
        lend=lambda servers: _Lending(config, leases, servers),
    )


def resolved(config: Orchestra, folder: Path) -> Orchestra:
    """With paths that do not depend on where the command was started."""
    keys = ("socket", "leases", "state", "audit", "json_log")
    given = {key: getattr(config, key) for key in keys if getattr(config, key) not in (None, "-")}
    return config.model_copy(update={key: str(folder / Path(text).expanduser()) for key, text in given.items()})


def _make_folder(path: Path, longest_name: int) -> Path:
    """Where the leases' sockets go: ours alone, though root's lets others pass through to a socket that is theirs."""
    if len(os.fsencode(path)) + len(f"/-12345678/{SOCKET_NAME}") + longest_name > _MOST_PATH_BYTES:
        raise ConfigError(f"leases = {path} is too long for the paths of sockets; choose a folder with a shorter path")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ConfigError(f"leases = {path} is not this user's alone; choose another folder")
        path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise ConfigError(f"leases = {path} cannot be made: {error.strerror}; choose another folder") from None
    return path


def _locked(folder: Path) -> int:
    """A descriptor by which the folder is ours while the process lives."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise ConfigError(f"leases = {folder} is another orchestrator's; stop that one, or choose another") from None
    return handle


def _clear_away(folder: Path) -> None:
    """Removes what an orchestrator left that was killed: nobody listens there any more."""
    for lease in folder.iterdir():
        for file in (lease / SOCKET_NAME, lease / f"{SOCKET_NAME}.lock"):
            with suppress(OSError):
                file.unlink()
        with suppress(OSError):  # What is not empty is not ours.
            lease.rmdir()
