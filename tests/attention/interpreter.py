"""Triton's interpreter, repaired for the tests: it multiplies bfloat16 as if it were whole numbers, and is slow."""

import inspect

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def mend(monkeypatch):
    """For one test."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", _dot)
    monkeypatch.setattr(interpreter, "_patch_lang", _Patched(interpreter._patch_lang))


def _dot(self, a, b, total, input_precision, max_num_imprecise_acc):
    """Products summed in float32; bfloat16 is stored as the upper half of a float32."""
    one, other = (
        (x.data.astype(np.uint32) << 16).view(np.float32) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b)
    )
    return interpreter.TensorHandle(np.matmul(one, other, dtype=np.float32) + total.data, total.dtype.scalar)


class _Patched:
    """The language is patched once for a kernel; the interpreter repeats it for every function that it calls."""

    def __init__(self, patch):
        self.patch, self.scopes, self.modules = patch, [], set()

    def __call__(self, function):
        modules = {
            id(value) for value in function.__globals__.values() if inspect.ismodule(value) and value in (tl, tl.core)
        }
        if modules <= self.modules:
            return None
        self.scopes.append(self.patch(function))
        self.modules |= modules
        return self

    def restore(self):
        while self.scopes:
            self.scopes.pop().restore()
        self.modules.clear()
