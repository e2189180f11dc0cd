"""Many coroutines read one emulated SSD at once, in an event loop that goes on meanwhile.

python examples/python/many_readers.py
"""

import asyncio
import random
import time

import flashmob
import numpy as np

READERS = 64
READS = 50


async def reader(queue: flashmob.Queue, blocks: int, seed: int) -> None:
    """Reads blocks at random, one after the other."""
    draw = random.Random(seed)
    buffer = np.empty(512, np.uint8)
    for _ in range(READS):
        await queue.read(draw.randrange(blocks), buffer)


async def main() -> None:
    """Starts the readers and waits for all of them."""
    with flashmob.Ssd("d7-ps1010", size="1G", media="generated") as ssd, ssd.queue(depth=READERS) as queue:
        begun = time.perf_counter()
        await asyncio.gather(*(reader(queue, ssd.namespace.blocks, seed) for seed in range(READERS)))
        seconds = time.perf_counter() - begun
        print(f"{READERS * READS} reads by {READERS} coroutines: {READERS * READS / seconds:,.0f} a second")


if __name__ == "__main__":
    asyncio.run(main())
