"""What kernels evaluate: a function's value and slopes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ftnn.formula._derive import differentiate
from ftnn.formula._expr import INPUT, ZERO, Expr, times
from ftnn.kernels.codegen.placeholders import ERROR
from ftnn.kernels.codegen.rewriting import (
    at_zero,
    kernel_form,
    product,
    regrouped,
    sides,
    split_product,
    without_cancellation,
)
from ftnn.kernels.program import Program


@dataclass(frozen=True)
class Slopes:
    """The slopes that a backward kernel evaluates: `outer`·`inner` for each parameter, `down` for x."""

    outer: tuple[Expr, ...]
    """Factors that depend only on matrices, applied after the sum over the samples."""
    inner: tuple[Expr, ...]
    down: Expr
    inner_at_zero: tuple[Expr, ...]
    down_at_zero: Expr

    @property
    def times_error(self) -> list[Expr]:
        """The inner slopes and that by x, each times the error at the sum."""
        return [_times_error(slope) for slope in (*self.inner, self.down)]

    @property
    def of_zeros(self) -> bool:
        """Whether samples whose x is zero have a gradient."""
        return any(part is not ZERO for part in self.inner_at_zero)


def value_of(program: Program) -> Expr:
    """F, in the order of operations that kernels use."""
    return regrouped(without_cancellation(kernel_form(program))[0])


@lru_cache(maxsize=512)
def slopes_of(program: Program, by_x: bool, by_parameters: bool) -> Slopes:
    form = kernel_form(program)
    names = (*(program.parameters if by_parameters else ()), *((INPUT,) if by_x else ()))
    slopes = [regrouped(s) for s in without_cancellation(*(differentiate(form, name) for name in names))]
    down = slopes.pop() if by_x else ZERO
    pairs = [split_product(slope) for slope in slopes]
    return Slopes(
        tuple(outer for outer, _ in pairs),
        tuple(inner for _, inner in pairs),
        down,
        tuple(regrouped(at_zero(inner, slope=True)) for _, inner in pairs),
        regrouped(at_zero(down, slope=True)),
    )


def _times_error(slope: Expr) -> Expr:
    """slope·∂, with the factors of both x and matrices multiplied first, because slopes share them."""
    by = sides(slope)
    shared = times(product(by["both"]), ERROR)
    return times(product(by["number"] + by["matrices"]), times(product(by["input"]), shared))
