"""The SLC cliff of a client drive over bytes written, in virtual time."""

from __future__ import annotations

import flashmob
import pytest


def bytes_per_s(ios: int) -> float:
    result = flashmob.bench(
        "980-pro", clock="virtual", rw="write", bs="128k", qd=32, queues=1, size="2G", fill=False, verify=0, ios=ios
    )
    assert result.flash is not None
    return result.bw_bytes


def test_writes_of_a_client_drive_are_fast_until_its_cache_is_full() -> None:
    # 11.3 % of 2 GiB are 231 MiB: a little less than 1,850 requests, those of the ramp among them.
    fast, beyond = bytes_per_s(1_000), bytes_per_s(8_000)
    assert fast == pytest.approx(5.0e9, rel=0.1)
    assert beyond < 0.45 * fast
