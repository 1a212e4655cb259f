# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/numpy: what NumPy writes, for the readers' tests.

Element i of every array, in row-major order, is (i * 37 % 251) - 100 for signed and floating
types (floats divided by 8), i * 37 % 251 for unsigned ones (int8 wraps)
and i % 3 == 0 for booleans.
Run in this folder: python3 make_numpy.py
"""
import numpy as np
from numpy.lib import format as npy


def values(dtype, shape):
    n = int(np.prod(shape))
    i = np.arange(n, dtype=np.int64) * 37 % 251
    if dtype == "?":
        return (np.arange(n) % 3 == 0).reshape(shape)
    kind = np.dtype(dtype).kind
    if kind != "u":
        i = i - 100
    if kind == "f":
        i = i / 8
    return i.astype(dtype).reshape(shape)


def save(name, array, version=(1, 0)):
    with open(f"numpy/{name}.npy", "wb") as file:
        npy.write_array(file, array, version=version)


for dtype in "u1 i1 <u2 >u2 <i2 >i2 <u4 >u4 <i4 >i4 <u8 >u8 <i8 >i8 <f2 >f2 <f4 >f4 <f8 >f8 ?".split():
    name = dtype.replace("<", "little-").replace(">", "big-").replace("?", "bool")
    save(name, values(dtype, (5, 2, 3)))
save("fortran", np.asfortranarray(values("<f4", (4, 3, 2, 5))))
save("version2", values("<f4", (5, 2, 3)), (2, 0))
save("version3", values("<f4", (5, 2, 3)), (3, 0))
save("labels", np.array([3, 1, 4, 1, 5], "<i8"))
save("object", np.array([{}, []], dtype=object))
save("complex", np.zeros(3, "<c8"))
save("record", np.zeros(3, [("a", "<f4"), ("b", "<i4")]))
save("scalar", np.array(1.5))
arrays = {"x": values("<f4", (5, 2, 3)), "y": np.array([3, 1, 4, 1, 5], "<i8")}
np.savez("numpy/stored.npz", **arrays)
np.savez_compressed("numpy/deflated.npz", **arrays)
