"""Launch the Triton kernels that `source.py` writes: `backend="triton"`, used only when requested by name.

On a GPU, Triton compiles the kernels. With `TRITON_INTERPRET=1` in the environment it interprets them on the
CPU, which is slow but lets them be tested.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT
from ftnn.kernels.operands import Kept, Lists, Matrices, Names
from ftnn.kernels.program import Program
from ftnn.kernels.triton import source
from ftnn.kernels.triton.source import DType

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise FtnnError(
        f'backend="triton" needs Triton, which failed to load ({error}): pip install "ftnn[triton]"'
    ) from error

BLOCK = {"BATCH": 32, "INS": 32, "OUTS": 64}
"""Samples, inputs and outputs per block. Not tuned: no GPU has been measured."""

OPTIONS = {"enable_fp_fusion": True}
"""Compiler options. This default has changed between Triton versions, and kernels allow fused products."""

_DTYPES: dict[torch.dtype, DType] = {torch.float32: "float32", torch.float64: "float64"}


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, which is decided when Triton is imported."""
    return not isinstance(tl.zeros, triton.JITFunction)  # pyright: ignore[reportUnnecessaryIsInstance]


# --- text → kernel ---


def load(text: str) -> Any:
    """The function `kernel` of a source text, registered with `linecache` so that Triton can read it."""
    name = f"<ftnn triton {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    exec(compile(text, name, "exec"), module.__dict__)
    return module.__dict__["kernel"]


@lru_cache(maxsize=512)
def _kernel(write: Callable[..., str], program: Program, *more: Any) -> Any:
    return load(write(program, *more))


def _launch(kernel: Any, programs: int, x: Tensor, *arguments: Any, **blocks: int) -> None:
    """Run a kernel on the device of `x`, without the interpreter's NumPy warnings about poles."""
    device = torch.cuda.device(x.device) if x.is_cuda else nullcontext()
    with device, np.errstate(all="ignore"):
        kernel[(programs,)](*arguments, **blocks, **OPTIONS)


def _blocks(size: int, kind: str) -> int:
    return -(-size // BLOCK[kind])


# --- the backend ---


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Always."""
    return True


def transfer(
    program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None, kept: Kept | None = None
) -> Tensor:
    """F ⊙ x, (batch, out); lists are not supported."""
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    out = x.new_zeros(batch, outs)
    if out.numel() and ins:
        programs = _blocks(batch, "BATCH") * _blocks(outs, "OUTS")
        arguments = [x.T.contiguous(), *(m.contiguous() for m in matrices), out, batch, ins, outs]
        kernel = _kernel(source.forward, program, _DTYPES[x.dtype])
        _launch(kernel, programs, x, *arguments, BATCH=BLOCK["BATCH"], OUTS=BLOCK["OUTS"])
    return out


def transfer_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Matrices,
    names: Names,
    lists: Lists | None = None,
    kept: Kept | None = None,
) -> list[Tensor]:
    """The gradients by each of `names`: x first, then parameters in order."""
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    results = {n: x.new_zeros((batch, ins) if n == INPUT else (ins, outs)) for n in names}
    dtype, sizes = _DTYPES[x.dtype], (batch, ins, outs)
    if 0 in sizes:
        return list(results.values())
    arguments = [grad.contiguous(), x.contiguous(), *(m.contiguous() for m in matrices)]
    if INPUT in results:
        programs, blocks = ins * _blocks(batch, "BATCH"), {n: BLOCK[n] for n in ("BATCH", "OUTS")}
        kernel = _kernel(source.by_input, program, dtype)
        _launch(kernel, programs, x, *arguments, results[INPUT], *sizes, **blocks)
    if parameters := tuple(name for name in names if name != INPUT):
        programs = _blocks(ins, "INS") * _blocks(outs, "OUTS")
        blocks = {n: BLOCK[n] for n in ("INS", "OUTS")}
        kernel = _kernel(source.by_matrices, program, parameters, dtype)
        _launch(kernel, programs, x, *arguments, *(results[n] for n in parameters), *sizes, **blocks)
    return list(results.values())
