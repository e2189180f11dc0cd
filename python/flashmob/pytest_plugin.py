"""Fixtures for tests of software that uses SSDs: fresh ones, which fail on command, and which cannot hang a test.

    @pytest.mark.flashmob("d7-ps1010", size="64M")
    def test_my_store_reports_a_lost_write(flashmob_ssd):
        flashmob_ssd.set_faults(["lose on=write at=1"])
        with pytest.raises(TimeoutError):
            flashmob_ssd.write(0, bytes(512))

pytest finds them once flashmob is installed. Every wait ends: a command that is not completed raises TimeoutError after
`flashmob_timeout_s` (an option of pytest's configuration file, 5 without it), and what a teardown cannot close in time
is left behind and reported as an error.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import pytest

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.faults import FaultCount
    from flashmob.keywords import BenchKeywords, SsdKeywords
    from flashmob.models import Profile
    from flashmob.result import Result
    from flashmob.ssd import Ssd

T = TypeVar("T")

_PROFILE = "d7-ps1010"
_SIZE = "64M"
_TIMEOUT_INI = "flashmob_timeout_s"
_TIMEOUT_S = 5.0
# What a close may take beyond the wait for outstanding commands.
_CLOSE_S = 10.0
# What a teardown waits at most, also for an SSD whose own waits end never (timeout_s=math.inf).
_LONGEST_CLOSE_S = 300.0


class MakeSsd(Protocol):
    """What flashmob_make_ssd gives."""

    def __call__(self, profile: str | Profile = _PROFILE, **options: Unpack[SsdKeywords]) -> Ssd:
        """Ssd() with a small namespace and a short time-out; closed after the test."""
        ...


class Serve(Protocol):
    """What flashmob_serve gives."""

    def __call__(
        self, profile: str = _PROFILE, *, vfio_user: bool | None = None, tcp: bool = False, **options: Any
    ) -> Served:
        """Serves an SSD of a profile until the test is over, by vfio-user where no door is asked for.

        Further options are those of an [[ssd]] table of `flashmob serve --config`: size, media, faults, set, ...
        """
        ...


class Bench(Protocol):
    """What flashmob_bench gives."""

    def __call__(
        self,
        profile: str | Profile,
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002  (as bench() names it)
        timeout_s: float = 60.0,
        **options: Unpack[BenchKeywords],
    ) -> Result:
        """bench(), but a run that does not end within `timeout_s` raises TimeoutError."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """An SSD that other processes, and flashmob.bench(), attach to.

    Attributes:
        nqn: of the subsystem, for NVMe/TCP hosts.
        vfio_user: the vfio-user door's socket; None without that door.
        nvme_tcp: the NVMe/TCP door's "ADDRESS:PORT"; None without that door.
        targets: what flashmob.bench() takes, a text for each door.
    """

    nqn: str
    vfio_user: Path | None
    nvme_tcp: str | None
    targets: tuple[str, ...]
    _server: _core.Server

    @property
    def target(self) -> str:
        """The first of `targets`."""
        return self.targets[0]

    def set_faults(self, rules: Sequence[str]) -> None:
        """Shows these faults from now on instead of those before; none ends them (docs/guide/faults.md)."""
        self._server.set_faults(list(rules))

    @property
    def faults(self) -> tuple[FaultCount, ...]:
        """The rules in force, how many commands each was meant for, and how many of these it hit."""
        from flashmob.faults import FaultCount

        return tuple(FaultCount(one.rule, one.matched, one.injected) for one in self._server.stats().faults)

    def stats(self) -> _core.ServerStats:
        """Hosts, rates and counters since the previous call."""
        return self._server.stats()

    def __repr__(self) -> str:
        return f"<Served {' '.join(self.targets)}>"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's settings."""
    parser.addini(_TIMEOUT_INI, "seconds after which a command of a fixture's SSD is given up", default=str(_TIMEOUT_S))


def pytest_configure(config: pytest.Config) -> None:
    """The plugin's marker."""
    config.addinivalue_line(
        "markers", "flashmob(profile, **options): which SSD flashmob_ssd is; profile and options are those of Ssd()"
    )


@pytest.fixture
def flashmob_timeout_s(pytestconfig: pytest.Config) -> float:
    """Seconds after which a command of a fixture's SSD is given up; override it to choose."""
    text = pytestconfig.getini(_TIMEOUT_INI)
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"{_TIMEOUT_INI} = {text!r} is not possible: use seconds, such as 5") from None


@pytest.fixture
def flashmob_make_ssd(flashmob_timeout_s: float) -> Iterator[MakeSsd]:
    """Makes fresh SSDs, of 64 MiB unless told otherwise; they are closed after the test. Call it as Ssd()."""
    from flashmob.ssd import Ssd

    with ExitStack() as closing:

        def make(profile: str | Profile = _PROFILE, **options: Unpack[SsdKeywords]) -> Ssd:
            options.setdefault("timeout_s", flashmob_timeout_s)
            if "size" not in options and "media" not in options:
                options["size"] = _SIZE
            ssd = Ssd(profile, **options)
            closing.callback(_within, ssd.timeout_s + _CLOSE_S, ssd.close, f"closing {ssd!r}")
            return ssd

        yield make


@pytest.fixture
def flashmob_ssd(request: pytest.FixtureRequest, flashmob_make_ssd: MakeSsd) -> Ssd:
    """A fresh SSD of 64 MiB for this test; @pytest.mark.flashmob(profile, **options) chooses another one."""
    marker = request.node.get_closest_marker("flashmob")
    return flashmob_make_ssd(*marker.args, **marker.kwargs) if marker else flashmob_make_ssd()


@pytest.fixture
def flashmob_serve() -> Iterator[Serve]:
    """Serves fresh SSDs until the test is over; the `target` of what is returned is what bench() takes."""
    from flashmob.errors import ConfigError
    from flashmob.explain import short
    from flashmob.lab import checked_ssd

    with ExitStack() as closing:
        # Not below tmp_path: a socket's address holds 107 characters.
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="flashmob-")))
        made = 0

        def serve(
            profile: str = _PROFILE, *, vfio_user: bool | None = None, tcp: bool = False, **options: Any
        ) -> Served:
            nonlocal made
            for name, wants in (("vfio_user", vfio_user), ("tcp", tcp)):
                if wants is not None and not isinstance(wants, bool):
                    raise ConfigError(
                        f"{name}={short(wants)} is not possible: use True; the fixture finds folder and port itself"
                    )
            made += 1
            wanted: dict[str, Any] = {"name": f"ssd{made}", "profile": profile} | options
            if vfio_user or (vfio_user is None and not tcp):
                wanted["vfio_user"] = str(folder)
            if tcp:
                wanted["tcp"] = 0
            if "media" not in options:
                wanted.setdefault("size", _SIZE)
            ssd = checked_ssd(wanted, "flashmob_serve")
            device, server = ssd.server()
            closing.callback(_within, _CLOSE_S, server.stop, f"stopping {ssd.name}")
            server.start()
            doors = dict(address.split(":", 1) for address in server.addresses())
            return Served(
                device.subsystem.nqn,
                Path(doors["vfio-user"]) if "vfio-user" in doors else None,
                doors["nvme-tcp"].partition("/")[0] if "nvme-tcp" in doors else None,
                tuple(server.addresses()),
                server,
            )

        yield serve


@pytest.fixture
def flashmob_bench() -> Bench:
    """bench() whose run is stopped, with a TimeoutError, when it does not end within `timeout_s` (60)."""
    from flashmob.checks import checked_seconds
    from flashmob.runner import BenchRun, prepare

    def bench(
        profile: str | Profile,
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002
        timeout_s: float = 60.0,
        **options: Unpack[BenchKeywords],
    ) -> Result:
        limit_s = checked_seconds("timeout_s", timeout_s)
        with BenchRun(*prepare(profile, options, set)) as run:
            if not run.wait(limit_s):
                raise TimeoutError(
                    f"bench({str(profile)!r}) has not ended within {limit_s:g} s; were completions lost?"
                )
        return run.result()

    return bench


def _within(limit_s: float, call: Callable[[], object], what: str) -> None:
    """Runs a call in a thread and leaves it behind if it takes longer than that: a teardown always returns."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # Handed to the thread that waits.
            failed.append(error)

    thread = threading.Thread(target=run, name=f"flashmob: {what}", daemon=True)
    thread.start()
    limit_s = min(limit_s, _LONGEST_CLOSE_S)
    thread.join(limit_s)
    if thread.is_alive():
        pytest.fail(f"{what} has not ended within {limit_s:g} s; it is left behind", pytrace=False)
    if failed:
        raise failed[0]
