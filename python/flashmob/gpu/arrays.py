"""Arrays that kernels reach: memory of a Gpu's own, and arrays that others made.

Anything with `__dlpack__`, `__cuda_array_interface__` or the buffer protocol is taken; what is returned offers
`__array_interface__`, `__dlpack__` and, on a GPU, `__cuda_array_interface__`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flashmob.device import core_module
from flashmob.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from flashmob import _core

# Device types of DLPack whose memory the host reaches: CPU, pinned by CUDA, managed by CUDA.
_HOST_REACHES = {1, 3, 13}
_CPU, _GPU, _PINNED = (1, 0), (2, 0), (3, 0)


class Array:
    """Memory of a Gpu as an array: kernels, SSDs and host code reach it at the same address. Made by Gpu.empty().

    Where `device` is a GPU, host code reaches it by copies alone: libraries for that GPU take it as it is.
    """

    def __init__(self, memory: _core.GpuMemory, shape: Sequence[int], dtype: DTypeLike, *, on_gpu: bool) -> None:
        self._memory = memory
        self._on_gpu = on_gpu
        self.shape = tuple(int(length) for length in shape)
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize

    @property
    def address(self) -> int:
        """Where it begins, for kernels, SSDs and host code alike."""
        return self._memory.address

    @property
    def placement(self) -> str:
        """Where it lies: host or device."""
        return self._memory.placement

    @property
    def device(self) -> tuple[int, int]:
        """Where it lies, in DLPack's numbers: (1, 0) the CPU's memory, (3, 0) the same, pinned, (2, 0) a GPU's own."""
        if not self._on_gpu:
            return _CPU
        return _GPU if self.placement == "device" else _PINNED

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device == _GPU:
            raise AttributeError(
                "__array_interface__: this array lies in the GPU's own memory; Gpu.copy_out() copies it"
            )
        return self._interface()

    def _interface(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._on_gpu:
            # hasattr() is how libraries ask.
            raise AttributeError("__cuda_array_interface__: this array is used by a backend on the CPU")
        return self._interface() | {"stream": None}

    def numpy(self) -> NDArray[Any]:
        """A view of the same memory.

        Raises:
            ConfigError: if it lies in a GPU's own, which host code does not reach.
        """
        if self.device == _GPU:
            raise ConfigError("this array lies in the GPU's own memory: Gpu.copy_out(array) copies it to the host's")
        return np.asarray(self)

    def __dlpack__(self, **options: Any) -> Any:
        asked = options.get("dl_device")
        if self.device == _CPU or (asked is not None and tuple(asked) == _CPU):
            return self.numpy().__dlpack__(**options)
        made = self._memory.array(list(self.shape), self.dtype.kind, self.dtype.itemsize, self.device[0])
        return made.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.numpy()[index] = value

    def __repr__(self) -> str:
        return f"Array(shape={self.shape}, dtype={self.dtype}, placement={self.placement!r})"


@dataclass(frozen=True, slots=True)
class View:
    """Where somebody's array lies, and whether host code does not reach it. `owner` keeps it alive."""

    address: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object
    on_device: bool = False


def view_of(array: Any, what: str, *, writable: bool, on_gpu: bool) -> View:
    """The memory of an array of any library's, contiguous in C order.

    Raises:
        ConfigError: naming `what`, if it cannot be used as it is.
    """
    if isinstance(array, Array):
        return View(array.address, array.nbytes, array.shape, array.dtype, array, array.device == _GPU)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        if not on_gpu:
            raise ConfigError(f"{what} lies on a GPU, but kernels run on the CPU; copy it to the CPU first")
        return _from_cuda(array, interface, what, writable)
    try:
        held = core_module().GpuArray(array, writable)
    except (TypeError, ValueError, BufferError) as error:
        need = "a writable, contiguous array" if writable else "a contiguous array"
        raise ConfigError(f"{what} of type {type(array).__name__} cannot be used ({error}); give {need}") from None
    on_device = held.device_type not in _HOST_REACHES
    if on_device and not on_gpu:
        raise ConfigError(f"{what} lies on another device, but kernels run on the CPU; copy it to the CPU first")
    return View(held.address, held.nbytes, tuple(held.shape), np.dtype(held.dtype), held, on_device)


def _from_cuda(array: Any, interface: dict[str, Any], what: str, writable: bool) -> View:
    address, read_only = interface["data"]
    dtype = np.dtype(interface["typestr"])
    shape = tuple(int(length) for length in interface["shape"])
    if writable and read_only:
        raise ConfigError(f"{what} cannot be written to; give an array that is not read-only")
    strides = interface.get("strides")
    if strides is not None and tuple(strides) != _packed(shape, dtype.itemsize):
        raise ConfigError(f"{what} is not contiguous; give a copy in C order")
    return View(int(address), math.prod(shape) * dtype.itemsize, shape, dtype, array, on_device=True)


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))
