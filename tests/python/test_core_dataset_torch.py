"""Data sets for PyTorch, where it is installed: tensors of the samples' own memory, workers that share them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aged_trees import contents, run, tool
from flashmob.dataset import FileDataset, make_files

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(tool("mke2fs") is None, reason="needs e2fsprogs")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    root, image = tmp_path / "files", tmp_path / "image"
    make_files(root, "images", files=30, size_bytes=9000, seed=5)
    (root / "empty.bin").touch()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-d", root, image)
    return image, {path: data for path, data in contents(root).items() if path.endswith(".bin")}


def test_samples_are_tensors_of_the_same_memory(made: tuple[Path, dict[str, bytes]]) -> None:
    from flashmob.dataset.torch import TorchFiles, as_tensors

    image, truth = made
    with FileDataset(image, pattern="*.bin") as files:
        for sample in files:
            if sample.data.nbytes:
                assert as_tensors(sample)["data"].data_ptr() == sample.data.ctypes.data
        found = {one["path"]: one["data"] for one in TorchFiles(files)}
        assert {path: data.numpy().tobytes() for path, data in found.items()} == truth
        assert all(data.dtype == torch.uint8 for data in found.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_the_samples_of_their_rank(workers: int, made: tuple[Path, dict[str, bytes]]) -> None:
    from flashmob.dataset.torch import TorchFiles

    image, truth = made
    seen: Counter[str] = Counter()
    for rank in range(2):
        with FileDataset(image, pattern="*.bin", seed=2, rank=rank, world=2) as files:
            shared = TorchFiles(files)
            orders = []
            for epoch in (0, 1, 0):
                shared.set_epoch(epoch)
                loader = torch.utils.data.DataLoader(
                    shared,
                    batch_size=None,
                    num_workers=workers,
                    multiprocessing_context="spawn" if workers else None,
                )
                samples = list(loader)
                for sample in samples:
                    assert sample["data"].numpy().tobytes() == truth[sample["path"]]
                orders.append([sample["path"] for sample in samples])
            assert orders[0] == orders[2]
            assert len(orders[0]) == len(shared)
        seen.update(orders[0])
    assert seen == Counter(dict.fromkeys(truth, 1))
