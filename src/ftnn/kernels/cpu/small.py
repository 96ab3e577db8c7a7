"""Launch the kernels for small layers, one call each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu.compiler import host_of, kernel
from ftnn.kernels.cpu.tiling import address, addresses
from ftnn.kernels.loops.small import SmallArgs, more_rows, small_backward, small_forward
from ftnn.kernels.operands import Matrices
from ftnn.kernels.program import Program

MOST = 70_000
"""The most work of a small layer, in evaluations of a vector of samples."""
MOST_WHOLE = 15_000
"""The same if outputs fill whole vectors: then the kernels for large layers are faster."""
MOST_SEPARABLE = 12_000
"""The same where matrix products could be used."""
PER_CONNECTION = 4
"""What a connection costs beside them, in the same unit."""


def suits(target: Target, x: Tensor, matrices: Matrices, most: int | None = None) -> bool:
    """Whether the layer is small: one thread, and no lists of zeros."""
    (samples, inputs), outputs = x.shape, matrices[0].shape[1]
    work = inputs * outputs * (target.vectors(samples) + PER_CONNECTION)
    if most is None:
        most = MOST if outputs % target.lanes else min(MOST, MOST_WHOLE)
    return samples > 0 and 0 < work <= most


def forward(program: Program, x: Tensor, matrices: Matrices, out: Tensor) -> None:
    """Fill `out`, (batch, out)."""
    _call(*_forward(program, x.dtype), x, matrices, out, [], None)


def backward(
    program: Program,
    x: Tensor,
    matrices: Matrices,
    grad: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> bool:
    """Fill the gradients: of all parameters or none, and that of x if it is needed.

    Returns whether all are known to be finite.
    """
    prepared = _backward(program, x.dtype, down is not None, bool(gradients))
    return _call(*prepared, x, matrices, grad, gradients, down)


def _call(
    function: Any,
    more_rows: int,
    x: Tensor,
    matrices: Matrices,
    rows: Tensor,
    gradients: Sequence[Tensor],
    down: Tensor | None,
) -> bool:
    samples, inputs = x.shape
    outputs, stride = rows.shape[1], host_of(x).filled(samples)
    scratch = x.new_empty((inputs + outputs + more_rows) * stride)
    sources, targets = addresses(matrices), addresses(gradients)
    args = SmallArgs(
        samples=samples,
        inputs=inputs,
        outputs=outputs,
        stride=stride,
        x=x.data_ptr(),
        x_by_sample=x.stride(0),
        x_by_input=x.stride(1),
        matrices=address(sources),
        scratch=scratch.data_ptr(),
        rows=rows.data_ptr(),
        gradients=address(targets),
        dx=0 if down is None else down.data_ptr(),
        finite=0,
    )
    block = array("q", args)
    function(address(block))
    return bool(block[-1])


@lru_cache(maxsize=512)
def _forward(program: Program, dtype: torch.dtype) -> tuple[Any, int]:
    """The kernel as a function, and the rows of scratch it needs."""
    return kernel(small_forward, program, host_of(torch.empty(0, dtype=dtype))).function, more_rows(program)


@lru_cache(maxsize=512)
def _backward(program: Program, dtype: torch.dtype, by_x: bool, by_parameters: bool) -> tuple[Any, int]:
    target = host_of(torch.empty(0, dtype=dtype))
    code = kernel(small_backward, program, target, by_x=by_x, by_parameters=by_parameters)
    return code.function, more_rows(program, backward=(by_x, by_parameters))
