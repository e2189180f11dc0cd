"""The package's exceptions and exit codes: an operator's mistake is a ConfigError, a rejected command an NvmeError."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashmob._core import ConfigError as ConfigError
else:
    try:
        from flashmob._core import ConfigError
    except ImportError:  # Profiles and reports work without the compiled module.

        class ConfigError(ValueError):
            """A mistake in a profile, option or file; the text is one sentence that names the key and the fix."""


# Exit codes of the command beside 0: something checked was wrong, bad usage or configuration, stopped by Ctrl-C.
EXIT_WRONG = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Status code type and status code (NVMe Base 2.0c, 3.3.3.2) of what reads, writes, flushes and log pages can answer.
_STATUS_NAMES = {
    0x000: "Successful Completion",
    0x001: "Invalid Command Opcode",
    0x002: "Invalid Field in Command",
    0x004: "Data Transfer Error",
    0x006: "Internal Error",
    0x007: "Command Abort Requested",
    0x008: "Command Aborted due to SQ Deletion",
    0x00B: "Invalid Namespace or Format",
    0x020: "Namespace is Write Protected",
    0x080: "LBA Out of Range",
    0x082: "Namespace Not Ready",
    0x084: "Format in Progress",
    0x102: "Invalid Queue Size",
    0x109: "Invalid Log Page",
    0x280: "Write Fault",
    0x281: "Unrecovered Read Error",
    0x285: "Compare Failure",
    0x286: "Access Denied",
    0x287: "Deallocated or Unwritten Logical Block",
}
_DO_NOT_RETRY = 1 << 14


def status_name(status: int) -> str:
    """The specification's name of a status field without its phase bit, or what is known of it."""
    name = _STATUS_NAMES.get(status & 0x7FF)
    return name or f"SCT {(status >> 8) & 7:X}h, SC {status & 0xFF:02X}h"


class NvmeError(OSError):
    """A command that the device completed with an error.

    Attributes:
        status: the completion's status field without its phase bit: SC in bits 7:0, SCT in 10:8, CRD in 12:11,
            More in 13, Do Not Retry in 14.
        command: what was asked, for the message.
    """

    def __init__(self, status: int, command: str = "command") -> None:
        self.status = status
        self.command = command
        retry = ", do not retry" if self.do_not_retry else ""
        name = _STATUS_NAMES.get(status & 0x7FF, "error")
        super().__init__(
            f"{command} failed: {name} (SCT {self.status_code_type:X}h, SC {self.status_code:02X}h{retry})"
        )

    @property
    def status_code(self) -> int:
        """SC: the reason, within its type."""
        return self.status & 0xFF

    @property
    def status_code_type(self) -> int:
        """SCT: 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor specific."""
        return (self.status >> 8) & 7

    @property
    def do_not_retry(self) -> bool:
        """Whether the device says that the same command would fail again."""
        return bool(self.status & _DO_NOT_RETRY)


class ControllerFatalError(OSError):
    """The controller has died (CSTS.CFS): it completes nothing any more, until it is reset."""
