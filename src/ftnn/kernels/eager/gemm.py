"""Matrix products for separable functions: Σ_k h_k(x) @ g_k(p).

Factors and their slopes are evaluated by generated elementwise code where there is any, else by torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, ZERO, Expr, Symbol, names, plus, symbol, times
from ftnn.kernels.contraction import WEIGHT
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.kernels.generated import cpu_computes
from ftnn.kernels.operands import Kept, Lists, Matrices, Names
from ftnn.kernels.ordering import moderate
from ftnn.kernels.program import Program

if TYPE_CHECKING:
    from ftnn.kernels.cpu.elementwise import Elementwise

_slope = cache(differentiate)


@dataclass(frozen=True, eq=False)
class _Values:
    """Expressions of arrays of one shape: the arrays themselves, or values that are computed together."""

    exprs: tuple[Expr, ...]
    operands: tuple[str, ...]
    """The names of the arrays."""

    @cached_property
    def _computed(self) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(expr for expr in self.exprs if not isinstance(expr, Symbol)))

    @cached_property
    def _needed(self) -> tuple[int, ...]:
        """The places of the operands that computed expressions contain."""
        needed = names(*self._computed)
        return tuple(n for n, name in enumerate(self.operands) if name in needed)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        """Where each expression's value is: among the operands, then the computed ones."""
        first = len(self.operands)
        return tuple(
            self.operands.index(expr.name) if isinstance(expr, Symbol) else first + self._computed.index(expr)
            for expr in self.exprs
        )

    @cached_property
    def _unreturned(self) -> tuple[int, ...]:
        """The places of the operands that are not values themselves."""
        return tuple(n for n in range(len(self.operands)) if n not in self._places)

    @cached_property
    def _generated(self) -> Elementwise:
        from ftnn.kernels.cpu.elementwise import Elementwise

        return Elementwise(self._computed, tuple(self.operands[n] for n in self._needed))

    def of(self, tensors: Sequence[Tensor], like: Tensor, spent: int = 0) -> list[Tensor]:
        """The value of each expression, of the shape of `like`.

        **Arguments:**

        - `tensors`: the arrays, (rows, columns) each, or (1, columns) if all rows are the same.
        - `spent`: how many of them, from the first on, may be overwritten. They are contiguous.
        """
        count = len(self._computed)
        if not count:
            return [tensors[place] for place in self._places]
        if like.numel() and cpu_computes(like):
            computed = [tensors[n] for n in self._unreturned if n < spent][:count] if spent else []
            computed += [like.new_empty(like.shape) for _ in range(count - len(computed))]
            self._generated([tensors[n].contiguous() for n in self._needed], computed)
        else:
            by_name = dict(zip(self.operands, tensors, strict=True))
            computed = [value.expand(like.shape) for value in evaluate(self._computed, by_name)]
        everything = (*tensors, *computed)
        return [everything[place] for place in self._places]


@dataclass(frozen=True, eq=False)
class _Products:
    """A separable function's factors and their slopes, prepared once."""

    program: Program

    @cached_property
    def _terms(self) -> tuple[tuple[Expr, Expr], ...]:
        return self.program.plan.terms

    @cached_property
    def h(self) -> _Values:
        """The factor of x of each term, then what is common to all outputs."""
        common = self.program.plan.common
        return _Values((*(h for _, h in self._terms), *(() if common is None else (common,))), (INPUT,))

    @cached_property
    def g(self) -> _Values:
        """The factor of matrices of each term, then the constant."""
        constant = self.program.plan.constant
        exprs = (*(g for g, _ in self._terms), *(() if constant is None else (constant,)))
        return _Values(exprs, self.program.matrices)

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The terms whose value depends on x."""
        return tuple(n for n, (_, h) in enumerate(self._terms) if _slope(h, INPUT) is not ZERO)

    @cached_property
    def by_x(self) -> _Values:
        """The gradient by x, from the errors sent down through each moving term, and x."""
        total = ZERO
        for n in self.moving:
            total = plus(total, times(symbol(_error(n)), _slope(self._terms[n][1], INPUT)))
        return _Values((total,), (*(_error(n) for n in self.moving), INPUT))

    @cached_property
    def slope_of_common(self) -> _Values:
        common = self.program.plan.common
        return _Values(() if common is None else (_slope(common, INPUT),), (INPUT,))


@lru_cache(maxsize=1024)
def _by_parameters(products: _Products, parameters: Names) -> _Values:
    """The gradient by each parameter, from the errors of each factor of matrices, and the matrices."""
    gradients: list[Expr] = []
    for name in parameters:
        total = ZERO
        for n, g in enumerate(products.g.exprs):
            total = plus(total, times(symbol(_error(n)), _slope(g, name)))
        gradients.append(total)
    errors = (_error(n) for n in range(len(products.g.exprs)))
    return _Values(tuple(gradients), (*errors, *products.program.matrices))


def _error(term: int) -> str:
    """The name of the error of a term's factor."""
    return f"{WEIGHT}{term}"


_products = lru_cache(maxsize=512)(_Products)


def suits(program: Program, x: Tensor, matrices: Matrices) -> bool:
    """Whether matrix products are accurate here: their factors stay in range, multiplied in any order."""
    plan = program.plan
    if plan.kind != "gemm" or plan.exact:
        return plan.kind == "gemm"
    return moderate(program, plan.products, x, matrices, never_zero=plan.exponentials)


def computes_as_written(program: Program, *, slopes: bool = False) -> bool:
    """Whether the plan keeps the formula's order of products."""
    return program.plan.exact


def transfer(
    program: Program, x: Tensor, matrices: Matrices, lists: Lists | None = None, kept: Kept | None = None
) -> Tensor:
    """F ⊙ x, (batch, out); lists are not supported. The factors of x are kept."""
    plan, products = program.plan, _products(program)
    hs, gs = products.h.of((x,), x), products.g.of(matrices, matrices[0])
    if kept is not None:
        kept.tensors = hs
    out: Tensor | None = None
    for h, g, _ in zip(hs, gs, plan.terms, strict=False):
        out = h @ g if out is None else out.addmm_(h, g)
    if out is None:
        out = x.new_zeros(x.shape[0], matrices[0].shape[1])
    if plan.constant is not None:
        out += gs[-1].sum(0)
    if plan.common is not None:
        out += hs[-1].sum(1, keepdim=True)
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
    products = _products(program)
    gradients = [_by_x(products, grad, x, matrices)] if INPUT in names else []
    parameters = tuple(name for name in program.parameters if name in names)
    if parameters:
        hs = products.h.of((x,), x) if kept is None or not kept.tensors else kept.tensors
        gradients += _parameter_gradients(products, grad, hs, matrices, parameters)
    return gradients


def _by_x(products: _Products, grad: Tensor, x: Tensor, matrices: Matrices) -> Tensor:
    plan, moving = products.program.plan, products.moving
    total = torch.zeros_like(x)
    if moving:
        gs = products.g.of(matrices, matrices[0])
        errors = [grad @ gs[n].T for n in moving]
        (total,) = products.by_x.of((*errors, x), x, len(errors))
    if plan.common is not None:
        (slope,) = products.slope_of_common.of((x,), x)
        total += slope * grad.sum(1, keepdim=True)
    return total


def _parameter_gradients(
    products: _Products, grad: Tensor, hs: Sequence[Tensor], matrices: Matrices, parameters: Names
) -> list[Tensor]:
    plan = products.program.plan
    # Every parameter's gradient is a sum over the errors of each g, (in, out).
    errors = [h.T @ grad for h, _ in zip(hs, plan.terms, strict=False)]
    spent = len(errors)
    if plan.constant is not None:
        errors.append(grad.sum(0, keepdim=True))
    values = _by_parameters(products, parameters).of((*errors, *matrices), matrices[0], spent)
    gradients: list[Tensor] = []
    for value in values:  # each a tensor of its own
        shared = value.shape != matrices[0].shape or any(value is other for other in gradients)
        gradients.append(value.expand_as(matrices[0]).clone() if shared else value)
    return gradients
