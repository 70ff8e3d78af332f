"""Converts arrays of NumPy, PyTorch and any DLPack library, without copies where possible.

In: [heads, n, head_dim]. Rows must be contiguous and follow one another; heads may be at any
stride, so a slice [:, a:b] of a larger cache is passed in place. Any other layout is copied once.
An array on a GPU is copied to the host once, a PyTorch tensor into pinned memory. bf16 is passed as
torch.bfloat16, as ml_dtypes.bfloat16, or as its bits in uint16, and f8_e4m3 as torch.float8_e4m3fn,
as ml_dtypes.float8_e4m3fn, or as its bits in uint8.

Out: read-only NumPy arrays over the memory of the object that returns them, which they keep alive.
bf16 rows are a :class:`BFloat16Array`, and f8_e4m3 rows a :class:`Float8Array`.
"""

from __future__ import annotations

import math
import reprlib
import sys
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgument, Unsupported


class BFloat16Array(np.ndarray):
    """bf16 values in NumPy: an array of their bits, as uint16.

    ``torch.from_dlpack(array)`` is a torch.bfloat16 tensor over the same memory, and
    ``array.view(ml_dtypes.bfloat16)`` a NumPy array of numbers; ``to_float32()`` needs neither.
    """

    def __dlpack__(self, **options: Any) -> Any:
        return _core.as_bfloat16(self.view(np.ndarray)).__dlpack__(**options)

    def to_float32(self) -> np.ndarray:
        """A copy in float32; exact."""
        return (self.view(np.ndarray).astype(np.uint32) << 16).view(np.float32)


def _f8_number(bits: int) -> float:
    exponent, mantissa = bits >> 3 & 15, bits & 7
    magnitude = (mantissa + 8 * (exponent > 0)) * 2.0 ** (max(exponent, 1) - 10)
    magnitude = math.nan if bits & 0x7F == 0x7F else magnitude
    return -magnitude if bits & 0x80 else magnitude


_F8_NUMBERS = np.array([_f8_number(bits) for bits in range(256)], dtype=np.float32)


class Float8Array(np.ndarray):
    """f8_e4m3 values in NumPy: an array of their bits, as uint8.

    ``torch.from_dlpack(array).view(torch.float8_e4m3fn)`` is a tensor over the same memory, and
    ``array.view(ml_dtypes.float8_e4m3fn)`` a NumPy array of numbers. ``to_float32()`` needs
    neither library.
    """

    def to_float32(self) -> np.ndarray:
        """A copy in float32; exact."""
        return _F8_NUMBERS[self.view(np.ndarray)]


def rows_out(rows: np.ndarray) -> np.ndarray:
    """K or V rows of the extension module in the type that users see."""
    if rows.dtype == np.uint8:
        return rows.view(Float8Array)
    return rows.view(BFloat16Array) if rows.dtype == np.uint16 else rows


def heads_in(array: Any, field: str) -> Any:
    """K, V or queries in the form that the extension module takes; copies only if it must."""
    if _is_torch(array):
        array = _bits_of_f8(_to_host(array.detach(), field))
        return array if _rows_follow(array.shape, array.stride()) else array.contiguous()
    if not isinstance(array, np.ndarray):
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{field}: {type(array).__name__} is not an array")
        if _on_host(array):
            return array
        array = _brought(array, field)
        if not isinstance(array, np.ndarray):
            return array
    array = _numpy_in(array, field)
    strides = [stride // max(1, array.itemsize) for stride in array.strides]
    return array if _rows_follow(array.shape, strides) else np.ascontiguousarray(array)


def exported(array: Any) -> Any:
    """The array in the form that the extension module takes within a call.

    Otherwise the extension module would request the DLPack capsule, which runs Python code in most
    libraries. C++ code must not do that: if the interpreter ends meanwhile, it ends the thread in a
    way that C++ cannot handle.
    """
    if array is None or isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return array
    return array.__dlpack__()


def rows_in_place(array: Any, field: str) -> Any:
    """K or V rows to be written in place, in the form that the extension module takes."""
    if _is_torch(array):
        array = _writable(array, field)
        if array.device.type != "cpu":
            raise InvalidArgument(f"{field}: the tensor is on {array.device}, not in host memory")
        strides = array.stride()
    elif isinstance(array, np.ndarray):
        if not array.flags.writeable:
            raise InvalidArgument(f"{field}: the array is read-only")
        array = _numpy_in(array, field)
        strides = tuple(stride // max(1, array.itemsize) for stride in array.strides)
    else:
        raise InvalidArgument(
            f"{field}: {type(array).__name__} is neither a NumPy array nor a PyTorch tensor"
        )
    if not _rows_follow(array.shape, strides):
        raise InvalidArgument(f"{field}: rows of [heads, n, head_dim] must be contiguous")
    return array


def pages_in_place(array: Any, field: str) -> Any:
    """Pages of rows [num_pages, page_rows, head_dim] to be written in place."""
    if _is_torch(array):
        if array.device.type not in ("cpu", "cuda"):
            raise Unsupported(
                f"{field}: the tensor is on {array.device}, must be in host memory or on a CUDA "
                "device"
            )
        return _writable(array, field)
    if not isinstance(array, np.ndarray):
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{field}: {type(array).__name__} is not an array")
        if not _on_host(array):
            return array  # the extension module says which devices it knows
        try:
            array = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as error:
            raise InvalidArgument(f"{field}: NumPy can't take it: {error}") from None
    if not array.flags.writeable:
        raise InvalidArgument(f"{field}: the array is read-only")
    array = _numpy_in(array, field)
    if any(stride % array.itemsize for stride in array.strides):
        raise InvalidArgument(
            f"{field}: strides are {array.strides} B, must be multiples of an element's "
            f"{array.itemsize} B"
        )
    return array


def page_numbers(value: Any, field: str, dimensions: int) -> np.ndarray:
    """Page numbers, or indices into a table of them, as uint32; a uint32 array is not copied."""
    if _is_torch(value):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.ndim != dimensions:
        raise InvalidArgument(
            f"{field}: shape {list(array.shape)}, must have {dimensions} dimensions"
        )
    if array.dtype != np.uint32 and array.size:
        if array.dtype.kind not in "iu":
            raise InvalidArgument(f"{field}: dtype {array.dtype}, must be integers")
        if int(array.min()) < 0 or int(array.max()) >= 1 << 32:
            raise InvalidArgument(f"{field}: a number lies outside [0, 2^32)")
    return np.ascontiguousarray(array, dtype=np.uint32)


def _numpy_in(array: np.ndarray, field: str) -> np.ndarray:
    """The array with a dtype that the extension module can read: numbers; others as their bits."""
    array = array.view(np.ndarray)
    if array.dtype.name == "bfloat16":  # ml_dtypes' types
        array = array.view(np.uint16)
    if array.dtype.name == "float8_e4m3fn":
        array = array.view(np.uint8)
    if array.dtype.kind not in "biufc":
        raise InvalidArgument(f"{field}: dtype {array.dtype} is not a dtype of numbers")
    return array


def _bits_of_f8(tensor: Any) -> Any:
    """The tensor; of float8_e4m3fn its bits, because not every PyTorch exports this dtype."""
    is_f8 = str(tensor.dtype) == "torch.float8_e4m3fn"
    return tensor.view(sys.modules["torch"].uint8) if is_f8 else tensor


def _writable(tensor: Any, field: str) -> Any:
    """The tensor without its gradient; a negative view, whose memory differs, is refused."""
    if tensor.is_neg():
        raise InvalidArgument(
            f"{field}: the tensor is the negative of what its memory holds; pass its resolve_neg()"
        )
    return _bits_of_f8(tensor.detach())


def _to_host(tensor: Any, field: str) -> Any:
    """The tensor, or a copy of it in host memory; a GPU fills a pinned copy."""
    tensor = tensor.resolve_neg()  # a negative view's memory holds the negated values
    if tensor.device.type == "cpu":
        return tensor
    torch = sys.modules["torch"]
    if tensor.device.type != "cuda":
        try:
            return tensor.cpu()
        except (NotImplementedError, RuntimeError) as error:
            raise InvalidArgument(f"{field}: the tensor is on {tensor.device}: {error}") from None
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return host


# The DLPack device types of memory that the host can read.
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost


def _on_host(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    return device is None or device()[0] in _HOST_DEVICES


class _HostCopy:
    """The host copy of an array on another device, made by the array's own library."""

    def __init__(self, array: Any, field: str) -> None:
        self._array, self._field = array, field
        self.shape = array.shape

    def __dlpack__(self, **_: Any) -> Any:
        try:
            return self._array.__dlpack__(dl_device=(_HOST_DEVICES[0], 0))
        except (TypeError, BufferError, ValueError, NotImplementedError, RuntimeError) as error:
            raise InvalidArgument(
                f"{self._field}: the array lies on DLPack device "
                f"{tuple(self._array.__dlpack_device__())} and {type(self._array).__name__} does "
                f"not copy it to host memory ({error}); copy it there first"
            ) from None

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST_DEVICES[0], 0


def _brought(array: Any, field: str) -> Any:
    """A copy in host memory of an array on another device; NumPy's if NumPy has its dtype."""
    copy = _HostCopy(array, field)
    try:
        return np.from_dlpack(copy)
    except (BufferError, RuntimeError, TypeError):  # a dtype that NumPy lacks, such as bf16
        return copy


def _rows_follow(shape: Any, strides: Any) -> bool:
    """Whether the extension module can read this layout, or will report that it is not 3-D."""
    if len(shape) != 3:
        return True
    heads, tokens, dim = shape
    return (
        (dim <= 1 or strides[2] == 1)
        and (tokens <= 1 or strides[1] == dim)
        and (heads <= 1 or strides[0] >= 0)
    )


def floats_in(array: Any, field: str, shape: tuple[int, ...] | None) -> np.ndarray | None:
    """lse or scores as a contiguous float32 array of the given shape (None stays None).

    `shape`: None for any shape, if the array will be refused for another reason.
    """
    if array is None:
        return None
    try:
        out = np.ascontiguousarray(_numbers(array, field), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{field}: {error}") from None
    if shape is not None and out.shape != shape:
        raise InvalidArgument(f"{field}: shape {list(out.shape)}, must be {list(shape)}")
    return out


def _numbers(array: Any, field: str) -> Any:
    """A small float array from any memory, in a form that NumPy accepts."""
    if _is_torch(array):
        return _to_host(array.detach().float(), field).numpy()
    if not isinstance(array, np.ndarray) and not _on_host(array):
        return _brought(array, field)
    return array


def tokens_in(tokens: Any) -> np.ndarray:
    """Token ids of one path as uint32, from a sequence, an array, or a tensor [n] or [1, n]."""
    if _is_torch(tokens):
        tokens = tokens.detach().cpu().numpy()
    try:
        array = np.asarray(tokens)
    except ValueError as error:
        raise InvalidArgument(f"tokens: {error}") from None
    if array.ndim == 0:
        raise InvalidArgument(f"tokens: {reprlib.repr(tokens)} is not a sequence of token ids")
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise InvalidArgument(
            f"tokens: shape {list(array.shape)}, must be one sequence, [n] or [1, n]"
        )
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgument(f"tokens: the ids are {array.dtype}, not integers")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 1 << 32):
        raise InvalidArgument("tokens: an id lies outside [0, 2^32)")
    return np.ascontiguousarray(array, dtype=np.uint32)


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def count_in(value: Any, field: str, maximum: int = 2**31 - 1) -> int:
    """A non-negative whole number, for an index or a size."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{field}: {value!r} is not a whole number")
    number = value.__index__()
    if not 0 <= number <= maximum:
        raise InvalidArgument(f"{field} is {number}, must be in [0, {maximum}]")
    return number


def statistics_in(value: Any, field: str, dimensions: int) -> np.ndarray | None:
    """Query statistics, float32 [num_q_heads, head_dim] or [num_q_heads, head_dim, head_dim]."""
    if value is None:
        return None
    array = np.asarray(_numbers(value, field))
    if array.ndim != dimensions:
        raise InvalidArgument(
            f"{field}: shape {list(array.shape)}, must have {dimensions} dimensions"
        )
    return floats_in(array, field, array.shape)
