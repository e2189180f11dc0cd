"""Identify data structures as objects, and as text in the form that nvme-cli made familiar.

Layouts: NVMe Base 2.0c, 5.17.2.1 (controller) and NVM command set 1.0c, 4.1.5.1 (namespace).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from flashmob.structures import Bits, Digits, Number, ReversedDigits, Structure, Text

IDENTIFY_BYTES: Final = 4096
# MDTS counts in the smallest memory page (CAP.MPSMIN), which is this one for every device of flashmob's.
_PAGE_BYTES: Final = 4096
_POWER_STATES: Final = 2048
_LBA_FORMATS: Final = 128
_ZONED_FORMATS: Final = 2816
# Of these extensions, those of LBA formats that our devices have.
_ZONED_FORMATS_KNOWN: Final = 2


@dataclass(frozen=True, slots=True)
class PowerState:
    """One power state descriptor. Latencies in microseconds, power in watts."""

    max_power_w: float
    non_operational: bool
    entry_latency_us: int
    exit_latency_us: int
    relative_read_throughput: int
    relative_read_latency: int
    relative_write_throughput: int
    relative_write_latency: int

    def text(self) -> str:
        """As nvme-cli prints it."""
        state = "non-operational" if self.non_operational else "operational"
        return (
            f"mp:{self.max_power_w:.2f}W {state} enlat:{self.entry_latency_us} exlat:{self.exit_latency_us} "
            f"rrt:{self.relative_read_throughput} rrl:{self.relative_read_latency} "
            f"rwt:{self.relative_write_throughput} rwl:{self.relative_write_latency}"
        )


@dataclass(frozen=True, slots=True)
class LbaFormat:
    """One LBA format: bytes of a block's data and metadata, and how it performs among the others (0 is best)."""

    lba_bytes: int
    metadata_bytes: int
    relative_performance: int
    in_use: bool


class IdentifyController(Structure):
    """Identify Controller (CNS 01h): 4096 bytes, fields by the specification's names."""

    structure_bytes = IDENTIFY_BYTES
    what = "identify data"

    vid = Bits(0, 2, "PCI Vendor ID")
    ssvid = Bits(2, 2, "PCI Subsystem Vendor ID")
    sn = Text(4, 20, "Serial Number")
    mn = Text(24, 40, "Model Number")
    fr = Text(64, 8, "Firmware Revision")
    rab = Number(72, 1, "Recommended Arbitration Burst, as a power of two")
    ieee = ReversedDigits(73, 3, "IEEE OUI Identifier")
    cmic = Bits(76, 1, "Controller Multi-Path I/O and Namespace Sharing Capabilities")
    mdts = Number(77, 1, "Maximum Data Transfer Size, as a power of two of pages of 4096 bytes; 0: no limit")
    cntlid = Bits(78, 2, "Controller ID")
    ver = Bits(80, 4, "Version")
    rtd3r = Bits(84, 4, "RTD3 Resume Latency, microseconds")
    rtd3e = Bits(88, 4, "RTD3 Entry Latency, microseconds")
    oaes = Bits(92, 4, "Optional Asynchronous Events Supported")
    ctratt = Bits(96, 4, "Controller Attributes")
    rrls = Bits(100, 2, "Read Recovery Levels Supported")
    cntrltype = Number(111, 1, "Controller Type: 1 I/O, 2 discovery, 3 administrative")
    fguid = Digits(112, 16, "FRU Globally Unique Identifier")
    crdt1 = Number(128, 2, "Command Retry Delay Time 1, 100 ms")
    crdt2 = Number(130, 2, "Command Retry Delay Time 2, 100 ms")
    crdt3 = Number(132, 2, "Command Retry Delay Time 3, 100 ms")
    nvmsr = Number(253, 1, "NVM Subsystem Report")
    vwci = Number(254, 1, "VPD Write Cycle Information")
    mec = Number(255, 1, "Management Endpoint Capabilities")
    oacs = Bits(256, 2, "Optional Admin Command Support")
    acl = Number(258, 1, "Abort Command Limit, 0's based")
    aerl = Number(259, 1, "Asynchronous Event Request Limit, 0's based")
    frmw = Bits(260, 1, "Firmware Updates")
    lpa = Bits(261, 1, "Log Page Attributes")
    elpe = Number(262, 1, "Error Log Page Entries, 0's based")
    npss = Number(263, 1, "Number of Power States Support, 0's based")
    avscc = Bits(264, 1, "Admin Vendor Specific Command Configuration")
    apsta = Bits(265, 1, "Autonomous Power State Transition Attributes")
    wctemp = Number(266, 2, "Warning Composite Temperature Threshold, kelvins")
    cctemp = Number(268, 2, "Critical Composite Temperature Threshold, kelvins")
    mtfa = Number(270, 2, "Maximum Time for Firmware Activation, 100 ms")
    hmpre = Number(272, 4, "Host Memory Buffer Preferred Size, 4 KiB")
    hmmin = Number(276, 4, "Host Memory Buffer Minimum Size, 4 KiB")
    tnvmcap = Number(280, 16, "Total NVM Capacity, bytes")
    unvmcap = Number(296, 16, "Unallocated NVM Capacity, bytes")
    rpmbs = Bits(312, 4, "Replay Protected Memory Block Support")
    edstt = Number(316, 2, "Extended Device Self-test Time, minutes")
    dsto = Number(318, 1, "Device Self-test Options")
    fwug = Number(319, 1, "Firmware Update Granularity, 4 KiB")
    kas = Number(320, 2, "Keep Alive Support: the timer's granularity, 100 ms")
    hctma = Bits(322, 2, "Host Controlled Thermal Management Attributes")
    mntmt = Number(324, 2, "Minimum Thermal Management Temperature, kelvins")
    mxtmt = Number(326, 2, "Maximum Thermal Management Temperature, kelvins")
    sanicap = Bits(328, 4, "Sanitize Capabilities")
    hmminds = Number(332, 4, "Host Memory Buffer Minimum Descriptor Entry Size, 4 KiB")
    hmmaxd = Number(336, 2, "Host Memory Maximum Descriptors Entries")
    nsetidmax = Number(338, 2, "NVM Set Identifier Maximum")
    endgidmax = Number(340, 2, "Endurance Group Identifier Maximum")
    anatt = Number(342, 1, "ANA Transition Time, seconds")
    anacap = Bits(343, 1, "Asymmetric Namespace Access Capabilities")
    anagrpmax = Number(344, 4, "ANA Group Identifier Maximum")
    nanagrpid = Number(348, 4, "Number of ANA Group Identifiers")
    pels = Number(352, 4, "Persistent Event Log Size, 64 KiB")
    domainid = Number(356, 2, "Domain Identifier")
    megcap = Number(368, 16, "Max Endurance Group Capacity, bytes")
    sqes = Bits(512, 1, "Submission Queue Entry Size: powers of two, largest in the upper half")
    cqes = Bits(513, 1, "Completion Queue Entry Size: powers of two, largest in the upper half")
    maxcmd = Number(514, 2, "Maximum Outstanding Commands")
    nn = Number(516, 4, "Number of Namespaces")
    oncs = Bits(520, 2, "Optional NVM Command Support")
    fuses = Bits(522, 2, "Fused Operation Support")
    fna = Bits(524, 1, "Format NVM Attributes")
    vwc = Bits(525, 1, "Volatile Write Cache")
    awun = Number(526, 2, "Atomic Write Unit Normal, blocks, 0's based")
    awupf = Number(528, 2, "Atomic Write Unit Power Fail, blocks, 0's based")
    icsvscc = Number(530, 1, "I/O Command Set Vendor Specific Command Configuration")
    nwpc = Number(531, 1, "Namespace Write Protection Capabilities")
    acwu = Number(532, 2, "Atomic Compare and Write Unit, blocks, 0's based")
    ocfs = Bits(534, 2, "Optional Copy Formats Supported")
    sgls = Bits(536, 4, "SGL Support")
    mnan = Number(540, 4, "Maximum Number of Allowed Namespaces")
    maxdna = Number(544, 16, "Maximum Domain Namespace Attachments")
    maxcna = Number(560, 4, "Maximum I/O Controller Namespace Attachments")
    subnqn = Text(768, 256, "NVM Subsystem NVMe Qualified Name")
    ioccsz = Number(1792, 4, "I/O Queue Command Capsule Supported Size, 16 bytes")
    iorcsz = Number(1796, 4, "I/O Queue Response Capsule Supported Size, 16 bytes")
    icdoff = Number(1800, 2, "In Capsule Data Offset, 16 bytes")
    fcatt = Number(1802, 1, "Fabrics Controller Attributes")
    msdbd = Number(1803, 1, "Maximum SGL Data Block Descriptors")
    ofcs = Number(1804, 2, "Optional Fabric Commands Support")

    @property
    def version(self) -> str:
        """VER as people write it, such as "2.0.0"."""
        return f"{self.ver >> 16}.{self.ver >> 8 & 0xFF}.{self.ver & 0xFF}"

    @property
    def max_transfer_bytes(self) -> int | None:
        """MDTS in bytes; None where there is no limit."""
        return _PAGE_BYTES << self.mdts if self.mdts else None

    @property
    def power_states(self) -> tuple[PowerState, ...]:
        """The power state descriptors."""
        return tuple(self._power_state(_POWER_STATES + 32 * index) for index in range(min(self.npss, 31) + 1))

    def _power_state(self, offset: int) -> PowerState:
        power, _, flags, entry_us, exit_us = struct.unpack_from("<HBBII", self, offset)
        watts = power * (0.0001 if flags & 1 else 0.01)
        return PowerState(watts, bool(flags & 2), entry_us, exit_us, *struct.unpack_from("<BBBB", self, offset + 12))

    def texts(self) -> dict[str, str]:
        """Field name -> value as text, in the structure's order; `ps N` for power states."""
        states = {f"ps {index:4}": state.text() for index, state in enumerate(self.power_states)}
        return super().texts() | states

    def _summary(self) -> str:
        return f"mn={self.mn!r} sn={self.sn!r} fr={self.fr!r} NVMe {self.version}"


class IdentifyNamespace(Structure):
    """Identify Namespace (CNS 00h): 4096 bytes, fields by the specification's names. Sizes in blocks."""

    structure_bytes = IDENTIFY_BYTES
    what = "identify data"

    nsze = Bits(0, 8, "Namespace Size, blocks")
    ncap = Bits(8, 8, "Namespace Capacity, blocks")
    nuse = Bits(16, 8, "Namespace Utilization, blocks")
    nsfeat = Bits(24, 1, "Namespace Features")
    nlbaf = Number(25, 1, "Number of LBA Formats, 0's based")
    flbas = Bits(26, 1, "Formatted LBA Size: which LBA format is in use")
    mc = Bits(27, 1, "Metadata Capabilities")
    dpc = Bits(28, 1, "End-to-end Data Protection Capabilities")
    dps = Bits(29, 1, "End-to-end Data Protection Type Settings")
    nmic = Bits(30, 1, "Namespace Multi-path I/O and Namespace Sharing Capabilities")
    rescap = Bits(31, 1, "Reservation Capabilities")
    fpi = Bits(32, 1, "Format Progress Indicator")
    dlfeat = Bits(33, 1, "Deallocate Logical Block Features")
    nawun = Number(34, 2, "Namespace Atomic Write Unit Normal, blocks, 0's based")
    nawupf = Number(36, 2, "Namespace Atomic Write Unit Power Fail, blocks, 0's based")
    nacwu = Number(38, 2, "Namespace Atomic Compare and Write Unit, blocks, 0's based")
    nabsn = Number(40, 2, "Namespace Atomic Boundary Size Normal, blocks, 0's based")
    nabo = Number(42, 2, "Namespace Atomic Boundary Offset, blocks")
    nabspf = Number(44, 2, "Namespace Atomic Boundary Size Power Fail, blocks, 0's based")
    noiob = Number(46, 2, "Namespace Optimal I/O Boundary, blocks")
    nvmcap = Number(48, 16, "NVM Capacity, bytes")
    npwg = Number(64, 2, "Namespace Preferred Write Granularity, blocks, 0's based")
    npwa = Number(66, 2, "Namespace Preferred Write Alignment, blocks, 0's based")
    npdg = Number(68, 2, "Namespace Preferred Deallocate Granularity, blocks, 0's based")
    npda = Number(70, 2, "Namespace Preferred Deallocate Alignment, blocks, 0's based")
    nows = Number(72, 2, "Namespace Optimal Write Size, blocks, 0's based")
    mssrl = Number(74, 2, "Maximum Single Source Range Length of a Copy, blocks")
    mcl = Number(76, 4, "Maximum Copy Length, blocks")
    msrc = Number(80, 1, "Maximum Source Range Count of a Copy, 0's based")
    nulbaf = Number(82, 1, "Number of Unique Capability LBA Formats")
    anagrpid = Number(92, 4, "ANA Group Identifier")
    nsattr = Number(99, 1, "Namespace Attributes")
    nvmsetid = Number(100, 2, "NVM Set Identifier")
    endgid = Number(102, 2, "Endurance Group Identifier")
    nguid = Digits(104, 16, "Namespace Globally Unique Identifier")
    eui64 = Digits(120, 8, "IEEE Extended Unique Identifier")

    @property
    def lba_formats(self) -> tuple[LbaFormat, ...]:
        """The LBA formats."""
        in_use = (self.flbas & 0x0F) | (self.flbas & 0x60) >> 1
        formats = []
        for index in range(min(self.nlbaf, 63) + 1):
            metadata, log2_bytes, performance = struct.unpack_from("<HBB", self, _LBA_FORMATS + 4 * index)
            formats.append(LbaFormat(1 << log2_bytes, metadata, performance & 3, index == in_use))
        return tuple(formats)

    @property
    def lba_bytes(self) -> int:
        """Bytes of a block, by the format in use; 0 where FLBAS names a format that does not exist."""
        return next((one.lba_bytes for one in self.lba_formats if one.in_use), 0)

    @property
    def namespace_bytes(self) -> int:
        """NSZE in bytes."""
        return self.nsze * self.lba_bytes

    def texts(self) -> dict[str, str]:
        """Field name -> value as text, in the structure's order; `lbaf N` for LBA formats, the one in use marked."""
        texts = super().texts()
        for index, one in enumerate(self.lba_formats):
            mark = " (in use)" if one.in_use else ""
            texts[f"lbaf {index:2}"] = (
                f"ms:{one.metadata_bytes:<3} lbads:{one.lba_bytes.bit_length() - 1:<2} "
                f"rp:{one.relative_performance:#x}{mark}"
            )
        return texts

    def _summary(self) -> str:
        return f"nsze={self.nsze:#x} nuse={self.nuse:#x} lba_bytes={self.lba_bytes} nguid={self.nguid}"


class IdentifyNamespaceZoned(Structure):
    """Identify Namespace of the Zoned Namespace command set (CNS 05h, CSI 2h), fields by the specification's names."""

    structure_bytes = IDENTIFY_BYTES
    what = "identify data"

    zoc = Bits(0, 2, "Zone Operation Characteristics")
    ozcs = Bits(2, 2, "Optional Zoned Command Support")
    mar = Number(4, 4, "Maximum Active Resources, 0's based; FFFFFFFFh: no limit")
    mor = Number(8, 4, "Maximum Open Resources, 0's based; FFFFFFFFh: no limit")
    rrl = Number(12, 4, "Reset Recommended Limit, seconds")
    frl = Number(16, 4, "Finish Recommended Limit, seconds")

    def zone_blocks(self, lba_format: int) -> int:
        """Zone Size (ZSZE) in blocks of an LBA format, by its index in `lbaf`."""
        (blocks,) = struct.unpack_from("<Q", self, _ZONED_FORMATS + 16 * lba_format)
        return int(blocks)

    def extension_bytes(self, lba_format: int) -> int:
        """Zone Descriptor Extension Size (ZDES) in bytes, of an LBA format by its index in `lbaf`."""
        (units,) = struct.unpack_from("<B", self, _ZONED_FORMATS + 16 * lba_format + 8)
        return 64 * int(units)

    def to_dict(self) -> dict[str, int | str]:
        """Name -> value, in the structure's order; `zsze` and `zdes` are of LBA formats 0 and 1."""
        zones: dict[str, int | str] = {f"zsze{index}": self.zone_blocks(index) for index in range(_ZONED_FORMATS_KNOWN)}
        zones |= {f"zdes{index}": self.extension_bytes(index) for index in range(_ZONED_FORMATS_KNOWN)}
        return super().to_dict() | zones

    def texts(self) -> dict[str, str]:
        """Field name -> value as text, in the structure's order; `lbafe N` for what each LBA format makes of a zone."""
        texts = super().texts()
        for index in range(_ZONED_FORMATS_KNOWN):
            texts[f"lbafe {index:2}"] = f"zsze:{self.zone_blocks(index):#x} zdes:{self.extension_bytes(index)}"
        return texts

    def _summary(self) -> str:
        return f"zsze={self.zone_blocks(0):#x} mar={self.mar:#x} mor={self.mor:#x}"


class IdentifyNamespaceKeyValue(Structure):
    """Identify Namespace of the Key Value command set (CNS 05h, CSI 1h), fields by the specification's names.

    `kml`, `vml` and `mnk` are those of KV format 0.
    """

    structure_bytes = IDENTIFY_BYTES
    what = "identify data"

    nsze = Number(0, 8, "Namespace Size, bytes")
    nuse = Number(16, 8, "Namespace Utilization, bytes")
    nsfeat = Bits(24, 1, "Namespace Features")
    nkvf = Number(25, 1, "Number of KV Formats, 0's based")
    nmic = Bits(26, 1, "Multi-path I/O and Namespace Sharing Capabilities")
    novg = Number(32, 4, "Namespace Optimal Value Granularity, bytes")
    nsattr = Bits(43, 1, "Namespace Attributes")
    nguid = Digits(48, 16, "Namespace Globally Unique Identifier")
    eui64 = Digits(64, 8, "IEEE Extended Unique Identifier")
    kml = Number(72, 2, "KV Key Max Length, bytes")
    vml = Number(76, 4, "KV Value Max Length, bytes")
    mnk = Number(80, 4, "Max Num Keys")

    def _summary(self) -> str:
        return f"nsze={self.nsze:#x} nuse={self.nuse:#x} kml={self.kml} vml={self.vml:#x}"


def lines(fields: dict[str, str]) -> list[str]:
    """`field : value`, the colons below each other."""
    width = max(len(name) for name in fields)
    return [f"{name:<{width}} : {value}" for name, value in fields.items()]
