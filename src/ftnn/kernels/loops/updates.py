"""Update rules: a step computes the new parameter and its state from the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ftnn.formula._expr import Expr, symbol
from ftnn.formula._names import GRADIENT, PARAMETER
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel
from ftnn.kernels.loops.losses import DOUBLE

FACTOR, CLIP, FIRST = 0, 1, 2
"""Scalars of a step: the factor for gradients summed over the batch, and the limit applied before it. The
rule's own scalars follow."""


@dataclass(frozen=True)
class Update:
    """A rule as kernels evaluate it. Parts that depend only on scalars are computed once per step."""

    value: Expr
    """The new parameter, from the old one, the gradient, the new state and scalars."""
    state: tuple[tuple[str, Expr], ...] = ()
    """New states by name, from the old ones, the old parameter, the gradient and scalars."""
    scalars: tuple[Expr, ...] = ()
    """The symbols of the scalars."""


class Updating:
    """Applies a rule in a kernel."""

    def __init__(self, k: Kernel, update: Update, scalars: ir.Value):
        self._k, self._update = k, update
        self._factor, self._clip = (k.broadcast(scalars, ir.Constant(I64, n)) for n in (FACTOR, CLIP))
        self._scalars = {
            name: k.broadcast(scalars, ir.Constant(I64, FIRST + n)) for n, name in enumerate(update.scalars)
        }

    def at(
        self, place: ir.Value, table: ir.Value, states: Sequence[ir.Value], total: ir.Value, old: ir.Value
    ) -> None:
        """Update a vector of parameters, `old`, whose gradient summed over the batch is `total`."""
        k, v = self._k, self._k.v
        gradient = v.mul(v.clamp(total, self._clip), self._factor)
        known = self._scalars | {symbol(PARAMETER): old, symbol(GRADIENT): gradient}
        names = [symbol(name) for name, _ in self._update.state]
        before = {name: k.load(state, place) for name, state in zip(names, states, strict=True)}
        formulas = [regrouped(formula) for _, formula in self._update.state]
        after = dict(zip(names, Emitter(v, known | before).evaluate(*formulas), strict=True))
        for name, state in zip(names, states, strict=True):
            k.store(after[name], state, place)
        (new,) = Emitter(v, known | after).evaluate(regrouped(self._update.value))
        k.store(new, table, place)


class UpdateArgs(Args):
    vectors: int
    parameters: int
    gradients: int
    states: int
    """Addresses of the rule's states."""
    scalars: int


def apply_update(update: Update, target: Target) -> str:
    """Update an array of parameters from an array of gradients, in whole vectors."""
    k = Kernel("apply_update", target, UpdateArgs)
    A = UpdateArgs.places()
    parameters, gradients = k.pointer(A.parameters), k.pointer(A.gradients)
    states = k.pointers(A.states, len(update.state))
    updating = Updating(k, update, k.pointer(A.scalars))

    def each(vec: ir.Value, _: list[ir.Value]) -> None:
        place = k.times(vec, k.v.lanes)
        updating.at(place, parameters, states, k.load(gradients, place), k.load(parameters, place))

    loop(k.v, k.number(A.vectors), each)
    return k.finish()


class BiasArgs(Args):
    samples: int
    vectors: int
    stride: int
    g: int
    """(vectors, stride, lanes)."""
    bias: int
    states: int
    scalars: int
    gradient: int
    accumulate: int


def bias_gradient(target: Target, update: Update | None) -> str:
    """The gradient of a bias (the error, summed over the samples), or its update at once."""
    k = Kernel("bias_gradient", target, BiasArgs)
    v, A, lanes = k.v, BiasArgs.places(), target.lanes
    samples, stride, g = k.number(A.samples), k.number(A.stride), k.pointer(A.g)
    bias, gradient = k.pointer(A.bias), k.pointer(A.gradient)
    accumulate = k.is_set(k.number(A.accumulate))
    states = k.pointers(A.states, len(update.state)) if update else []
    updating = Updating(k, update, k.pointer(A.scalars)) if update else None

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        here, place = k.times(k.times(vec, stride), lanes), k.times(vec, lanes)

        def add(s: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            return [v.add(total[0], k.load(g, k.plus(here, k.times(s, lanes))))]

        (total,) = loop(v, samples, add, [v.const(0.0)])
        if updating is not None:
            updating.at(place, bias, states, total, k.load(bias, place))
        else:
            old = when(v, accumulate, lambda: [k.load(gradient, place)], [v.const(0.0)])[0]
            k.store(v.add(old, total), gradient, place)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()


class NormArgs(Args):
    arrays: int
    """The number of arrays."""
    gradients: int
    """Their addresses."""
    sizes: int
    """The number of vectors in each."""
    largest: int
    """The largest allowed norm, float64."""
    scalars: int


def clip_norm(target: Target) -> str:
    """If the norm of all clipped gradients is too large, reduce the factor that updates multiply them by."""
    k = Kernel("clip_norm", target, NormArgs)
    v, b, A = k.v, k.builder, NormArgs.places()
    gradients, sizes, scalars = k.pointer(A.gradients), k.pointer(A.sizes), k.pointer(A.scalars)
    wide, clip = v.double(), k.broadcast(scalars, ir.Constant(I64, CLIP))

    def each_array(n: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
        array = b.inttoptr(k.int64_at(gradients, n), ir.PointerType())

        def square(vec: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            number = v.clamp(k.load(array, k.times(vec, v.lanes)), clip)
            number = number if v.scalar == DOUBLE else v.cast("fpext", number, wide.type)
            return [wide.fma(number, number, carried[0])]

        (squares,) = loop(v, k.int64_at(sizes, n), square, [wide.const(0.0)])
        return [b.fadd(total[0], wide.hsum(squares))]

    (total,) = loop(v, k.number(A.arrays), each_array, [ir.Constant(DOUBLE, 0.0)])
    root = b.call(v.external("llvm.sqrt.f64", DOUBLE, DOUBLE), [total])
    place = k.at(scalars, v.scalar, FACTOR)
    factor = b.load(place, typ=v.scalar)
    factor = factor if v.scalar == DOUBLE else b.fpext(factor, DOUBLE)
    largest = b.load(k.pointer(A.largest), typ=DOUBLE)
    # The same formula as torch.nn.utils.clip_grad_norm_.
    share = b.fdiv(largest, b.fadd(b.fmul(root, factor), ir.Constant(DOUBLE, 1e-6)))
    shrunk = b.fmul(
        factor,
        b.select(b.fcmp_ordered("<", share, ir.Constant(DOUBLE, 1.0)), share, ir.Constant(DOUBLE, 1.0)),
    )
    b.store(shrunk if v.scalar == DOUBLE else b.fptrunc(shrunk, v.scalar), place)
    return k.finish()
