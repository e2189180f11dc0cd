"""flashmob: a software-defined NVMe SSD in user space, in real and in virtual time.

    import flashmob

    result = flashmob.bench("d7-ps1010", bs=512, queues=4, qd=128, runtime="3s")
    print(result.iops, result.verdict)

    with flashmob.Ssd.from_profile("storagenext-10m", size="1G") as ssd:
        ...

Times are nanoseconds (_ns), sizes bytes (_bytes), rates requests per second (_iops).
"""

from flashmob import _start  # noqa: F401  (first, so that it is there while all the rest is imported)

# isort: split
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from flashmob.errors import ConfigError, NvmeError
from flashmob.faults import FaultCount
from flashmob.models import Profile
from flashmob.profiles import load_profile, profile_names
from flashmob.result import Result
from flashmob.runner import bench
from flashmob.ssd import Future, Namespace, Queue, Ssd

try:
    __version__ = _version("flashmob")
except PackageNotFoundError:  # Run from the source tree.
    __version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "FaultCount",
    "Future",
    "Namespace",
    "NvmeError",
    "Profile",
    "Queue",
    "Result",
    "Ssd",
    "__version__",
    "bench",
    "load_profile",
    "profile_names",
]
