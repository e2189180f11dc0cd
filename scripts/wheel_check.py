"""Is run by the interpreter of a virtual environment that has nothing but the wheel: it works, and is complete."""

import subprocess
import sys
from pathlib import Path

import flashmob
from flashmob.profiles import profile_names


def main() -> None:
    """Exits 1 by an exception where something is missing or wrong."""
    own = Path(sys.prefix).resolve()
    assert own in Path(flashmob.__file__).resolve().parents, f"{flashmob.__file__} is not of this environment"
    assert "d7-ps1010" in profile_names()
    result = flashmob.bench("d7-ps1010", clock="virtual", ios=50_000, size="64M", verify=100)
    assert result.verdict == "VALID", result
    assert result.verified > 0, result
    assert not result.verify_errors, result
    done = subprocess.run(
        [own / "bin/flashmob", "bench", "unlimited", "--clock", "virtual", "--ios", "20000", "--size", "16M"],
        check=False,
    )
    assert done.returncode == 0, done.returncode


if __name__ == "__main__":
    main()
