"""flashmob gpu run: what is refused before an SSD is attached, in one sentence that names what was written."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from flashmob import ConfigError, cli
from flashmob.gpu.bench import WORKLOADS
from flashmob.gpu_options import access_of, examples, workload_options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("bfs --set foo=1", "--set foo=1: foo is not an option of bfs; use one of degree, graph, scale, seed, source"),
        ("bfs --set gaph=kronecker", 'did you mean "graph"'),
        ("bfs --set graph=tree", "--set graph=tree is not possible: use uniform or kronecker"),
        ("bfs --set scale=x", "--set scale=x is not possible: use a whole number"),
        ("mean --set count=-1", "--set count=-1 is not possible: use 0 to"),
        ("random-io --set write=maybe", "--set write=maybe is not possible: use true or false"),
        ("pagerank --set damping=much", "--set damping=much is not possible: use a number"),
        ("mean --set count", "--set count is not possible: write KEY=VALUE"),
        ("sort", "sort is not a workload"),
        ("mean --access sideways", "--access sideways is not possible: use one of plain, cached"),
        ("mean --policy mru", "--policy mru is not possible: use one of direct"),
        ("mean --cache 1q", "--cache 1q is not possible: use a size"),
        ("mean --threads 33", "--threads 33 is not possible: use a multiple of 32"),
        ("mean --access plain --cache 1M", "--cache 1M has no effect with --access plain"),
        ("mean --access uncached --policy lru", "--policy lru has no effect with --access uncached"),
        ("ctc --policy lru", "--policy lru is not for ctc"),
        ("random-io --threads 64", "use --set threads=..."),
        ("mean --ssds 0", "--ssds 0 is not possible: use 1 to 16"),
        ("mean --queues 0", "--queues 0 is not possible: use 1 to 4096"),
        ("mean --depth 1", "--depth 1 is not possible: use 2 to 65536"),
        ("mean --seed -1", "--seed -1 is not possible: use 0 to"),
        ("mean --size 1q", "--size 1q is not possible: use a size"),
        ("mean --size 1000", "--size 1000 is not possible: 1000 is not a multiple of lba_bytes = 512"),
        ("mean --engine abacus", "--engine abacus is not possible: use 'host' or 'gpu'"),
        ("mean --sms 2", "--sms 2 is for the GPU engine; add --engine gpu"),
        ("mean --backend abacus", "--backend abacus is not possible: use one of auto"),
        ("mean --clock cuckoo", "--clock cuckoo is not possible: use one of auto"),
        ("mean --service none", "--service none is not possible: use one of kernel"),
        ("mean --seed soon", "--seed soon is not possible: use a whole number such as 4096"),
        ("mean --clock virtual --backend threads", "--clock virtual is not possible: "),
        ("mean --json /", "--json / is a folder"),
        ("mean nope", "profile 'nope' is not known"),
    ],
)
def test_one_sentence_before_anything_starts(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(lambda: cli.app(["gpu", "run", *arguments.split()], standalone_mode=True)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("bfs --set scale=99", "--set scale=99 is not possible: 99 is above 32"),
        ("bfs --set source=99999999 --size 1M", "--set source=99999999 is not possible: 99999999 is no vertex"),
        ("mean --cache 0", "--cache 0 is not possible: 0 is less than one line"),
        ("mean --line 100", "--line 100 is not possible: 100 is no multiple"),
        ("mean --size 1k", "--size 1k is not possible: the workload's data do not fit"),
        ("mean --set count=1M --size 1M", "--size 1M is not possible: the workload's data do not fit"),
        ("mean --queues 4096", "--queues 4096 is not possible: SSD 0 has 255 queue pairs"),
    ],
)
def test_the_cores_errors_name_what_was_typed(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["gpu", "run", *arguments.split(), "--backend", "fibres"]
    assert cli.run(lambda: cli.app(command, standalone_mode=True)) == 2
    assert capsys.readouterr().err.startswith(f"error: {sentence}")


def test_every_workload_knows_its_options() -> None:
    for workload in WORKLOADS:
        known = examples(workload)
        assert known
        assert "access" not in known
    assert workload_options("random-io", ["bytes=4kb", "write=true", "commands=1k"]) == {
        "bytes": 4096,
        "write": True,
        "commands": 1000,
    }
    assert workload_options("ctc", ["ratios=0.5,1"]) == {"ratios": [0.5, 1.0]}
    assert workload_options("bfs", ["graph=kronecker", "source=3"]) == {"graph": "kronecker", "source": 3}


def test_access_as_it_was_without_options() -> None:
    access = access_of("mean", dict.fromkeys(("access", "policy", "cache", "line", "threads")))
    assert (access.access, access.policy, access.cache_bytes, access.line_bytes) == ("cached", "clock", 1 << 20, 4096)
    assert access_of("ctc", {"policy": None}).threads == 256
    with pytest.raises(ConfigError, match="--line 4k has no effect"):
        access_of("mean", {"access": "plain", "line": "4k"})


def test_ctrl_c_ends_a_run_while_kernels_compute() -> None:
    # It would take minutes.
    command = [sys.executable, "-m", "flashmob", "gpu", "run", "bfs", "--set", "scale=19", "--backend", "fibres"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "fibres" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == -signal.SIGINT
        finally:
            process.kill()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
