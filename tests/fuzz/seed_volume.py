"""Makes a seed of ext4_fuzz or xfs_fuzz from an image: seed_volume.py IMAGE SEED [--unverified].

What is not zero is kept, in pieces of 16 bytes; the device becomes at least as large as the image (volume_fuzz.h).
"""

import sys
from pathlib import Path

UNIT = 16
SMALLEST = 64 << 10


def seed_of(image: bytes, *, verified: bool) -> bytes:
    """The input that makes a device of this content."""
    shift = next(shift for shift in range(14) if SMALLEST << shift >= len(image))
    seed = bytearray([shift | (0x80 if verified else 0)])
    at = 0
    while at < len(image):
        end = at
        while end - at < 255 * UNIT and any(image[end : end + UNIT]):
            end += UNIT
        if end > at:
            seed += (
                (at // UNIT).to_bytes(4, "little") + bytes([(end - at) // UNIT]) + image[at:end].ljust(end - at, b"\0")
            )
        at = max(end, at + UNIT)
        if not any(image[at : at + 65536]):
            at += 65536
    return bytes(seed)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(seed_of(Path(sys.argv[1]).read_bytes(), verified="--unverified" not in sys.argv))
