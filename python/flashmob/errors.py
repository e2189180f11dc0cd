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

# Status code type and status code (NVMe Base 2.0c, 3.3.3.2), as src/driver/names.cpp has them.
_STATUS_NAMES = {
    0x000: "Successful Completion",
    0x001: "Invalid Command Opcode",
    0x002: "Invalid Field in Command",
    0x003: "Command ID Conflict",
    0x004: "Data Transfer Error",
    0x005: "Commands Aborted due to Power Loss Notification",
    0x006: "Internal Error",
    0x007: "Command Abort Requested",
    0x008: "Command Aborted due to SQ Deletion",
    0x009: "Command Aborted due to Failed Fused Command",
    0x00A: "Command Aborted due to Missing Fused Command",
    0x00B: "Invalid Namespace or Format",
    0x00C: "Command Sequence Error",
    0x00D: "Invalid SGL Segment Descriptor",
    0x00E: "Invalid Number of SGL Descriptors",
    0x00F: "Data SGL Length Invalid",
    0x010: "Metadata SGL Length Invalid",
    0x011: "SGL Descriptor Type Invalid",
    0x012: "Invalid Use of Controller Memory Buffer",
    0x013: "PRP Offset Invalid",
    0x014: "Atomic Write Unit Exceeded",
    0x015: "Operation Denied",
    0x016: "SGL Offset Invalid",
    0x018: "Host Identifier Inconsistent Format",
    0x019: "Keep Alive Timer Expired",
    0x01A: "Keep Alive Timeout Invalid",
    0x01B: "Command Aborted due to Preempt and Abort",
    0x01C: "Sanitize Failed",
    0x01D: "Sanitize In Progress",
    0x01E: "SGL Data Block Granularity Invalid",
    0x01F: "Command Not Supported for Queue in CMB",
    0x020: "Namespace is Write Protected",
    0x021: "Command Interrupted",
    0x022: "Transient Transport Error",
    0x023: "Command Prohibited by Command and Feature Lockdown",
    0x024: "Admin Command Media Not Ready",
    0x029: "FDP Disabled",
    0x02A: "Invalid Placement Handle List",
    0x080: "LBA Out of Range",
    0x081: "Capacity Exceeded",
    0x082: "Namespace Not Ready",
    0x083: "Reservation Conflict",
    0x084: "Format In Progress",
    0x085: "Invalid Value Size",
    0x086: "Invalid Key Size",
    0x087: "Key Does Not Exist",
    0x088: "Unrecovered Error",
    0x089: "Key Exists",
    0x100: "Completion Queue Invalid",
    0x101: "Invalid Queue Identifier",
    0x102: "Invalid Queue Size",
    0x103: "Abort Command Limit Exceeded",
    0x105: "Asynchronous Event Request Limit Exceeded",
    0x106: "Invalid Firmware Slot",
    0x107: "Invalid Firmware Image",
    0x108: "Invalid Interrupt Vector",
    0x109: "Invalid Log Page",
    0x10A: "Invalid Format",
    0x10B: "Firmware Activation Requires Conventional Reset",
    0x10C: "Invalid Queue Deletion",
    0x10D: "Feature Identifier Not Saveable",
    0x10E: "Feature Not Changeable",
    0x10F: "Feature Not Namespace Specific",
    0x114: "Overlapping Range",
    0x115: "Namespace Insufficient Capacity",
    0x116: "Namespace Identifier Unavailable",
    0x118: "Namespace Already Attached",
    0x119: "Namespace Is Private",
    0x11A: "Namespace Not Attached",
    0x11B: "Thin Provisioning Not Supported",
    0x11C: "Controller List Invalid",
    0x11E: "Boot Partition Write Prohibited",
    0x11F: "Invalid Controller Identifier",
    0x129: "I/O Command Set Not Supported",
    0x12A: "I/O Command Set Not Enabled",
    0x12B: "I/O Command Set Combination Rejected",
    0x12C: "Invalid I/O Command Set",
    0x180: "Conflicting Attributes",
    0x181: "Invalid Protection Information",
    0x182: "Attempted Write to Read Only Range",
    0x183: "Command Size Limit Exceeded",
    0x1B8: "Zone Boundary Error",
    0x1B9: "Zone Is Full",
    0x1BA: "Zone Is Read Only",
    0x1BB: "Zone Is Offline",
    0x1BC: "Zone Invalid Write",
    0x1BD: "Too Many Active Zones",
    0x1BE: "Too Many Open Zones",
    0x1BF: "Invalid Zone State Transition",
    0x280: "Write Fault",
    0x281: "Unrecovered Read Error",
    0x282: "End-to-end Guard Check Error",
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

    def __init__(self, message: str) -> None:
        # An enable or a disable that fails is part of a reset.
        said = "reset()" in message or message.startswith(("enable", "disable"))
        super().__init__(message if said else f"{message}; reset() is the way out")
