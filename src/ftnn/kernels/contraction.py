"""Contractions: expressions evaluated for every (batch, input, output) and summed over some of these axes.

    transfer            Σ_i     F(x_bi; p_io)                → (batch, out)
    error sent down     Σ_o     g_bo · ∂F/∂x                 → (batch, in)
    parameter gradient  Σ_b     g_bo · ∂F/∂p                 → (in, out)

The derivative of a contraction is again a contraction, of the symbolic derivative. So derivatives of any
order are exact, surrogate gradients (the paper's decreed ones) included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ftnn.formula._derive import gradient
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Expr, plus, symbol, times
from ftnn.kernels.program import Program

Axes = str
"""Which of the axes (b)atch, (i)n, (o)ut an array has, in this order: "bi", "io", "bo" or "bio"."""
WEIGHT = "∂"
"""Begins the names of operands that weight results: gradients sent back, or tangents. No parameter's does."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """Expressions to evaluate over all axes, and the axes that each keeps; the others are summed over."""

    operands: tuple[tuple[str, Axes], ...]
    """Name and axes of each operand, in order."""
    results: tuple[tuple[Expr, Axes], ...]


# --- what layers compute ---


def _of_function(program: Program, result: Axes) -> Contraction:
    matrices = ((name, "io") for name in program.matrices)
    return Contraction(((INPUT, "bi"), *matrices), ((program.expr, result),))


def _transfer(program: Program) -> Contraction:
    """F ⊙ x."""
    return _of_function(program, "bo")


def _listed(program: Program) -> Contraction:
    """F of each connection in a list: the connections are the inputs, and there is one output."""
    return _of_function(program, "bi")


def _memory(program: Program) -> Contraction:
    """The sums and the new cells of a memory function."""
    operands = ((INPUT, "bi"), (MEMORY, "bio"), *((name, "io") for name in program.matrices))
    return Contraction(operands, ((program.expr, "bo"), (program.expr, "bio")))


_FORMS: dict[str, Callable[[Program], Contraction]] = {
    "transfer": _transfer,
    "list": _listed,
    "memory": _memory,
}


@lru_cache(maxsize=1024)
def contraction(program: Program, path: str) -> Contraction:
    """What a layer of this function computes, or a derivative of that.

    `path` is a text, because operators take texts: `"transfer"`, `"list"` or `"memory"`; then, for each time
    it was differentiated, a slash and the numbers of the operands it was differentiated by: `"transfer/0,1"`.
    """
    form, *chain = path.split("/")
    result = _FORMS[form](program)
    for numbers in chain:
        result = gradients_of(result, tuple(int(n) for n in numbers.split(",") if n))
    return result


def gradient_path(program: Program, path: str, names: Sequence[str]) -> str:
    """The path of the gradients by `names`, in the order of the operands."""
    operands = contraction(program, path).operands
    return f"{path}/{','.join(str(n) for n, (name, _) in enumerate(operands) if name in names)}"


# --- derivatives ---


@lru_cache(maxsize=1024)
def gradients_of(contraction: Contraction, numbers: tuple[int, ...]) -> Contraction:
    """The contraction that sends gradients of `contraction`'s results to its operands with these numbers.

    Its operands are those of `contraction`, then one weight for each result.
    """
    weights = _weights(contraction, [axes for _, axes in contraction.results])
    total = ZERO
    for (name, _), (expr, _) in zip(weights, contraction.results, strict=True):
        total = plus(total, times(symbol(name), expr))
    names, axes = zip(*(contraction.operands[n] for n in numbers), strict=True) if numbers else ((), ())
    results = tuple(zip(gradient(total, names), axes, strict=True))
    return Contraction((*contraction.operands, *weights), results)


@lru_cache(maxsize=1024)
def tangents_of(contraction: Contraction, numbers: tuple[int, ...]) -> Contraction:
    """The directional derivative of the results while the operands with these numbers move.

    Its operands are those of `contraction`, then a tangent for each operand that moves.
    """
    tangents = _weights(contraction, [contraction.operands[n][1] for n in numbers])
    results: list[tuple[Expr, Axes]] = []
    for expr, axes in contraction.results:
        total = ZERO
        slopes = gradient(expr, [contraction.operands[n][0] for n in numbers])
        for slope, (name, _) in zip(slopes, tangents, strict=True):
            total = plus(total, times(symbol(name), slope))
        results.append((total, axes))
    return Contraction((*contraction.operands, *tangents), tuple(results))


def _weights(contraction: Contraction, axes: Sequence[Axes]) -> tuple[tuple[str, Axes], ...]:
    first = len(contraction.operands)
    return tuple((f"{WEIGHT}{first + n}", each) for n, each in enumerate(axes))
