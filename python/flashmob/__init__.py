"""flashmob: a software-defined NVMe SSD in user space, in real and in virtual time.

    import flashmob

    result = flashmob.bench("d7-ps1010", bs=512, queues=4, qd=128, runtime="3s")
    print(result.iops, result.verdict_text)

    with flashmob.Ssd("kioxia-10m", size="1G") as ssd:
        ssd.write(0, b"hello".ljust(512))
        print(ssd.read(0)[:5].tobytes(), ssd.smart_log())

Times are nanoseconds (_ns), sizes bytes (_bytes), rates requests per second (_iops).
"""

# Type checkers take a name of this kind for true. The module typing is not imported: the command line passes through
# here before it can see to Ctrl-C, and pytest in every project of a machine where flashmob is installed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from flashmob.errors import ConfigError as ConfigError
    from flashmob.errors import ControllerFatalError as ControllerFatalError
    from flashmob.errors import NvmeError as NvmeError
    from flashmob.faults import FaultCount as FaultCount
    from flashmob.identify import IdentifyController as IdentifyController
    from flashmob.identify import IdentifyNamespace as IdentifyNamespace
    from flashmob.keywords import BenchKeywords as BenchKeywords
    from flashmob.keywords import SsdKeywords as SsdKeywords
    from flashmob.models import Profile as Profile
    from flashmob.plotting import plot as plot
    from flashmob.profiles import load_profile as load_profile
    from flashmob.profiles import profile_names as profile_names
    from flashmob.queues import Future as Future
    from flashmob.queues import Namespace as Namespace
    from flashmob.queues import Queue as Queue
    from flashmob.result import Result as Result
    from flashmob.runner import bench as bench
    from flashmob.smart import SmartLog as SmartLog
    from flashmob.ssd import Ssd as Ssd

    __version__: str

# Where each public name lives. A module is loaded when a name of it is first used: pytest, which loads the plugin
# wherever flashmob is installed, must not wait for all of it.
_HOMES = {
    "BenchKeywords": "keywords",
    "ConfigError": "errors",
    "ControllerFatalError": "errors",
    "FaultCount": "faults",
    "Future": "queues",
    "IdentifyController": "identify",
    "IdentifyNamespace": "identify",
    "Namespace": "queues",
    "NvmeError": "errors",
    "Profile": "models",
    "Queue": "queues",
    "Result": "result",
    "SmartLog": "smart",
    "Ssd": "ssd",
    "SsdKeywords": "keywords",
    "bench": "runner",
    "load_profile": "profiles",
    "plot": "plotting",
    "profile_names": "profiles",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> "Any":
    """Loads a public name."""
    if name == "__version__":
        value: object = _version()
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(f"flashmob.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'flashmob' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flashmob")
    except PackageNotFoundError:  # Run from the source tree.
        return "0.1.0"
