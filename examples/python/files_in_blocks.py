"""Stores a file on an emulated SSD, reads it back and says what the drive counted.

python examples/python/files_in_blocks.py README.md
"""

import sys
from pathlib import Path

import flashmob


def main(path: str) -> int:
    """Writes the file's bytes from LBA 0 on, padded to whole blocks, and compares what comes back."""
    content = Path(path).read_bytes()
    with flashmob.Ssd("d7-ps1010", size="1G") as ssd:
        lba_bytes = ssd.namespace.lba_bytes
        blocks = -(-len(content) // lba_bytes)
        ssd.write(0, content.ljust(blocks * lba_bytes, b"\0"))
        ssd.flush()
        same = ssd.read(0, blocks)[: len(content)].tobytes() == content
        smart = ssd.smart_log()
        print(f"{path}: {blocks} blocks, {'the same' if same else 'DIFFERENT'} when read back")
        print(f"{ssd.identify_controller().mn}: {smart.host_write_commands} writes, {smart.host_read_commands} reads")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else __file__))
