"""A small model learns from files that our driver reads out of an unmounted image: a new order each epoch, by seed.

    python examples/python/train_on_files.py

It makes the files and the image itself (with mke2fs), stops in the middle of an epoch, and resumes there. The task is
one that can be learned: whether a file's bytes are low or high on average, from a histogram of them.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from flashmob.dataset import FileDataset, Sample

FILES, EPOCHS, BATCH = 400, 3, 16


def make_image(folder: Path) -> Path:
    """Files in two folders, one for each class, in a file system that is not mounted."""
    draw = np.random.default_rng(1)
    for number in range(FILES):
        label = number % 2
        path = folder / "tree" / f"class-{label}" / f"{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.normal(112 + 32 * label, 40, 5000 + number).clip(0, 255).astype(np.uint8).tobytes())
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    mke2fs = shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if mke2fs is None:
        sys.exit("this example makes an ext4 image: install e2fsprogs")
    subprocess.run([mke2fs, "-q", "-t", "ext4", "-d", folder / "tree", image], check=True)
    return image


def features(batch: list[Sample]) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of bytes, and labels from the paths."""
    x = np.stack([np.bincount(sample.data >> 4, minlength=16) / sample.data.size for sample in batch])
    return x, np.array([float("class-1" in sample.path) for sample in batch])


class Model:
    """Logistic regression by gradient descent."""

    def __init__(self) -> None:
        self.weights, self.bias = np.zeros(16), 0.0

    def learn(self, x: np.ndarray, y: np.ndarray) -> float:
        """One step; the share of the batch that was right before it."""
        guess = 1 / (1 + np.exp(-(x @ self.weights + self.bias)))
        self.weights -= 5.0 * x.T @ (guess - y) / len(y)
        self.bias -= 0.5 * float(np.mean(guess - y))
        return float(np.mean((guess > 0.5) == (y > 0.5)))


def main() -> None:
    """Trains, with a stop in the second epoch."""
    with tempfile.TemporaryDirectory() as name:
        image, model = make_image(Path(name)), Model()
        state = None
        for run in ("first run", "resumed"):
            with FileDataset(image, pattern="*.bin", seed=7) as files:
                if state is not None:
                    files.load_state_dict(state)
                while files.epoch < EPOCHS:
                    epoch, right = files.epoch, []
                    for batch in files.batches(BATCH):
                        right.append(model.learn(*features(batch)))
                        if run == "first run" and epoch == 1 and len(right) == 10:
                            break
                    print(f"{run}, epoch {epoch}: {len(right)} batches, {np.mean(right):.0%} right")
                    if files.epoch == epoch:
                        break
                state = files.state_dict()


if __name__ == "__main__":
    main()
