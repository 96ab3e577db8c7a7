"""Launches the Triton kernels that `source.py` writes: `backend="triton"`, used only when asked for by name.

On a GPU, Triton compiles the kernels. With `TRITON_INTERPRET=1` in the environment it interprets them, on the
CPU and slowly, which is how they are tested.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftnn.errors import FtnnError
from ftnn.formula._expr import INPUT
from ftnn.kernels.operands import Lists
from ftnn.kernels.program import Program
from ftnn.kernels.triton import source
from ftnn.kernels.triton.source import DType

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise FtnnError(
        f'backend="triton" needs Triton, which cannot be loaded ({error}): pip install "ftnn[triton]"'
    ) from error

BLOCK = {"BATCH": 32, "INS": 32, "OUTS": 64}
"""How many samples, inputs and outputs a program takes at once. No GPU has been measured with it."""

OPTIONS = {"enable_fp_fusion": True}
"""What Triton is told to do: its default has changed between versions, and no kernel minds fused products."""

_DTYPES: dict[torch.dtype, DType] = {torch.float32: "float32", torch.float64: "float64"}


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter. It is decided when Triton is imported, for good."""
    return not isinstance(tl.zeros, triton.JITFunction)  # pyright: ignore[reportUnnecessaryIsInstance]


# --- text → kernel ---


def load(text: str) -> Any:
    """The function `kernel` of a source text, which Triton can look up line by line."""
    name = f"<ftnn triton {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    exec(compile(text, name, "exec"), module.__dict__)
    return module.__dict__["kernel"]


@lru_cache(maxsize=512)
def _forward_kernel(program: Program, dtype: DType) -> Any:
    return load(source.forward(program, dtype))


@lru_cache(maxsize=512)
def _input_kernel(program: Program, dtype: DType) -> Any:
    return load(source.by_input(program, dtype))


@lru_cache(maxsize=512)
def _matrices_kernel(program: Program, names: tuple[str, ...], dtype: DType) -> Any:
    return load(source.by_matrices(program, names, dtype))


def _launch(kernel: Any, programs: int, x: Tensor, *arguments: Any, **blocks: int) -> None:
    """Run it on the device of `x`. The interpreter's NumPy would warn of poles and overflows."""
    device = torch.cuda.device(x.device) if x.is_cuda else nullcontext()
    with device, np.errstate(all="ignore"):
        kernel[(programs,)](*arguments, **blocks, **OPTIONS)


def _blocks(size: int, kind: str) -> int:
    return -(-size // BLOCK[kind])


# --- what is computed ---


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Whether products are multiplied in the formula's order."""
    return True


def transfer(program: Program, x: Tensor, matrices: Sequence[Tensor], lists: Lists | None = None) -> Tensor:
    """F ⊙ x, (batch, out), of x (batch, in) and matrices (in, out); never of lists."""
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    out = x.new_zeros(batch, outs)
    if out.numel() and ins:
        programs = _blocks(batch, "BATCH") * _blocks(outs, "OUTS")
        arguments = [x.T.contiguous(), *(m.contiguous() for m in matrices), out, batch, ins, outs]
        kernel = _forward_kernel(program, _DTYPES[x.dtype])
        _launch(kernel, programs, x, *arguments, BATCH=BLOCK["BATCH"], OUTS=BLOCK["OUTS"])
    return out


def transfer_backward(
    program: Program,
    grad: Tensor,
    x: Tensor,
    matrices: Sequence[Tensor],
    names: tuple[str, ...],
    lists: Lists | None = None,
) -> list[Tensor]:
    """The gradients of `Σ grad · (F ⊙ x)` by each of `names`, in the order of x, then the parameters."""
    (batch, ins), outs = x.shape, matrices[0].shape[1]
    results = {n: x.new_zeros((batch, ins) if n == INPUT else (ins, outs)) for n in names}
    dtype, sizes = _DTYPES[x.dtype], (batch, ins, outs)
    if 0 in sizes:
        return list(results.values())
    arguments = [grad.contiguous(), x.contiguous(), *(m.contiguous() for m in matrices)]
    if INPUT in results:
        programs, blocks = ins * _blocks(batch, "BATCH"), {n: BLOCK[n] for n in ("BATCH", "OUTS")}
        kernel = _input_kernel(program, dtype)
        _launch(kernel, programs, x, *arguments, results[INPUT], *sizes, **blocks)
    if parameters := tuple(name for name in names if name != INPUT):
        programs = _blocks(ins, "INS") * _blocks(outs, "OUTS")
        blocks = {n: BLOCK[n] for n in ("INS", "OUTS")}
        kernel = _matrices_kernel(program, parameters, dtype)
        _launch(kernel, programs, x, *arguments, *(results[n] for n in parameters), *sizes, **blocks)
    return list(results.values())
