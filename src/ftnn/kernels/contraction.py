"""Contractions: expressions evaluated for every (batch, input, output) and summed over some of these axes.

    transfer            Σ_i     F(x_bi; p_io)                → (batch, out)
    input gradient      Σ_o     g_bo · ∂F/∂x                 → (batch, in)
    parameter gradient  Σ_b     g_bo · ∂F/∂p                 → (in, out)

The derivative of a contraction is again a contraction, of the symbolic derivative. So derivatives of any
order are exact, including surrogate gradients (the paper's "decreed" derivatives).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ftnn.formula._derive import gradient
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Expr, plus, symbol, times
from ftnn.kernels.program import Program

Axes = str
"""Which of the axes (b)atch, (i)n, (o)ut an array has, in this order: "bi", "io", "bo" or "bio"."""
WEIGHT = "∂"
"""Prefix of operands that weight results: incoming gradients, or tangents. No parameter has it."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """Expressions to evaluate over all axes, and the axes that each result keeps; the others are summed."""

    operands: tuple[tuple[str, Axes], ...]
    """Name and axes of each operand, in order."""
    results: tuple[tuple[Expr, Axes], ...]


_RESULTS: dict[str, tuple[Axes, ...]] = {
    "transfer": ("bo",),
    "each": ("bio",),  # the values of all connections, to be combined in another way
    "list": ("bi",),  # listed connections act as inputs of a single output
    "memory": ("bo", "bio"),  # the sums, and the new cells
}
"""The axes of each result that a kind of layer computes."""


@lru_cache(maxsize=1024)
def contraction(program: Program, path: str) -> Contraction:
    """The contraction that a layer of this function computes, or a derivative of it.

    `path` is text because operators take text: `"transfer"`, `"each"`, `"list"` or `"memory"`, then for each
    differentiation a slash and the numbers of the operands to differentiate by, as in `"transfer/0,1"`.
    """
    kind, *chain = path.split("/")
    cell = ((MEMORY, "bio"),) if kind == "memory" else ()
    operands = ((INPUT, "bi"), *cell, *((name, "io") for name in program.matrices))
    result = Contraction(operands, tuple((program.expr, axes) for axes in _RESULTS[kind]))
    for numbers in chain:
        result = gradients_of(result, tuple(int(n) for n in numbers.split(",") if n))
    return result


def gradient_path(program: Program, path: str, names: Sequence[str]) -> str:
    """The path of the gradients by `names`, in the order of the operands."""
    operands = contraction(program, path).operands
    return f"{path}/{','.join(str(n) for n, (name, _) in enumerate(operands) if name in names)}"


@lru_cache(maxsize=1024)
def gradients_of(contraction: Contraction, numbers: tuple[int, ...]) -> Contraction:
    """The contraction that maps gradients of the results to gradients of the operands with these numbers.

    Its operands are those of `contraction`, then one weight for each result.
    """
    weights = _weights(contraction, [axes for _, axes in contraction.results])
    total = _weighted_sum(weights, [expr for expr, _ in contraction.results])
    names, axes = zip(*(contraction.operands[n] for n in numbers), strict=True) if numbers else ((), ())
    results = tuple(zip(gradient(total, names), axes, strict=True))
    return Contraction((*contraction.operands, *weights), results)


@lru_cache(maxsize=1024)
def tangents_of(contraction: Contraction, numbers: tuple[int, ...]) -> Contraction:
    """The directional derivative of the results along the operands with these numbers.

    Its operands are those of `contraction`, then one tangent for each of these.
    """
    names = [contraction.operands[n][0] for n in numbers]
    tangents = _weights(contraction, [contraction.operands[n][1] for n in numbers])
    results = tuple((_weighted_sum(tangents, gradient(e, names)), axes) for e, axes in contraction.results)
    return Contraction((*contraction.operands, *tangents), results)


def _weights(contraction: Contraction, axes: Sequence[Axes]) -> tuple[tuple[str, Axes], ...]:
    first = len(contraction.operands)
    return tuple((f"{WEIGHT}{first + n}", each) for n, each in enumerate(axes))


def _weighted_sum(weights: Sequence[tuple[str, Axes]], parts: Sequence[Expr]) -> Expr:
    total = ZERO
    for (name, _), part in zip(weights, parts, strict=True):
        total = plus(total, times(symbol(name), part))
    return total
