"""Data sets of files, read past the kernel: one iterator over an emulated or served SSD, a GPU, or plain file reads.

    from flashmob.dataset import FileDataset

    with FileDataset("images.img", seed=1, rank=0, world=2) as files:
        for epoch in range(3):
            for batch in files.batches(32):
                train([sample.data for sample in batch])

Orders are the same on every machine for equal seeds. See docs/guide/dataset.md.
"""

from flashmob.dataset.files import FileDataset, Sample
from flashmob.dataset.generate import KINDS, make_files
from flashmob.dataset.manifest import Entry, Manifest
from flashmob.dataset.order import epoch_order, shard
from flashmob.dataset.readers import FileReadError, Place

__all__ = [
    "KINDS",
    "Entry",
    "FileDataset",
    "FileReadError",
    "Manifest",
    "Place",
    "Sample",
    "epoch_order",
    "make_files",
    "shard",
]
