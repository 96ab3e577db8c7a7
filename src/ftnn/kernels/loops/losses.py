"""Losses: the loss of each sample, and the error it passes down."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ftnn.formula._expr import Expr, symbol
from ftnn.formula._names import OUTPUT, TARGET
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.rewriting import regrouped
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel
from ftnn.kernels.loops.steps import Progress, Rows

DOUBLE = ir.DoubleType()


class LossArgs(Args):
    progress: int
    order: int
    batch: int
    first: int
    samples: int
    outputs: int
    vectors: int
    stride: int
    rows: int
    """The outputs, (samples, row)."""
    row_length: int
    expected: int
    """Labels, (all samples,) int64; or targets, (all samples, row)."""
    weights: int
    """(all samples,); 0: all are 1."""
    is_output: int
    """(row,): 1 for outputs, 0 for the padding to whole vectors."""
    exponentials: int
    """Scratch for one float64 number per output."""
    losses: int
    """(steps,) float64: the mean loss of each step."""
    g: int
    """(vectors, stride, lanes)."""


class _Losses:
    """The common part of all losses: rows, weights, and the final mean."""

    def __init__(self, k: Kernel):
        A = LossArgs.places()
        self.k, self._batch = k, k.number(A.batch)
        self._progress, self._losses = k.pointer(A.progress), k.pointer(A.losses)
        self._first = k.number(A.first)
        self.rows = Rows(k, self._progress, k.pointer(A.order), self._batch, self._first)
        self._weights = k.pointer(A.weights)
        self._has_weights = k.is_set(k.number(A.weights))
        self._samples = k.number(A.samples)

    def weight(self, row: ir.Value) -> ir.Value:
        """A sample's weight, float64."""
        k, b = self.k, self.k.builder
        weight: Any = when(
            k.v,
            self._has_weights,
            lambda: [k.scalar(self._weights, row)],
            [ir.Constant(k.v.scalar, 1.0)],
        )[0]
        return weight if weight.type == DOUBLE else b.fpext(weight, DOUBLE)

    def finish(self, total: ir.Value, right: ir.Value) -> str:
        """Add to the step's mean loss and number of correct samples; stop if the loss is not finite."""
        k, b, P = self.k, self.k.builder, Progress.places()
        place = k.at(self._losses, DOUBLE, k.int64_at(self._progress, P.step))
        is_first = b.icmp_signed("==", self._first, ir.Constant(I64, 0))
        so_far = when(k.v, b.not_(is_first), lambda: [b.load(place, typ=DOUBLE)], [ir.Constant(DOUBLE, 0.0)])[
            0
        ]
        mean = b.fadd(so_far, b.fdiv(total, b.sitofp(self._batch, DOUBLE)))
        b.store(mean, place)
        k.put_int64(k.plus(k.int64_at(self._progress, P.right), right), self._progress, P.right)
        # inf - inf and NaN - NaN are NaN; a finite number minus itself is not.
        is_finite = b.fcmp_ordered("ord", b.fsub(mean, mean), ir.Constant(DOUBLE, 0.0))
        when(k.v, b.not_(is_finite), lambda: k.put_int64(1, self._progress, P.stop))
        return k.finish()


def softmax(target: Target) -> str:
    """Cross-entropy of labels after a softmax, computed in float64."""
    k = Kernel("softmax", target, LossArgs)
    v, b, A = k.v, k.builder, LossArgs.places()
    common = _Losses(k)
    outputs, stride, rows, row_length = (
        k.number(A.outputs), k.number(A.stride), k.pointer(A.rows), k.number(A.row_length),
    )  # fmt: skip
    labels, exponentials, g = k.pointer(A.expected), k.pointer(A.exponentials), k.pointer(A.g)
    exp, log = (v.external(name, DOUBLE, DOUBLE) for name in ("exp", "log"))
    nothing, lanes = ir.Constant(I64, 0), ir.Constant(I64, target.lanes)

    def each_sample(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        row, base = common.rows[s], k.times(s, row_length)
        label = k.int64_at(labels, row)

        def output(o: ir.Value) -> ir.Value:
            y: Any = k.scalar(rows, k.plus(base, o))
            return y if y.type == DOUBLE else b.fpext(y, DOUBLE)

        def find_largest(o: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            top, best, finite = carried
            y = output(o)
            is_larger = b.fcmp_ordered(">", y, top)
            is_number = b.fcmp_ordered("ord", b.fsub(y, y), ir.Constant(DOUBLE, 0.0))
            return [b.select(is_larger, y, top), b.select(is_larger, o, best), b.and_(finite, is_number)]

        start = [output(nothing), nothing, ir.Constant(ir.IntType(1), 1)]
        top, best, finite = loop(v, outputs, find_largest, start)

        def exponential(o: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            value = b.call(exp, [b.fsub(output(o), top)])
            b.store(value, k.at(exponentials, DOUBLE, o))
            return [b.fadd(total[0], value)]

        (summed,) = loop(v, outputs, exponential, [ir.Constant(DOUBLE, 0.0)])
        weight = common.weight(row)
        loss = b.fsub(b.call(log, [summed]), b.fsub(output(label), top))

        def error(o: ir.Value, _: list[ir.Value]) -> None:
            share = b.fdiv(b.load(k.at(exponentials, DOUBLE, o), typ=DOUBLE), summed)
            is_label = b.uitofp(b.icmp_signed("==", o, label), DOUBLE)
            value = b.fmul(weight, b.fsub(share, is_label))
            place = k.times(k.plus(k.times(b.sdiv(o, lanes), stride), s), lanes)
            number: Any = value if v.scalar == DOUBLE else b.fptrunc(value, v.scalar)
            k.put_scalar(number, g, k.plus(place, b.srem(o, lanes)))

        loop(v, outputs, error)
        # Outputs that are not finite do not predict a class.
        is_right = b.zext(b.and_(finite, b.icmp_signed("==", best, label)), I64)
        return [b.fadd(carried[0], b.fmul(weight, loss)), k.plus(carried[1], is_right)]

    total, right = loop(v, k.number(A.samples), each_sample, [ir.Constant(DOUBLE, 0.0), nothing])
    return common.finish(total, right)


def elementwise_loss(value: Expr, slope: Expr, target: Target) -> str:
    """Σ over outputs of a formula in y and t, and its derivative with respect to y."""
    k = Kernel("loss", target, LossArgs)
    v, b, A = k.v, k.builder, LossArgs.places()
    common = _Losses(k)
    vectors, stride, rows, row_length = (
        k.number(A.vectors), k.number(A.stride), k.pointer(A.rows), k.number(A.row_length),
    )  # fmt: skip
    targets, is_output, g = k.pointer(A.expected), k.pointer(A.is_output), k.pointer(A.g)
    formulas = [regrouped(value), regrouped(slope)]
    zero = v.const(0.0)

    def each_sample(s: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        row = common.rows[s]
        weight = common.weight(row)
        factor = v.splat(weight if v.scalar == DOUBLE else b.fptrunc(weight, v.scalar))

        def each_vector(vec: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            column = k.times(vec, v.lanes)
            known = {
                symbol(OUTPUT): k.load(rows, k.plus(k.times(s, row_length), column)),
                symbol(TARGET): k.load(targets, k.plus(k.times(row, row_length), column)),
            }
            loss, error = Emitter(v, known).evaluate(*formulas)
            counts = v.ne(k.load(is_output, column), zero)
            place = k.times(k.plus(k.times(vec, stride), s), v.lanes)
            k.store(v.select(counts, v.mul(factor, error), zero), g, place)
            summed = v.hsum(v.select(counts, loss, zero))
            return [b.fadd(total[0], summed if v.scalar == DOUBLE else b.fpext(summed, DOUBLE))]

        (loss,) = loop(v, vectors, each_vector, [ir.Constant(DOUBLE, 0.0)])
        return [b.fadd(carried[0], b.fmul(weight, loss))]

    (total,) = loop(v, k.number(A.samples), each_sample, [ir.Constant(DOUBLE, 0.0)])
    return common.finish(total, ir.Constant(I64, 0))
