"""Separate processes for Triton, which reads `TRITON_INTERPRET` only when it is imported."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ftnn import Function
from ftnn.formula._expr import Expr, names
from ftnn.kernels import signature, transfer
from ftnn.kernels.program import program_of
from ftnn.kernels.triton import source
from ftnn.kernels.triton.source import DType, Written

T = TypeVar("T")
Array = NDArray[Any]


def _initialize(interpret: bool) -> None:
    os.environ["TRITON_INTERPRET"] = "1" if interpret else "0"
    torch.set_num_threads(1)


@cache
def _process(interpret: bool) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_initialize, initargs=(interpret,))


def interpreted(call: Callable[..., T], *args: Any) -> T:
    """`call(*args)` where Triton interprets."""
    return _process(True).submit(call, *args).result()


def compiled(call: Callable[..., T], *args: Any) -> T:
    """`call(*args)` where Triton compiles, up to machine code if there is no GPU."""
    return _process(False).submit(call, *args).result()


# --- functions that run there ---


def computed(formula: str, constants: str, arrays: Sequence[Array], weight: Array | None) -> list[Array]:
    """F ⊙ x and, given a weight (batch, out), the gradients of their product by x and every parameter.

    `arrays` is x, (batch, in), then the matrices, (in, out).
    """
    program = program_of(formula, constants)
    leaves = [torch.from_numpy(array).requires_grad_() for array in arrays]
    out = transfer(program.function, leaves[0], leaves[1:], "triton")
    if weight is None:
        return [out.detach().numpy()]
    needed = leaves[: 1 + len(program.parameters)]
    grads = torch.autograd.grad(out, needed, torch.from_numpy(weight))
    return [out.detach().numpy(), *(grad.numpy() for grad in grads)]


def by_triton(function: Function, x: Tensor, matrices: Sequence[Tensor], weight: Tensor) -> list[Tensor]:
    """The same for tensors, called from another process."""
    arrays = [tensor.detach().numpy() for tensor in (x, *matrices)]
    results = interpreted(computed, *signature(function), arrays, weight.numpy())
    return [torch.from_numpy(array) for array in results]


_MAP = """

@triton.jit
def kernel({inputs_at}, out_at, n, BATCH: tl.constexpr):
    k = tl.arange(0, BATCH)[None, :]
{loads}
{before}
{inside}
    tl.store(out_at + k, {result} + tl.zeros((1, BATCH), tl.{dtype}), mask=k < n)
"""


def map_source(expr: Expr, dtype: DType) -> str:
    """The source of `out[k] = expr`, whose inputs are the symbols of `expr` in alphabetical order."""
    inputs = sorted(names(expr))
    written = Written([expr], {name: name for name in inputs}, (), dtype)
    loads = [f"    {name} = tl.load({name}_at + k, mask=k < n, other=0.5)" for name in inputs]
    return source._module(
        "A map.",
        _MAP,
        written,
        dtype,
        inputs_at=", ".join(f"{name}_at" for name in inputs),
        loads="\n".join(loads),
        result=written.results[0],
    )


def run_map(text: str, arrays: Sequence[Array]) -> Array:
    from ftnn.kernels.triton import launch

    tensors = [torch.from_numpy(array) for array in arrays]
    out = torch.empty_like(tensors[0])
    size = 1 << (len(out) - 1).bit_length()
    launch._launch(launch.load(text), 1, out, *tensors, out, len(out), BATCH=size)
    return out.numpy()


def evaluate(expr: Expr, at: dict[str, Array], dtype: DType = "float64") -> Array:
    """The values of an expression, by Triton's interpreter."""
    arrays = [np.ascontiguousarray(at[name], dtype) for name in sorted(names(expr))]
    return interpreted(run_map, map_source(expr, dtype), arrays)


_ATOMIC = re.compile(r"^\s*(@\S+\s+)?(atom|red)\.", re.MULTILINE)


def machine_code(text: str, dtype: DType) -> tuple[int, bool]:
    """The size of a kernel compiled for a GPU, and whether it uses atomics."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ftnn.kernels.triton import launch

    kernel = launch.load(text)
    pointer = {"float32": "*fp32", "float64": "*fp64"}[dtype]
    blocks = {name: launch.BLOCK[name] for name in kernel.arg_names if name in launch.BLOCK}
    kinds = {
        n: "constexpr" if n in blocks else pointer if n.endswith("_at") else "i32" for n in kernel.arg_names
    }
    kernel_code = triton.compile(
        ASTSource(fn=kernel, signature=kinds, constexprs=blocks),
        target=GPUTarget("cuda", 80, 32),
        options=launch.OPTIONS,
    )
    return len(kernel_code.asm["cubin"]), _ATOMIC.search(kernel_code.asm["ptx"]) is not None
