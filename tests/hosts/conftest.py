"""Guests for the tests: booted once for each door, and again after a test that failed or said that it spoiled it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import DOORS, OURS, Door, make_door
from guest import Guest, find_environment
from serve import flashmob_command

IN_CI = os.environ.get("CI") == "true"
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--doors",
        default=",".join(OURS),
        help=f"which doors to test, of {', '.join(DOORS)}; those that are not flashmob's try the tests themselves",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("--doors").split(",")
    if unknown := set(asked) - set(DOORS):
        raise pytest.UsageError(f"--doors: there is no {', '.join(sorted(unknown))}; there are {', '.join(DOORS)}")
    marked = metafunc.definition.get_closest_marker("doors")
    chosen = [name for name in asked if marked is None or name in marked.args]
    if "bench" in metafunc.fixturenames:
        metafunc.parametrize("bench", chosen, indirect=True, scope="session")
    elif "door_name" in metafunc.fixturenames:
        metafunc.parametrize("door_name", chosen)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "doors(name...): the test is for these doors only")
    config.addinivalue_line("markers", "needs(command...): skipped at stand-ins that do not have the command")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is for none of the doors asked for is no test that was skipped."""
    asked = set(config.getoption("--doors").split(","))
    dropped = [item for item in items if "NOTSET" in item.name or _is_for_others(item, asked)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _is_for_others(item: pytest.Item, asked: set[str]) -> bool:
    marked = item.get_closest_marker("doors")
    return marked is not None and asked.isdisjoint(marked.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def environment() -> Path:
    """QEMU and a guest's system, built if need be. Without them the tests are skipped, but never in CI."""
    if "FLASHMOB_HOSTS" in os.environ:
        return find_environment()
    script = Path(__file__).with_name("environment.sh")
    built = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    if built.returncode == 0:
        return Path(built.stdout.strip())
    said = (built.stderr.strip() or "environment.sh failed").splitlines()
    if built.returncode == 3 and not IN_CI:
        pytest.skip(said[-1])
    pytest.fail("\n".join(said), pytrace=False)


class Bench:
    """A door with what is behind it, and the guest in front of it."""

    def __init__(self, environment: Path, door: Door) -> None:
        self.environment = environment
        self.door = door
        self._guest: Guest | None = None

    def guest(self) -> Guest:
        """The guest, booted and with the namespace attached."""
        if self._guest is not None and not self._guest.alive():
            self.discard()
        if self._guest is None:
            self.door.open()
            self._guest = Guest(self.environment, self.door.machine())
            try:
                self.door.attach(self._guest)
            except BaseException:
                self.discard()
                raise
        return self._guest

    def discard_guest(self) -> None:
        """The next test gets a fresh guest."""
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def discard(self) -> None:
        """The next test gets a fresh guest and a fresh SSD process."""
        self.discard_guest()
        self.door.close()

    def close(self) -> None:
        self.discard()
        shutil.rmtree(self.door.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, environment: Path) -> Iterator[Bench]:
    if request.param in OURS and flashmob_command() is None:
        pytest.fail("the flashmob command is not installed; run `make install`", pytrace=False)
    made = Bench(environment, make_door(request.param))
    yield made
    made.close()


@pytest.fixture
def door(bench: Bench, request: pytest.FixtureRequest) -> Door:
    needed = [name for mark in request.node.iter_markers("needs") for name in mark.args]
    if lacking := bench.door.cannot.intersection(needed):
        pytest.skip(f"{bench.door.name} has no {', '.join(sorted(lacking))}")
    return bench.door


@pytest.fixture
def guest(bench: Bench, door: Door, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A Linux guest with the SSD attached, shared with other tests. Its scripts find it at $C, the namespace at $N."""
    yield bench.guest()
    if problem := door.health():
        bench.discard()
        pytest.fail(problem, pytrace=False)
    if request.node.stash.get(FAILED, False):
        bench.discard()
