"""Normalised sums: each unit's sum less its mean over the mini-batch, divided by its standard deviation."""

from __future__ import annotations

from llvmlite import ir

from ftnn.kernels.codegen.control import loop
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel
from ftnn.kernels.loops.updates import Update, Updating


class NormaliseArgs(Args):
    samples: int
    vectors: int
    row_length: int
    rows: int
    """(samples, row): the sums."""
    normal: int
    """(samples, row): receives the normalised sums."""
    inverse: int
    """(row,): receives 1 over the standard deviations."""
    mean: int
    """(row,): the running means."""
    variance: int
    """(row,): the running variances."""


def normalise(target: Target, *, momentum: float, eps: float, alone: bool) -> str:
    """Normalise sums, and let the running statistics follow.

    `alone`: there is one sample, which has no variance of its own; the running statistics normalise it.
    """
    k = Kernel("normalise", target, NormaliseArgs)
    A, v = NormaliseArgs.places(), k.v
    samples, row_length = k.number(A.samples), k.number(A.row_length)
    rows, normal, inverse = k.pointer(A.rows), k.pointer(A.normal), k.pointer(A.inverse)
    running_mean, running_variance = k.pointer(A.mean), k.pointer(A.variance)
    zero, one, share = v.const(0.0), v.const(1.0), v.const(momentum)
    count = v.splat(k.builder.sitofp(samples, v.scalar))

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        column = k.times(vec, v.lanes)

        def place(s: ir.Value) -> ir.Value:
            return k.plus(k.times(s, row_length), column)

        def follow(table: ir.Value, old: ir.Value, new: ir.Value) -> None:
            k.store(v.fma(share, v.sub(new, old), old), table, column)

        old_mean, old_variance = k.load(running_mean, column), k.load(running_variance, column)
        if alone:
            total = k.load(rows, column)
            mean, variance = old_mean, old_variance
            distance = v.sub(total, old_mean)
            follow(running_mean, old_mean, total)
            follow(running_variance, old_variance, v.mul(distance, distance))
        else:
            (total,) = loop(v, samples, lambda s, sums: [v.add(sums[0], k.load(rows, place(s)))], [zero])
            mean = v.div(total, count)

            def square(s: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                distance = v.sub(k.load(rows, place(s)), mean)
                return [v.fma(distance, distance, sums[0])]

            (squares,) = loop(v, samples, square, [zero])
            variance = v.div(squares, count)
            follow(running_mean, old_mean, mean)
            follow(running_variance, old_variance, v.div(squares, v.sub(count, one)))
        over = v.div(one, v.sqrt(v.add(variance, v.const(eps))))
        k.store(over, inverse, column)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            k.store(v.mul(v.sub(k.load(rows, place(s)), mean), over), normal, place(s))

        loop(v, samples, each_sample)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()


class NormalisedErrorArgs(Args):
    samples: int
    vectors: int
    stride: int
    row_length: int
    g: int
    """(vectors, stride, lanes): the error after the normalisation, which becomes the error at the sums."""
    normal: int
    """(samples, row)."""
    inverse: int
    bias: int
    scale: int
    bias_states: int
    scale_states: int
    bias_gradient: int
    scale_gradient: int
    scalars: int


def normalised_error(target: Target, update: Update | None, *, alone: bool) -> str:
    """The gradients of scale and bias, or their update at once, and the error at the sums.

    With outputs scale·n + bias, where n = (u - mean)·inverse, the error at u is
    scale·inverse·(g - mean(g) - n·mean(g·n)).
    """
    k = Kernel("normalised_error", target, NormalisedErrorArgs)
    A, v, lanes = NormalisedErrorArgs.places(), k.v, target.lanes
    samples, stride, row_length = k.number(A.samples), k.number(A.stride), k.number(A.row_length)
    g, normal, inverse = k.pointer(A.g), k.pointer(A.normal), k.pointer(A.inverse)
    tables = k.pointer(A.bias), k.pointer(A.scale)
    gradients = k.pointer(A.bias_gradient), k.pointer(A.scale_gradient)
    updating = Updating(k, update, k.pointer(A.scalars)) if update else None
    states = (
        [k.pointers(place, len(update.state)) for place in (A.bias_states, A.scale_states)] if update else []
    )
    count = v.splat(k.builder.sitofp(samples, v.scalar))

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        column, here = k.times(vec, lanes), k.times(k.times(vec, stride), lanes)

        def error_at(s: ir.Value) -> ir.Value:
            return k.plus(here, k.times(s, lanes))

        def normal_at(s: ir.Value) -> ir.Value:
            return k.load(normal, k.plus(k.times(s, row_length), column))

        def add(s: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            error = k.load(g, error_at(s))
            return [v.add(sums[0], error), v.fma(error, normal_at(s), sums[1])]

        totals = loop(v, samples, add, [v.const(0.0)] * 2)
        factor = v.mul(k.load(tables[1], column), k.load(inverse, column))
        for n, (table, total) in enumerate(zip(tables, totals, strict=True)):
            if updating is not None:
                updating.at(column, table, states[n], total, k.load(table, column))
            else:
                k.store(total, gradients[n], column)
        mean, along = (v.div(total, count) for total in totals)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            error = k.load(g, error_at(s))
            if not alone:
                error = v.sub(v.sub(error, mean), v.mul(normal_at(s), along))
            k.store(v.mul(error, factor), g, error_at(s))

        loop(v, samples, each_sample)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()
