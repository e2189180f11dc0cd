"""Queues and futures: waiting in threads and in event loops, memory of any library's, and no wait without an end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flashmob import ConfigError, ControllerFatalError, Future, NvmeError, Queue, Ssd
from flashmob.profiles import parse_profile
from numpy.typing import NDArray

FAST = '[timing]\nmodel = "none"\n'
SLOW = "[timing]\nread_iops=1e6\nwrite_iops=1e6\nread_latency_ns='20ms'\nwrite_latency_ns='20ms'\n"
# Far below the time-outs that would otherwise apply (30 s), far above what a busy machine needs.
SOON_S = 10.0


@pytest.fixture
def ssd() -> Iterator[Ssd]:
    with Ssd(parse_profile(FAST), size="16M", timeout_s=0.5) as device:
        yield device


def block(byte: int = 0, count: int = 1) -> NDArray[np.uint8]:
    return np.full(512 * count, byte, np.uint8)


class OnlyDLPack:
    """An array that offers DLPack and nothing else, as a tensor does."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


# -- starting and waiting


def test_starting_never_waits_for_a_slot(ssd: Ssd) -> None:
    ssd.set_faults(["delay on=write delay=300ms"])
    queue = ssd.queue(depth=2)
    begun = time.monotonic()
    futures = [queue.write(lba, block(lba)) for lba in range(10)]
    assert time.monotonic() - begun < 0.3
    assert queue.outstanding() == 10
    assert "outstanding=10" in repr(queue)
    ssd.set_faults([])
    for lba, future in enumerate(futures):
        future.result(timeout_s=SOON_S)
        assert ssd.read(lba)[0] == lba


@pytest.mark.parametrize("depth", [1, 3])
def test_large_requests_take_turns(ssd: Ssd, depth: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 3 << 20, dtype=np.uint8)
    back = np.zeros_like(data)
    with ssd.queue(depth=depth) as queue:
        queue.write(8, data).result(timeout_s=SOON_S)
        futures = [queue.read(8, back), queue.flush(), queue.read(8, block())]
        assert queue.poll() <= 3
        for future in futures:
            future.result(timeout_s=SOON_S)
    assert np.array_equal(back, data)
    assert repr(queue) == f"<Queue depth={depth} closed>"


def test_requests_beyond_the_controllers_transfer_size() -> None:
    with Ssd(parse_profile(FAST), size="1M", set={"controller.max_transfer_bytes": "4k"}) as device:
        device.write(0, block(7, 64))
        assert device.read(0, 64).tolist() == [7] * 512 * 64


def test_an_error_in_one_command_fails_the_request(ssd: Ssd) -> None:
    ssd.set_faults(["error on=write lba=600"])
    future = ssd.queue(depth=2).write(0, block(1, 1024))
    error = future.exception(timeout_s=SOON_S)
    assert isinstance(error, NvmeError)
    assert error.status & 0x7FF == 0x280
    with pytest.raises(NvmeError, match="write to namespace 1 at LBA 0 failed: Write Fault"):
        future.result()
    assert repr(future).startswith("<Future write to namespace 1 at LBA 0: status=0x")


def test_callbacks(ssd: Ssd, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Future] = []
    queue = ssd.queue(depth=2)
    future = queue.read(0, block())
    future.add_done_callback(seen.append)
    future.add_done_callback(lambda _: 1 // 0)
    again = []
    future.add_done_callback(lambda _: again.append(queue.read(1, block())))
    future.result()
    future.add_done_callback(seen.append)
    assert seen == [future, future]
    again[0].result()
    assert "ZeroDivisionError" in caplog.text


def test_any_thread_waits_for_any_future(ssd: Ssd) -> None:
    queue = ssd.queue(depth=8)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                lba = number * 64 + turn
                queue.write(lba, block(number)).result(timeout_s=SOON_S)
                back = block()
                queue.read(lba, back).result(timeout_s=SOON_S)
                assert back[0] == number
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failed
    assert queue.outstanding() == 0


# -- event loops


def test_await_in_an_event_loop(ssd: Ssd) -> None:
    async def work() -> list[int]:
        queue = ssd.queue(depth=4)
        await asyncio.gather(*(queue.write(lba, block(lba)) for lba in range(20)))
        buffers = [block() for _ in range(20)]
        for lba, buffer in enumerate(buffers):
            await queue.read(lba, buffer)
        return [int(buffer[0]) for buffer in buffers]

    # A second loop finds the same queues usable, too.
    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(work(), SOON_S)) == list(range(20))


def test_the_loop_goes_on_while_a_coroutine_waits() -> None:
    async def work(queue: Queue) -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        await asyncio.wait_for(queue.read(0, block()), SOON_S)
        ticking.cancel()
        return ticks

    with Ssd(parse_profile(SLOW), size="1M") as device:
        assert asyncio.run(work(device.queue())) >= 3


def test_a_waiting_coroutine_does_not_burn_a_core(ssd: Ssd) -> None:
    ssd.set_faults(["lose on=read"])

    async def work() -> None:
        with pytest.raises(TimeoutError, match=r"read of namespace 1 at LBA 3 has not completed.*lose on=read \(1 of"):
            await ssd.queue().read(3, block())

    burned = time.thread_time()
    asyncio.run(asyncio.wait_for(work(), SOON_S))
    # It waits for 0.5 s; busy waiting would take about as much.
    assert time.thread_time() - burned < 0.25


def test_errors_and_cancellation_in_an_event_loop(ssd: Ssd) -> None:
    ssd.set_faults(["error on=read lba=5", "delay on=read lba=6 delay=100ms"])

    async def work() -> None:
        queue = ssd.queue()
        with pytest.raises(NvmeError, match="Unrecovered Read Error"):
            await queue.read(5, block())
        slow = queue.read(6, block())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow, 0.01)
        assert slow.status() is None
        task = asyncio.ensure_future(slow)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The command itself goes on.
        await slow
        assert slow.status() == 0
        found = await asyncio.gather(queue.read(5, block()), queue.read(7, block()), return_exceptions=True)
        assert isinstance(found[0], NvmeError)
        assert found[1] is None

    asyncio.run(asyncio.wait_for(work(), SOON_S))


def test_closing_wakes_a_coroutine(ssd: Ssd) -> None:
    ssd.set_faults(["lose on=read"])

    async def work() -> None:
        queue = ssd.queue()
        waiting = asyncio.ensure_future(queue.read(0, block()))
        await asyncio.sleep(0.01)
        queue._abandon()
        with pytest.raises(RuntimeError, match="the queue is closed"):
            await waiting

    asyncio.run(asyncio.wait_for(work(), SOON_S))


def test_a_future_completed_in_another_thread_wakes_the_loop(ssd: Ssd) -> None:
    ssd.set_faults(["delay on=read delay=50ms"])

    async def work() -> None:
        queue = ssd.queue()
        future = queue.read(0, block())
        await asyncio.gather(future, asyncio.to_thread(queue.drain, SOON_S))

    asyncio.run(asyncio.wait_for(work(), SOON_S))


# -- memory of any library's


@pytest.mark.parametrize("writable", [True, False])
def test_arrays_with_dlpack_alone(ssd: Ssd, writable: bool) -> None:
    data = np.arange(256, dtype=np.uint16)
    queue = ssd.queue()
    queue.write(0, OnlyDLPack(data)).result()
    back = np.zeros(256, np.uint16)
    ssd.read_into(0, OnlyDLPack(back))
    assert np.array_equal(back, data)
    back.setflags(write=writable)
    if not writable:
        with pytest.raises((TypeError, BufferError), match="OnlyDLPack cannot be used"):
            queue.read(0, OnlyDLPack(back))
    with pytest.raises(TypeError, match="not contiguous"):
        queue.write(0, OnlyDLPack(np.zeros((512, 2), np.uint8)[:, 0]))


@pytest.mark.parametrize(
    "array",
    [
        np.full(64, None, object),
        np.zeros(32, [("number", np.int64), ("thing", object)]),
        np.zeros(64, [("inner", [("thing", object)])]),
        memoryview(np.full(64, None, object)),
        (ctypes.py_object * 64)(),
    ],
    ids=["objects", "structure", "nested", "memoryview", "ctypes"],
)
def test_references_to_objects_are_no_data(ssd: Ssd, array: Any) -> None:
    queue = ssd.queue()
    for use in (queue.write, queue.read, ssd.write, ssd.read_into):
        with pytest.raises(TypeError, match="its elements are references to Python objects, not data"):
            use(0, array)
    assert not ssd.read(0).any(), "nothing was written"


def test_data_of_any_type_is_taken(ssd: Ssd) -> None:
    days = np.arange("2000-01", "2000-03", dtype="datetime64[D]")  # NumPy has no format for these
    days = np.resize(days, 64)
    ssd.write(0, days)
    back = np.zeros_like(days)
    ssd.read_into(0, back)
    assert np.array_equal(back, days)
    named = np.zeros(64, [("O", np.int32), ("fOO", np.int32)])
    named["O"] = 7
    ssd.write(0, named)
    back_again = np.zeros_like(named)
    ssd.read_into(0, back_again)
    assert np.array_equal(back_again, named)
    with pytest.raises((TypeError, ValueError), match="cannot be used"):
        ssd.write(0, np.zeros(32, [("day", "datetime64[D]"), ("thing", object)]))


def test_what_is_read_is_offered_to_other_libraries(ssd: Ssd) -> None:
    ssd.write(0, b"x" * 512)
    found = ssd.read(0)
    assert np.from_dlpack(found)[0] == ord("x")
    assert memoryview(found).nbytes == 512


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        ("text", "text cannot be used as a buffer: give bytes, such as .text..encode"),
        (7, "a buffer of type int cannot be used"),
        (b"\0" * 512, "give writable, contiguous memory on the CPU, such as numpy.empty"),
        (np.zeros(500, np.uint8), "500 bytes is no whole number of blocks; namespace 1 has blocks of 512 bytes"),
        (np.zeros(0, np.uint8), "0 bytes is no whole number of blocks"),
    ],
)
def test_unfit_memory_is_named(ssd: Ssd, buffer: Any, said: str) -> None:
    queue = ssd.queue()
    with pytest.raises((TypeError, ValueError, BufferError), match=said):
        queue.read(0, buffer)
    with pytest.raises(ValueError, match="lba = -1 is not possible: use 0 to 32767"):
        queue.read(-1, block())
    with pytest.raises(ValueError, match="namespace 3 does not exist: use 1 to 1"):
        queue.read(0, block(), namespace=3)


# -- nothing waits forever


@pytest.mark.parametrize("rule", ["lose on=read", "delay on=read delay=60s"])
def test_what_is_lost_ends_in_an_error_within_seconds(ssd: Ssd, rule: str) -> None:
    begun = time.monotonic()
    ssd.set_faults([rule])
    with pytest.raises(TimeoutError, match=rule):
        ssd.read(0)
    queue = ssd.queue(depth=2)
    futures = [queue.read(0, block()) for _ in range(5)]  # more than the ring holds
    with pytest.raises(TimeoutError, match=r"has not completed within 0\.1 s"):
        futures[4].result(timeout_s=0.1)
    with pytest.raises(TimeoutError, match=r"5 requests have not completed within 0\.5 s"):
        queue.drain()
    ssd.set_faults([])
    # What was lost takes nothing away from the convenient calls.
    for _ in range(40):
        ssd.read(0)
    ssd.close()
    assert time.monotonic() - begun < SOON_S
    with pytest.raises(RuntimeError, match="the SSD is closed"):
        futures[0].result()


@pytest.mark.parametrize("timeout_s", ["1", math.nan, -1, True])
def test_a_wait_that_is_none_is_refused(ssd: Ssd, timeout_s: Any) -> None:
    ssd.set_faults(["lose on=read"])
    queue = ssd.queue()
    future = queue.read(0, block())
    for wait in (future.result, future.exception, queue.drain):
        with pytest.raises(ConfigError, match=r"^timeout_s = .* is not possible: use seconds, 0 or more, or math.inf"):
            wait(timeout_s)
    with pytest.raises(TimeoutError):
        future.result(0)


def test_asking_a_lost_command_never_raises(ssd: Ssd) -> None:
    queue = ssd.queue()
    answered = queue.read(0, block())
    answered.result()
    ssd.set_faults(["lose on=read"])
    lost = queue.read(0, block())
    queue.close()
    assert answered.done()
    assert not lost.done()
    with pytest.raises(RuntimeError, match="the queue is closed"):
        lost.result()
    ssd.close()
    assert not lost.done()


def test_a_queue_that_is_dropped_with_lost_commands_does_not_hang(ssd: Ssd) -> None:
    ssd.set_faults(["lose on=read"])
    begun = time.monotonic()
    queue: Queue | None = ssd.queue(depth=2)
    assert queue is not None
    queue.read(0, block())
    del queue
    gc.collect()
    with ssd.queue(depth=2) as other:
        other.read(0, block())
    assert time.monotonic() - begun < SOON_S


def test_what_is_lost_does_not_keep_close() -> None:
    begun = time.monotonic()
    device = Ssd(parse_profile(FAST), size="1M", faults=["lose on=read every=4"], timeout_s=600)
    queue, other, writer = device.queue(depth=8), device.queue(depth=2), device.queue()
    for _ in range(50):  # more than the ring holds
        queue.read(0, block())
    other.read(0, block())
    written = writer.write(0, block())
    device.set_faults([])
    device.close()
    assert written.status() == 0, "what is not lost is waited for"
    assert time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("rule", ["lose on=read", "fatal on=read at=1"])
def test_a_reset_is_the_way_out(rule: str) -> None:
    begun = time.monotonic()
    with Ssd(parse_profile(FAST), size="1M", faults=[rule], timeout_s=600) as device:
        device.write(0, block())
        queue = device.queue()
        future = queue.read(0, block())
        while not device.faults[0].injected:
            time.sleep(0.001)
        device.set_faults([])
        device.reset()
        assert not device.fatal
        with pytest.raises(RuntimeError, match="the queue is closed"):
            future.result()
        with pytest.raises(RuntimeError, match="the queue is closed"):
            queue.write(0, block())
        device.read(0)
        device.queue().read(0, block()).result()
    assert time.monotonic() - begun < SOON_S


def test_a_reset_wakes_who_waits(ssd: Ssd) -> None:
    ssd.timeout_s = 600
    ssd.set_faults(["lose on=read"])
    begun, errors = time.monotonic(), []

    def read() -> None:
        try:
            ssd.read(0)
        except RuntimeError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=read)
    waiting.start()
    while not ssd.faults[0].injected:
        time.sleep(0.001)
    ssd.set_faults([])
    ssd.reset()
    waiting.join()
    assert errors == ["the queue is closed"]
    ssd.read(0)
    assert time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("rule", ["fatal on=read at=1", "drop on=read at=1"])
def test_a_dead_controller_is_an_error_at_once(rule: str) -> None:
    begun = time.monotonic()
    with Ssd(parse_profile(FAST), size="1M", faults=[rule]) as device:
        queue = device.queue()
        future = queue.read(0, block())
        way_out = r"fatal status.*; reset\(\) is the way out$"
        with pytest.raises(ControllerFatalError, match=way_out):
            future.result()
        assert device.fatal

        async def work() -> None:
            await future

        with pytest.raises(ControllerFatalError, match=way_out):
            asyncio.run(work())
        with pytest.raises(ControllerFatalError, match=way_out):
            device.identify_controller()
        with pytest.raises(ControllerFatalError, match=way_out):
            device.read(0)
    assert time.monotonic() - begun < SOON_S


def test_admin_commands_that_are_lost_or_fail(ssd: Ssd) -> None:
    ssd.set_faults(["lose on=identify", "error on=get-log-page status=0x006"])
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="Identify"):
        ssd.identify_controller()
    with pytest.raises(NvmeError, match=r"Get Log Page \(LID 02h\) failed: Internal Error") as caught:
        ssd.smart_log()
    assert caught.value.status & 0x7FF == 0x006
    ssd.set_faults(["lose on=admin"])
    with pytest.raises(TimeoutError):
        ssd.queue()
    ssd.close()
    assert time.monotonic() - begun < SOON_S


def test_a_lost_admin_command_keeps_nobody_else(ssd: Ssd) -> None:
    ssd.timeout_s = 0.2
    ssd._core.set_timeout(3_000_000_000)
    ssd.set_faults(["lose on=identify", "lose on=read"])
    queue = ssd.queue()
    future = queue.read(0, block())

    def identify() -> None:
        with pytest.raises(TimeoutError):
            ssd.identify_controller()

    async def work() -> float:
        asking = asyncio.ensure_future(asyncio.to_thread(identify))
        waiting = asyncio.ensure_future(future)
        longest, last = 0.0, time.monotonic()
        while not waiting.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        with pytest.raises(TimeoutError, match="lose on=read"):
            await waiting
        await asking
        return longest

    # The lost Identify takes three seconds.
    assert asyncio.run(work()) < 1
