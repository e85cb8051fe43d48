"""K and V in the host's memory."""

from typing import Any, Optional, Tuple, Union

import numpy as np

from . import raw
from ._enums import Dtype, choice
from ._types import Array

#: (k, v) of one layer: [rows, n_kv_heads, head_dim] of float32, float16, or uint16 for bf16.
KvLayer = Tuple[Array, Array]

_DTYPES = {np.dtype(np.float32): Dtype.F32, np.dtype(np.float16): Dtype.F16}


def raw_view(k: Array, v: Array, dtype: Optional[Union[Dtype, str]], unrotated: bool,
             writable: bool) -> Any:
    """The raw view of two arrays, which the caller keeps. Nothing is copied."""
    for name, array in (("k", k), ("v", v)):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is a numpy array (of a torch tensor: .numpy()), not {type(array).__name__}")
        if array.ndim != 3:
            raise ValueError(f"{name} is [rows, n_kv_heads, head_dim], not {array.shape}")
        if writable and not array.flags.writeable:
            raise ValueError(f"{name} must be writable")
    if k.shape != v.shape or k.strides != v.strides or k.dtype != v.dtype:
        raise ValueError("k and v must have one shape, one dtype and the same strides")
    if dtype is None:
        if k.dtype not in _DTYPES:
            raise ValueError(f"float32, float16, or uint16 with dtype='bf16' are taken, not {k.dtype}")
        number = int(_DTYPES[k.dtype])
    else:
        number = choice(Dtype, dtype)
        wanted = 4 if number == Dtype.F32 else 2
        if k.itemsize != wanted:
            raise ValueError(f"elements have {k.itemsize} bytes, and {Dtype(number).name} has {wanted}")
    rows, heads, _ = k.shape
    row, head, element = k.strides
    if rows and heads:
        if element != k.itemsize or row % k.itemsize or head % k.itemsize or row <= 0 or head <= 0:
            raise ValueError("the last axis must be contiguous, the others have positive strides")
        extent = (rows - 1) * row + (heads - 1) * head + k.shape[2] * k.itemsize
    else:
        extent = 0
    view = raw.KvView(k.ctypes.data, extent, v.ctypes.data, extent)
    view.dtype = number
    view.row_stride = row // k.itemsize
    view.head_stride = head // k.itemsize
    view.flags = raw.KV_VIEW_UNROTATED if unrotated else 0
    return view
