# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""The address of a caller's array, after checking that the library can use it in place."""

import ctypes as ct
import mmap
from typing import Any, Optional, Tuple

from .errors import PBoxInvalid

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
BLOCKS = ("int8", "mxfp4")  # formats of the wire alone: arrays are fp32, and the library encodes and decodes

_TORCH_DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
# struct codes of the buffer protocol; it has none for bf16, whose bits travel as uint16
_CODES = {"fp32": ("f",), "fp16": ("e",), "bf16": ("H",)}
_RAW = ("B", "b", "c")


class _PyBuffer(ct.Structure):
    """Py_buffer: unlike memoryview and ctypes' from_buffer it takes read-only objects too."""

    _fields_ = [
        ("buf", ct.c_void_p), ("obj", ct.py_object), ("len", ct.c_ssize_t),
        ("itemsize", ct.c_ssize_t), ("readonly", ct.c_int), ("ndim", ct.c_int),
        ("format", ct.c_char_p), ("shape", ct.c_void_p), ("strides", ct.c_void_p),
        ("suboffsets", ct.c_void_p), ("internal", ct.c_void_p),
    ]


_get_buffer = ct.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ct.py_object, ct.POINTER(_PyBuffer), ct.c_int]
_get_buffer.restype = ct.c_int
_release_buffer = ct.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ct.POINTER(_PyBuffer)]
_release_buffer.restype = None


class _Exported:
    """Holds an export: the owner can neither free nor resize its memory meanwhile."""

    def __init__(self, obj: Any) -> None:
        view = _PyBuffer()
        _get_buffer(obj, ct.byref(view), 0)  # PyBUF_SIMPLE: contiguous, or BufferError
        self._view: Optional[_PyBuffer] = view
        self.address = view.buf or 0

    def __del__(self) -> None:
        view, self._view = getattr(self, "_view", None), None
        if view is not None:
            _release_buffer(ct.byref(view))


# tensors of no elements have no address, and the library takes NULL for "not given"
_EMPTY = ct.create_string_buffer(64)
ADDRESS_OF_NOTHING = ct.addressof(_EMPTY)


def arrays_of(wire: str) -> str:
    """The format of a program's arrays, of a table with this one on the wire."""
    return "fp32" if wire in BLOCKS else wire


def format_of(obj: Any) -> Optional[str]:
    """'fp32', 'bf16' or 'fp16' if the object says so, else None."""
    dtype = getattr(obj, "dtype", None)
    if dtype is None:
        return None
    name = str(dtype)
    return _TORCH_DTYPES.get(name) or {"float32": "fp32", "float16": "fp16"}.get(name)


def is_torch(obj: Any) -> bool:
    return hasattr(obj, "data_ptr") and hasattr(obj, "is_contiguous")


def check_torch(t: Any, what: str, dense: bool = True, host: bool = True) -> None:
    """Raise unless the library can read or write this torch tensor where it lies. Without `host`: or a copy of it on the host."""
    if t.is_sparse or str(t.layout) != "torch.strided":
        raise PBoxInvalid(
            f"{what} is sparse ({t.layout}): PBox sums dense tensors; call to_dense(), or create "
            "embeddings with sparse=False")
    if host and t.device.type != "cpu":
        raise PBoxInvalid(
            f"{what} is on {t.device}: copy it to the CPU first (tensor.cpu(), best into pinned "
            "memory), this sends from host memory")
    if dense and not t.is_contiguous():
        raise PBoxInvalid(
            f"{what} is not contiguous (shape {tuple(t.shape)}, strides {tuple(t.stride())}): "
            "pass tensor.contiguous()")


_HUGE = 2 << 20
_MADV_COLLAPSE = 25  # Linux 6.1; mmap has no name for it yet
_madvise = ct.CDLL(None).madvise
_madvise.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int]


def prefer_huge(address: int, size: int) -> None:
    """Memory that is gone through in each round: in hugepages, those that are there already, too, where the kernel has them. What it
    holds stays, and so does what is not a whole hugepage."""
    first, end = -(-address // _HUGE) * _HUGE, (address + size) // _HUGE * _HUGE
    if end - first >= 2 * _HUGE and _madvise(first, end - first, mmap.MADV_HUGEPAGE) == 0:
        _madvise(first, end - first, _MADV_COLLAPSE)


def address_of(obj: Any, elements: int, fmt: str, writable: bool, what: str) -> Tuple[int, Any]:
    """Address and what has to be kept alive; raises PBoxInvalid naming what is wrong."""
    if is_torch(obj):
        check_torch(obj, what)
        if _TORCH_DTYPES.get(str(obj.dtype)) != fmt:
            raise PBoxInvalid(
                f"{what} has dtype {obj.dtype}, the table was declared {fmt}: convert it, or "
                "declare another format (fp32, bf16, fp16)")
        if obj.numel() != elements:
            raise PBoxInvalid(
                f"{what} has {obj.numel()} elements, declared were {elements}")
        if elements == 0:
            return ADDRESS_OF_NOTHING, obj
        return obj.data_ptr(), obj
    try:
        view = memoryview(obj)
    except TypeError:
        raise PBoxInvalid(
            f"{what} is a {type(obj).__name__}: needed is a torch tensor, a numpy array or "
            "another object with the buffer protocol") from None
    except ValueError as e:  # numpy's bfloat16 extensions do not export
        raise PBoxInvalid(f"{what} cannot be exported ({e}): pass its bits, a.view('uint16')") \
            from None
    if not view.contiguous:
        raise PBoxInvalid(f"{what} is not contiguous: pass numpy.ascontiguousarray(a)")
    code = view.format.lstrip("@=<")
    if code not in _CODES[fmt] + _RAW:
        raise PBoxInvalid(
            f"{what} has elements of format '{view.format}', the table was declared {fmt} "
            f"('{_CODES[fmt][0]}', or raw bytes)")
    if view.nbytes != elements * BYTES[fmt]:
        raise PBoxInvalid(
            f"{what} has {view.nbytes} bytes, declared were {elements} elements of {fmt}: "
            f"{elements * BYTES[fmt]}")
    if writable and view.readonly:
        raise PBoxInvalid(f"{what} is read-only and would receive the result")
    if elements == 0:
        return ADDRESS_OF_NOTHING, obj
    exported = _Exported(obj)
    return exported.address, exported
