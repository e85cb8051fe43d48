"""Arrays in and out, without copies where the memory is right already."""

from typing import Any, Iterable, Tuple, Union

import numpy as np

from . import raw
from ._types import Array

#: Token ids: a C-contiguous buffer of int32 (numpy, array.array('i'), memoryview) is taken as it is;
#: any other sequence of integers is copied into one.
Tokens = Union[Array, memoryview, Iterable[int], Any]

_KINDS = {raw.BLEND_SHIM_I32: "<i4", raw.BLEND_SHIM_U32: "<u4", raw.BLEND_SHIM_F32: "<f4"}
_INT32 = np.iinfo(np.int32)


def tokens_in(tokens: Tokens) -> Tuple[int, int, Any]:
    """What the typemap takes: address and number of int32, and who holds them while the call runs. A
    numpy array keeps the buffer that it was made of, which cannot be resized meanwhile."""
    if isinstance(tokens, (str, bytes, bytearray)):
        raise TypeError(f"tokens are integers, not {type(tokens).__name__}: tokenize the text first")
    if not isinstance(tokens, np.ndarray) and not hasattr(tokens, "__len__"):
        tokens = list(tokens)
    values = np.asarray(tokens)
    if values.size == 0:
        return 0, 0, None
    if values.ndim != 1:
        raise TypeError(f"tokens have one dimension, not {values.ndim}")
    if values.dtype == np.int32:
        values = np.ascontiguousarray(values)
    elif values.dtype.kind not in "iu":
        raise TypeError(f"tokens are integers, not {values.dtype}")
    elif values.min() < _INT32.min or values.max() > _INT32.max:
        raise ValueError("a token id does not fit 32 bits")
    else:
        values = values.astype(np.int32)
    return values.__array_interface__["data"][0], values.size, values


def floats_in(values: Any, what: str) -> Tuple[int, int, Any]:
    """As tokens_in, of float32: other numbers are converted."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise TypeError(f"{what} is an array of numbers of one dimension, not {array.dtype} of {array.ndim}")
    array = np.ascontiguousarray(array, np.float32)
    return array.__array_interface__["data"][0], array.size, array


class _Owner:
    """Memory of the library as numpy wants to see it; numpy keeps this, and this the view."""

    def __init__(self, keep: Any, address: int, size: int, kind: str, writable: bool) -> None:
        self._keep = keep
        self.__array_interface__ = {
            "data": (address, not writable), "shape": (size,), "typestr": kind, "version": 3,
        }


def view_out(view: Any) -> Array:
    """A read-only array over a raw View, which lives as long as the array does."""
    kind = _KINDS.get(view.element(), "<i4")
    if view.size() == 0:
        return np.empty(0, kind)
    return np.asarray(_Owner(view, view.data(), view.size(), kind, False))


def copy_out(view: Any) -> Array:
    """A view that nobody else can see: it needs no lease, and may be written."""
    return view_out(view).copy()


def lasting(keep: Any, address: int, size: int, kind: str) -> Array:
    """A writable array over memory that `keep` owns."""
    return np.asarray(_Owner(keep, address, size, kind, True))


def borrowed(address: int, size: int, kind: str, writable: bool) -> Array:
    """An array over memory that is valid during a callback."""
    if size == 0:
        return np.empty(0, kind)
    return np.asarray(_Owner(None, address, size, kind, writable))
