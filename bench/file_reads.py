"""Files of a data set by our driver and by the kernel's file reads, in alternating windows.

    .venv/bin/python bench/file_reads.py [--windows 7] [--seconds 1] [--json FILE]

Makes data sets (many small files; some large ones; one huge one in pieces), an ext4 image of each, and reads each in
shuffled order: from the folder by the kernel (eight threads), from the image by our driver on an emulated SSD of the
profile `unlimited`, so that what is compared is the software. With --cold the folder's pages are dropped before each
of the kernel's windows; without it the kernel reads from the page cache. A row says the median rate of the windows, the
least and the most, processor time, and the median of the ratios. The machine must do nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from flashmob.dataset import Place, make_files
from flashmob.dataset.windows import measure
from flashmob.units import format_size

SETS: list[tuple[str, int, int, dict[str, Any]]] = [
    ("images", 2000, 110_000, {}),
    ("videos", 20, 8_000_000, {}),
    ("huge", 1, 200_000_000, {"piece_bytes": 1 << 20}),
]


def image_of(tree: Path, image: Path, size_bytes: int) -> None:
    mke2fs = shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if mke2fs is None:
        sys.exit("this makes ext4 images: install e2fsprogs")
    with image.open("wb") as file:
        file.truncate(size_bytes * 5 // 4 + (64 << 20))
    subprocess.run([mke2fs, "-q", "-t", "ext4", "-d", tree, image], check=True)


def drop_pages(tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cold", action="store_true", help="drop the folder's pages before the kernel's windows")
    parser.add_argument("--share", type=float, default=1.0, help="of the files' number, for a smoke test")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    documents = {}
    with tempfile.TemporaryDirectory(prefix="flashmob-bench-") as name:
        folder = Path(name)
        for kind, files, size_bytes, options in SETS:
            tree, image = folder / kind, folder / f"{kind}.img"
            entries = make_files(tree, kind, files=max(1, int(files * args.share)), size_bytes=size_bytes, seed=1)
            image_of(tree, image, sum(one.size_bytes for one in entries))
            ways = [
                ("kernel", Place(str(tree), backend="posix", depth=8)),
                ("driver", Place(str(image), backend="driver", profile="unlimited")),
            ]

            def between(way: str, _window: int, tree: Path = tree) -> None:
                if args.cold and way == "kernel":
                    drop_pages(tree)

            document = measure(ways, windows=args.windows, window_s=args.seconds, between=between, seed=1, **options)
            documents[kind] = document
            print(f"{kind}: {document['files']} files, {format_size(document['size_bytes'])}")
            for way in document["ways"]:
                rate = way["bw_bytes"]
                print(
                    f"  {way['name']:<7} {format_size(int(rate['median']))}/s "
                    f"({format_size(int(rate['min']))} to {format_size(int(rate['max']))}), "
                    f"{way['files_per_s']['median']:.0f} samples/s, {way['cpu_s_per_gb']['median']:.2f} CPU s/GB, "
                    f"ratio {way['ratio']['median']:.2f}",
                    flush=True,
                )
            shutil.rmtree(tree)
            image.unlink()
    if args.json is not None:
        args.json.write_text(json.dumps(documents, indent=2) + "\n")


if __name__ == "__main__":
    main()
