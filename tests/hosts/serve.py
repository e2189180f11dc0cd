"""`flashmob serve` as a process of its own, as a user starts it: one emulated SSD that guests attach to."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

START_LIMIT_SECONDS = 30.0
STOP_LIMIT_SECONDS = 10.0


class ServeError(Exception):
    """The command did not start or stop as it should; the message holds what it printed."""


def flashmob_command() -> str | None:
    """The command under test: what FLASHMOB names, else the one beside this interpreter, else on the path."""
    if named := os.environ.get("FLASHMOB"):
        return named
    beside = Path(sys.executable).with_name("flashmob")
    return str(beside) if beside.exists() else shutil.which("flashmob")


@dataclass
class ServedSsd:
    """What to serve and where. It can be stopped, killed and started again with the same doors and the same media."""

    folder: Path
    vfio_user: bool = False
    tcp: bool = False
    listen: str = "127.0.0.1"
    """The address of the network door, an IPv6 one in brackets."""
    name: str = "ssd0"
    profile: str = "optane-p4800x"
    media: str = "memory"
    size: str = "1GiB"
    options: list[str] = field(default_factory=list)
    lab: str = ""
    """The text of a lab file, instead of profile, media, size and options; doors and name must be the same in it."""
    port: int = 0
    nqn: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """Where vfio-user clients connect."""
        return self.folder / self.name / "cntrl"

    @property
    def log_path(self) -> Path:
        return self.folder / f"{self.name}.log"

    def command(self) -> list[str]:
        executable = flashmob_command()
        if executable is None:
            raise ServeError("the flashmob command is not installed; run `make install`")
        if self.lab:
            lab = self.folder / "lab.toml"
            lab.touch(0o600)  # it may hold keys
            lab.write_text(self.lab)
            return [executable, "serve", "--config", str(lab)]
        line = [executable, "serve", self.profile, "--name", self.name, "--media", self.media, "--size", self.size]
        if self.vfio_user:
            line += ["--vfio-user", str(self.folder)]
        if self.tcp:
            # The system chooses the first time; a restart is found at the same place.
            line += ["--tcp", f"{self.listen}:{self.port}"]
        # Hosts may do everything unless a test is about what they may not.
        allow = [] if "--allow" in self.options else ["--allow", "manage"]
        return [*line, "--faults-file", str(self.faults_path), *allow, *self.options]

    @property
    def faults_path(self) -> Path:
        """The rules of faults that the SSD shows."""
        return self.folder / f"{self.name}.faults"

    def set_faults(self, *rules: str) -> None:
        """Switches the faults of the running SSD, and returns once it shows them."""
        before = self.log_path.read_text(errors="replace").count("faults: ")
        fresh = self.faults_path.with_suffix(".new")
        fresh.write_text("\n".join(rules))
        fresh.replace(self.faults_path)
        deadline = time.monotonic() + STOP_LIMIT_SECONDS
        while self.log_path.read_text(errors="replace").count("faults: ") == before:
            if not self.alive() or time.monotonic() > deadline:
                raise ServeError(f"the faults were not taken over\n{self.log()}")
            time.sleep(0.02)

    def start(self) -> None:
        """Starts the process, and returns once every door takes connections."""
        line = self.command()
        before = len(self.log_path.read_text(errors="replace")) if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            # Its name is taken within this folder alone, whatever else this user serves.
            alone = os.environ | {"XDG_RUNTIME_DIR": str(self.folder)}
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=alone)
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while "ready" not in (said := self.log_path.read_text(errors="replace")[before:].splitlines()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServeError(f"{' '.join(line)}\ndid not start serving\n{self.log()}")
            time.sleep(0.02)
        if found := re.search(
            rf"^{re.escape(self.name)} nvme-tcp:{re.escape(self.listen)}:(\d+)/(\S+)$", "\n".join(said), re.MULTILINE
        ):
            self.port, self.nqn = int(found[1]), found[2]

    def stop(self) -> int:
        """Asks the process to stop, as systemd does, and returns its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            stacks = self.stacks()
            self.kill()
            raise ServeError(
                f"flashmob serve did not stop in {STOP_LIMIT_SECONDS:.0f} s\n{self.log()}\n{stacks}"
            ) from None

    def kill(self) -> None:
        """Ends the process with no warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Leaves nothing running, however the test ended."""
        if self.process is not None and self.process.poll() is None:
            self.stop()

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stacks(self) -> str:
        """Where each thread of the process is, if there is a debugger to tell."""
        gdb = shutil.which("gdb")
        if gdb is None or self.process is None:
            return ""
        command = [gdb, "-p", str(self.process.pid), "-batch", "-ex", "thread apply all backtrace 12"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout[-12000:]
        return ""

    def cpu_seconds(self) -> float:
        """Processor time that the process has used so far."""
        assert self.process is not None
        # The fields after the command's name, which is in parentheses and may hold blanks.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """The end of what the process printed."""
        return self.log_path.read_text(errors="replace")[-4000:] if self.log_path.exists() else ""
