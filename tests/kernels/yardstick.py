"""How far a kernel may be from the float64 reference: a fraction of Σ |F| + |argument·∂F/∂argument|."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ftnn.formula import Function
from ftnn.formula._derive import differentiate, lower
from ftnn.formula._expr import INPUT, Call, Expr, Number, Symbol, call, postorder, symbol
from ftnn.formula._ops import OPS
from ftnn.kernels.contraction import Contraction
from ftnn.kernels.eager import evaluation, reference
from ftnn.kernels.program import Program, program_of, signature

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
ERROR = "∂F"  # no parameter has this name


@dataclass(frozen=True)
class Case:
    """The inputs of a kernel: x (batch, in), matrices (in, out), and the error of its result (batch, out)."""

    program: Program
    x: Tensor
    matrices: list[Tensor]
    grad: Tensor

    @property
    def double(self) -> Case:
        return Case(self.program, self.x.double(), [m.double() for m in self.matrices], self.grad.double())


def case(
    function: Function,
    inputs: int,
    outputs: int,
    batch: int,
    density: float = 1.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """Parameters drawn from the initial ranges, and inputs of which a share `density` is not zero."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=dtype)

    x = normal(batch, inputs)
    x[torch.rand(batch, inputs, generator=random) >= density] = 0
    matrices: list[Tensor] = []
    for name in function.parameters:
        low, high = function.init.get(name, (-0.1, 0.1))
        matrices.append(torch.rand(inputs, outputs, generator=random, dtype=dtype) * (high - low) + low)
    for values in function.choices.values():
        picks = torch.randint(len(values), (inputs, outputs), generator=random)
        matrices.append(torch.tensor(values, dtype=dtype)[picks])
    return Case(program_of(*signature(function)), x, matrices, normal(batch, outputs))


def _spread(expr: Expr, arguments: tuple[str, ...]) -> Expr:
    """|expr| + Σ |a · ∂expr/∂a|."""
    total = call("abs", expr)
    for name in arguments:
        total = call("add", total, call("abs", call("mul", symbol(name), differentiate(expr, name))))
    return total


@cache
def _contraction(program: Program, variables: tuple[str, ...]) -> Contraction:
    arguments = program.differentiable
    operands = ((INPUT, "bi"), *((name, "io") for name in program.matrices), (ERROR, "bo"))
    error = call("abs", symbol(ERROR))
    results = [(_spread(program.expr, arguments), "bo")]
    for name in variables:
        size = call("mul", error, _spread(program.slopes[name], arguments))
        results.append((size, "bi" if name == INPUT else "io"))
    return Contraction(operands, tuple(results))


def yardsticks(problem: Case, variables: tuple[str, ...]) -> list[Tensor]:
    """The scale of the allowed error, for the result, then for each gradient."""
    double = problem.double
    tensors = [double.x, *double.matrices, double.grad]
    return reference.in_blocks(_contraction(problem.program, variables), tensors)


def expected(problem: Case, variables: tuple[str, ...]) -> list[Tensor]:
    """The result, then each gradient, by the reference in float64."""
    double = problem.double
    forward = reference.transfer(problem.program, double.x, double.matrices)
    backward = reference.transfer_backward(problem.program, double.grad, double.x, double.matrices, variables)
    return [forward, *backward]


def excess(result: Tensor, expected: Tensor, yard: Tensor) -> float:
    """The largest error as a multiple of the allowed one: above 1 is too much."""
    floor = 16 * torch.finfo(result.dtype).tiny  # denormals count as zero
    share = (result.double() - expected).abs() / (TOLERANCE[result.dtype] * yard + floor)
    return float(share.max()) if share.numel() else 0.0


def same_kind(result: Tensor, expected: Tensor) -> bool:
    """Whether both are finite in the same places."""
    return bool((result.isfinite() == expected.isfinite()).all())


def conditioned(expr: Expr, values: dict[str, Tensor]) -> Tensor:
    """Σ |part · ∂expr/∂part| over all parts of `expr`, including intermediate steps: the effect of rounding.

    For formulas that lose digits between their arguments and their value, as random ones may.
    """
    parts: dict[Expr, Any] = {}
    shape = torch.broadcast_shapes(*(value.shape for value in values.values()))
    for part in postorder(lower(expr, "torch")):
        match part:
            case Number(value):
                parts[part] = torch.full(shape, float(value), dtype=torch.float64)
            case Symbol(name):
                parts[part] = values[name].detach().expand(shape).clone().requires_grad_()
            case Call(op, args):
                parts[part] = evaluation._native(OPS[op].torch)(*(parts[arg] for arg in args))
        if parts[part].requires_grad:
            parts[part].retain_grad()
    total = parts[lower(expr, "torch")]
    if total.requires_grad:
        total.sum().backward()
    size = total.detach().abs()
    for value in parts.values():
        if value.requires_grad and value.grad is not None:
            size = size + (value * value.grad).detach().abs()
    return size
