"""flashmob: a software-defined NVMe SSD in user space, in real and in virtual time.

    import flashmob

    result = flashmob.bench("d7-ps1010", bs=512, queues=4, qd=128, runtime="3s")
    print(result.iops, result.verdict)

    with flashmob.Ssd("storagenext-10m", size="1G") as ssd:
        ssd.write(0, b"hello".ljust(512))
        print(ssd.read(0)[:5].tobytes(), ssd.smart_log())

Times are nanoseconds (_ns), sizes bytes (_bytes), rates requests per second (_iops).
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from flashmob.errors import ConfigError, ControllerFatalError, NvmeError
from flashmob.faults import FaultCount
from flashmob.identify import IdentifyController, IdentifyNamespace
from flashmob.keywords import BenchKeywords, SsdKeywords
from flashmob.models import Profile
from flashmob.profiles import load_profile, profile_names
from flashmob.result import Result
from flashmob.runner import bench
from flashmob.smart import SmartLog
from flashmob.ssd import Future, Namespace, Queue, Ssd

try:
    __version__ = _version("flashmob")
except PackageNotFoundError:  # Run from the source tree.
    __version__ = "0.1.0"

__all__ = [
    "BenchKeywords",
    "ConfigError",
    "ControllerFatalError",
    "FaultCount",
    "Future",
    "IdentifyController",
    "IdentifyNamespace",
    "Namespace",
    "NvmeError",
    "Profile",
    "Queue",
    "Result",
    "SmartLog",
    "Ssd",
    "SsdKeywords",
    "__version__",
    "bench",
    "load_profile",
    "profile_names",
]
