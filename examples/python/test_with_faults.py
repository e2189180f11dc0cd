"""A test-suite of software that stores records on an SSD: what does it do when the drive fails?

pytest examples/python/test_with_faults.py
"""

import flashmob
import pytest
from flashmob.pytest_plugin import Bench, MakeSsd, Serve


class Records:
    """The software under test: records of one block each, tried again when a read fails."""

    def __init__(self, ssd: flashmob.Ssd, attempts: int = 3) -> None:
        self.ssd = ssd
        self.attempts = attempts

    def put(self, number: int, text: str) -> None:
        """Stores a record; it is on the medium when this returns."""
        self.ssd.write(number, text.encode().ljust(self.ssd.namespace.lba_bytes, b"\0"))
        self.ssd.flush()

    def get(self, number: int) -> str:
        """Reads a record."""
        for attempt in range(self.attempts):
            try:
                return self.ssd.read(number).tobytes().rstrip(b"\0").decode()
            except flashmob.NvmeError:
                if attempt + 1 == self.attempts:
                    raise
        raise AssertionError


def test_a_record_comes_back(flashmob_ssd: flashmob.Ssd) -> None:
    records = Records(flashmob_ssd)
    records.put(7, "hello")
    assert records.get(7) == "hello"


def test_a_failing_read_is_tried_again(flashmob_ssd: flashmob.Ssd) -> None:
    records = Records(flashmob_ssd)
    records.put(7, "hello")
    flashmob_ssd.set_faults(["error on=read lba=7 times=2"])
    assert records.get(7) == "hello"
    assert flashmob_ssd.faults[0].injected == 2


@pytest.mark.flashmob("optane-p4800x", size="16M", timeout_s=0.5, faults=["lose on=write at=1"])
def test_a_lost_write_is_noticed(flashmob_ssd: flashmob.Ssd) -> None:
    with pytest.raises(TimeoutError, match="lose on=write"):
        Records(flashmob_ssd).put(7, "hello")


def test_two_drives(flashmob_make_ssd: MakeSsd) -> None:
    first, second = flashmob_make_ssd(), flashmob_make_ssd("d7-ps1010", faults=["error on=read p=1"])
    Records(first).put(0, "mirror")
    Records(second).put(0, "mirror")
    assert Records(first).get(0) == "mirror"
    with pytest.raises(flashmob.NvmeError, match="Unrecovered Read Error"):
        Records(second).get(0)


def test_another_process_could_attach(flashmob_serve: Serve, flashmob_bench: Bench) -> None:
    served = flashmob_serve("d7-ps1010", tcp=True, size="16M", faults=["error on=read at=100"])
    result = flashmob_bench(served.target, queues=1, qd=4, ios=200, verify=0)
    assert sum(result.errors.values()) == 1
    assert result.unanswered == 0
