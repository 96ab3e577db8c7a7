"""Activations: a layer's outputs from its sums, and the error at the sums from the error at the outputs."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ftnn.formula._expr import INPUT, Expr, symbol
from ftnn.kernels.codegen.control import loop
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel


class ActivateArgs(Args):
    samples: int
    vectors: int
    row_length: int
    sums: int
    """(samples, row)."""
    rows: int
    """(samples, row): receives the outputs; may be the sums' own memory."""
    bias: int
    scale: int
    slopes: int
    """(samples, row): the activation's slope at each sum."""


def activate(
    value: Expr, slope: Expr | None, target: Target, *, has_bias: bool, has_scale: bool = False
) -> str:
    """outputs = φ(scale·sums + bias), and the slope there unless `slope` is None. Both are formulas in x."""
    k = Kernel("activate", target, ActivateArgs)
    A, v = ActivateArgs.places(), k.v
    sums, rows, slopes, row_length = (
        k.pointer(A.sums), k.pointer(A.rows), k.pointer(A.slopes), k.number(A.row_length),
    )  # fmt: skip
    bias, scale = k.pointer(A.bias), k.pointer(A.scale)
    formulas = [regrouped(value), *([] if slope is None else [regrouped(slope)])]

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        column = k.times(vec, v.lanes)
        offset = k.load(bias, column) if has_bias else None
        factor = k.load(scale, column) if has_scale else None

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(k.times(s, row_length), column)
            total = k.load(sums, place)
            total = total if factor is None else v.mul(total, factor)
            total = total if offset is None else v.add(total, offset)
            results = Emitter(v, {symbol(INPUT): total}).evaluate(*formulas)
            for result, table in zip(results, (rows, slopes), strict=False):
                k.store(result, table, place)

        loop(v, k.number(A.samples), each_sample)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()


class ErrorArgs(Args):
    samples: int
    vectors: int
    stride: int
    down: int
    """The error at the outputs, (outputs padded to whole vectors, stride)."""
    slopes: int
    """(samples, row)."""
    row_length: int
    g: int
    """(vectors, stride, lanes)."""


def error_at_sums(target: Target) -> str:
    """g = error at the outputs · slope.

    Where the slope is 0, the error is 0, even if it was infinite. Subnormal errors become 0: they have no
    effect, yet each product with one takes the CPU a hundred cycles. Saturated activations produce many.
    """
    k = Kernel("error_at_sums", target, ErrorArgs)
    A, v, lanes = ErrorArgs.places(), k.v, target.lanes
    samples, stride, down = k.number(A.samples), k.number(A.stride), k.pointer(A.down)
    slopes, row_length, g = k.pointer(A.slopes), k.number(A.row_length), k.pointer(A.g)
    zero, least = v.const(0.0), v.const(float(np.finfo(target.dtype).tiny))

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        column = k.times(vec, lanes)
        here = k.times(k.times(vec, stride), lanes)
        for lane in range(lanes):
            row = k.times(k.plus(column, ir.Constant(ir.IntType(64), lane)), stride)
            there = k.plus(here, ir.Constant(ir.IntType(64), lane))

            def transpose(
                s: ir.Value, _: list[ir.Value], row: ir.Value = row, there: ir.Value = there
            ) -> None:
                k.put_scalar(k.scalar(down, k.plus(row, s)), g, k.plus(there, k.times(s, lanes)))

            loop(v, samples, transpose)

        def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
            place = k.plus(here, k.times(s, lanes))
            slope = k.load(slopes, k.plus(k.times(s, row_length), column))
            error = v.mul(k.load(g, place), slope)
            vanishes = v.logical_or(v.eq(slope, zero), v.lt(v.abs(error), least))
            k.store(v.select(vanishes, zero, error), g, place)

        loop(v, samples, each_sample)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()
