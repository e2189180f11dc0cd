"""Files for PyTorch: an IterableDataset whose workers share the samples, each with a reader of its own.

    loader = torch.utils.data.DataLoader(TorchFiles(FileDataset("images.img")), batch_size=None, num_workers=2)
    for sample in loader:
        sample["data"]  # a tensor of bytes

PyTorch is no requirement of the package; this module alone needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmob.dataset.files import FileDataset, Sample


def pinned(length: int) -> NDArray[Any]:
    """Memory for FileDataset(allocate=pinned) from which a GPU is copied to without a copy of the host's."""
    return torch.empty(length, dtype=torch.uint8, pin_memory=True).numpy()  # type: ignore[no-any-return]


def as_tensors(sample: Sample) -> dict[str, Any]:
    """The sample's bytes as a tensor of the same memory, by DLPack, and where they come from."""
    return {
        "data": torch.from_dlpack(sample) if sample.data.nbytes else torch.empty(0, dtype=torch.uint8),
        "path": sample.path,
        "offset": sample.offset,
        "index": sample.index,
    }


class TorchFiles(IterableDataset):  # type: ignore[misc]
    """A FileDataset for a DataLoader. Ranks are the FileDataset's affair; workers share what is its rank's.

    A loader takes a copy of it for its workers: set_epoch() before each iteration over the loader says which epoch.
    Workers must be made by "spawn" or "forkserver" where the data set has been iterated over in this process.
    """

    def __init__(self, files: FileDataset, transform: Callable[[Sample], Any] = as_tensors) -> None:
        super().__init__()
        self.files = files
        self._transform = transform

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch."""
        self.files.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        files = self.files if worker is None else self.files.part(worker.id, worker.num_workers)
        return map(self._transform, files)
