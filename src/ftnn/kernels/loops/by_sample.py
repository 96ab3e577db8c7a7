"""The forward pass of cheap functions, sample by sample, for layers whose sums outgrow the cache.

`skipping_forward.py` loads and stores every sum once per input. If the sums of a tile do not fit into the
first-level cache, that takes several times as long as the arithmetic. Here sums stay in registers: matrices
are copied to fit into that cache, for a span of inputs and a group of vectors of outputs, and each sample
goes through its nonzero inputs. Terms are added up in the same order, so both give the same bits.
"""

from __future__ import annotations

from functools import lru_cache

from llvmlite import ir

from ftnn.formula._expr import INPUT, ZERO, Call, Expr, folded, postorder, symbol
from ftnn.formula._ops import OPS
from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.emitting import Emitter
from ftnn.kernels.codegen.placeholders import SUM
from ftnn.kernels.codegen.rewriting import at_zero, kernel_form, side
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.forms import value_of
from ftnn.kernels.loops.kernel import Kernel, matrix_values
from ftnn.kernels.program import Program

GROUP = 8
"""The vectors of outputs whose sums are in registers at the same time."""
COPIED = 256
"""The vectors of matrices that are copied at once: at most 16 KiB, as threads may share a cache."""
CHEAP = 8
"""The most operations per connection and sample."""
_SIMPLE = (
    "add", "sub", "mul", "neg", "abs", "minimum", "maximum", "where", "lt", "le", "gt", "ge", "eq", "ne",
)  # fmt: skip


@lru_cache(maxsize=512)
def suits(program: Program) -> bool:
    """Whether memory decides how long a function takes, and F(0) = 0, so that nothing is shared."""
    value = value_of(program)
    calls = [part for part in postorder(value) if isinstance(part, Call) and side(part) != "matrices"]
    return at_zero(kernel_form(program)) is ZERO and len(calls) <= CHEAP and all(map(_is_simple, calls))


def _is_simple(part: Call) -> bool:
    return OPS[part.op].llvm in _SIMPLE or (part.op == "pow" and side(part.args[1]) == "number")


def _copied(value: Expr) -> list[Expr]:
    """The largest parts that depend on matrices alone. A comparison gives a mask: its operands instead."""
    parts: dict[Expr, None] = {}
    stack = [value]
    while stack:
        part = stack.pop()
        is_mask = isinstance(part, Call) and OPS[part.op].is_comparison
        if side(part) == "matrices" and not is_mask:
            parts[part] = None
        elif isinstance(part, Call):
            stack.extend(part.args)
    return list(parts)


def span(program: Program) -> int:
    """The inputs whose matrices are copied at once."""
    return COPIED // GROUP // max(1, len(_copied(value_of(program))))


class RegroupArgs(Args):
    inputs: int
    samples: int
    stride: int
    counts: int
    """The lists of samples by input."""
    indices: int
    values: int
    sizes: int
    """(samples,): how many inputs each sample lists."""
    columns: int
    """(samples, span): these inputs, from 0."""
    row_values: int
    """(samples, span)."""


def regroup(target: Target, span: int) -> str:
    """Lists by sample from lists by input, for a span of inputs."""
    k = Kernel("regroup", target, RegroupArgs)
    A = RegroupArgs.places()
    stride = k.number(A.stride)
    counts, indices, values = k.pointer(A.counts), k.pointer(A.indices), k.pointer(A.values)
    sizes, columns, row_values = k.pointer(A.sizes), k.pointer(A.columns), k.pointer(A.row_values)
    loop(k.v, k.number(A.samples), lambda s, _: k.put_index(ir.Constant(I64, 0), sizes, s))

    def each_input(j: ir.Value, _: list[ir.Value]) -> None:
        row = k.times(j, stride)

        def each_sample(n: ir.Value, _: list[ir.Value]) -> None:
            s = k.index_at(indices, k.plus(row, n))
            size = k.index_at(sizes, s)
            place = k.plus(k.times(s, span), size)
            k.put_index(j, columns, place)
            k.put_scalar(k.scalar(values, k.plus(row, n)), row_values, place)
            k.put_index(k.plus(size, ir.Constant(I64, 1)), sizes, s)

        loop(k.v, k.index_at(counts, j), each_sample)

    loop(k.v, k.number(A.inputs), each_input)
    return k.finish()


class BySampleArgs(Args):
    inputs: int
    vectors: int
    samples: int
    stride: int
    sizes: int
    """(spans, stride): see `RegroupArgs`."""
    columns: int
    """(spans, stride, span)."""
    row_values: int
    matrices: int
    row_length: int
    out: int
    """(samples, row)."""
    out_row_length: int


def forward_by_sample(program: Program, target: Target) -> str:
    """out[s] = F ⊙ x[s], for the samples of a tile and whole vectors of outputs."""
    k = Kernel("forward_by_sample", target, BySampleArgs)
    v, b, A, lanes = k.v, k.builder, BySampleArgs.places(), target.lanes
    value, inputs_at_once = value_of(program), span(program)
    parts, total = _copied(value), folded("add", SUM, value)
    inputs, vectors, samples, stride = (
        k.number(place) for place in (A.inputs, A.vectors, A.samples, A.stride)
    )
    sizes, columns, row_values = k.pointer(A.sizes), k.pointer(A.columns), k.pointer(A.row_values)
    tables, row_length = k.pointers(A.matrices, len(program.matrices)), k.number(A.row_length)
    out, out_row_length = k.pointer(A.out), k.number(A.out_row_length)
    copies = [k.scratch(inputs_at_once * GROUP * lanes) for _ in parts]
    width = ir.Constant(I64, inputs_at_once)
    spans = b.sdiv(k.plus(inputs, ir.Constant(I64, inputs_at_once - 1)), width)

    def each_group(vec: ir.Value, members: int) -> None:
        place = k.times(vec, lanes)
        offsets = [ir.Constant(I64, member * lanes) for member in range(members)]

        def each_span(number: ir.Value, _: list[ir.Value]) -> None:
            first = k.times(number, inputs_at_once)
            rest = b.sub(inputs, first)
            count = b.select(b.icmp_signed("<", rest, width), rest, width)

            def copy(j: ir.Value, _: list[ir.Value]) -> None:
                row = k.plus(k.times(k.plus(first, j), row_length), place)
                for offset in offsets:
                    emit = Emitter(v, matrix_values(k, program, tables, k.plus(row, offset)))
                    there = k.plus(k.times(j, GROUP * lanes), offset)
                    for copied, result in zip(copies, emit.evaluate(*parts), strict=True):
                        k.store(result, copied, there)

            loop(v, count, copy)
            is_first = b.icmp_signed("==", number, ir.Constant(I64, 0))

            def each_sample(s: ir.Value, _: list[ir.Value]) -> None:
                row = k.plus(k.times(number, stride), s)
                listed, start = k.index_at(sizes, row), k.times(row, inputs_at_once)
                here = k.plus(k.times(s, out_row_length), place)
                cells = [k.plus(here, offset) for offset in offsets]
                nothing = [v.const(0.0)] * members
                sums = when(v, b.not_(is_first), lambda: [k.load(out, cell) for cell in cells], nothing)

                def each_input(n: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                    entry = k.plus(start, n)
                    x = k.broadcast(row_values, entry)
                    copied_row = k.times(k.index_at(columns, entry), GROUP * lanes)
                    results: list[ir.Value] = []
                    for offset, before in zip(offsets, sums, strict=True):
                        known = {
                            part: k.load(copied, k.plus(copied_row, offset))
                            for part, copied in zip(parts, copies, strict=True)
                        }
                        results += Emitter(v, {symbol(INPUT): x, SUM: before, **known}).evaluate(total)
                    return results

                for result, cell in zip(loop(v, listed, each_input, sums), cells, strict=True):
                    k.store(result, out, cell)

            loop(v, samples, each_sample)

        loop(v, spans, each_span)

    groups = b.sdiv(vectors, ir.Constant(I64, GROUP))
    loop(v, groups, lambda n, _: each_group(k.times(n, GROUP), GROUP))
    loop(v, vectors, lambda vec, _: each_group(vec, 1), start=k.times(groups, GROUP))
    return k.finish()
