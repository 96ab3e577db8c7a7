"""Samples whose x is zero: F(0) in the forward pass, the sum of their errors in the backward pass.

F(0) does not depend on the sample, so zeros need no separate evaluation. Skipping them must not cost digits:
nothing here is computed as a total minus the other samples' share, unless that is proved harmless.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir

from ftnn.kernels.codegen.control import I64, loop, when
from ftnn.kernels.codegen.target import Args, Target
from ftnn.kernels.loops.kernel import Kernel, SampleLists

SHARED, EXPLICIT, FLAGGED = range(3)
"""How a forward kernel treats zeros. `FLAGGED` is explicit, and flags what sharing would have lost."""
TAKEN_BACK = 0.9
"""The largest share of Σ|F(0)| that a listed sample may take back."""
GROUP = 4
"""The number of samples whose subsets are summed in advance, which gives 2**GROUP sums."""
BLOCK = 4 * GROUP
"""The number of samples that the backward pass adds up at once."""


class SharedZeros:
    """Adds F(0) to the sums of the samples whose x is zero, in one of two ways.

    - *Shared*: Σ F(0) is added to every sample at the end, and a listed sample adds F(x) - F(0). Zeros cost
      nothing, but a sample that takes back most of Σ|F(0)| loses the digits of its own F(x).
    - *Explicit*: F(0) is added to each zero. Nothing is taken back.

    Shared mode checks itself. Of A = Σ|F(0)|, a sample with k listed inputs takes back at most √(k·Σ F(0)²)
    (Cauchy-Schwarz), where this and the next sum run over the inputs that any sample lists, and at most
    Σ|F(0)|. Rounding errors are proportional to A. If at most TAKEN_BACK·A is taken back, they are at most
    1/(1 - TAKEN_BACK) times those of a plain sum of the sample's own terms. Where this cannot be shown, the
    result is flagged as lost, and the caller repeats it explicitly. A caller that expects this begins with
    explicit mode, which can raise the same flag: the mode then follows from the data, not from the attempt.
    """

    def __init__(
        self, k: Kernel, lists: SampleLists, vectors: ir.Value, tile: int, explicit: ir.Value, lost: ir.Value
    ):
        self._k, self._lists, self._lost = k, lists, lost
        self.explicit = k.is_set(explicit)
        self._flags = k.builder.icmp_signed("!=", explicit, ir.Constant(I64, EXPLICIT))
        self._counts = k.int64s_on_stack(tile)
        # Σ F(0); Σ|F(0)| and Σ F(0)² of the inputs that any sample lists; Σ|F(0)| of the others.
        self._total, self._taken, self._square, self._unlisted = (
            k.vectors_on_stack(vectors) for _ in range(4)
        )

        def clear_count(s: ir.Value, _: list[ir.Value]) -> None:
            k.builder.store(ir.Constant(I64, 0), k.at(self._counts, I64, s))

        def clear_sums(vec: ir.Value, _: list[ir.Value]) -> None:
            for table in (self._total, self._taken, self._unlisted, self._square):
                k.store(k.v.const(0.0), table, k.times(vec, k.v.lanes))

        loop(k.v, lists.samples, clear_count)
        loop(k.v, vectors, clear_sums)

    def at_input(self) -> None:
        """Count each sample's listed inputs: those at which it takes F(0) back."""
        k, lists, b = self._k, self._lists, self._k.builder
        self._listed = b.icmp_signed(">", lists.listed, ir.Constant(I64, 0))

        def each(s: ir.Value, _: list[ir.Value]) -> None:
            place = k.at(self._counts, I64, lists.sample(s))
            b.store(k.plus(b.load(place, typ=I64), ir.Constant(I64, 1)), place)

        when(k.v, lists.some_are_zero, lambda: loop(k.v, lists.listed, each))

    def add_to_each(self, vec: ir.Value, u: ir.Value, row: ir.Value, silent: ir.Value) -> None:
        """Explicit: add F(0) to the sum of each sample whose x is zero."""
        k, lists = self._k, self._lists
        flags = k.builder.and_(self._flags, lists.some_are_zero)
        when(k.v, flags, lambda: self._measure(k.times(vec, k.v.lanes), silent))

        def each(s: ir.Value, _: list[ir.Value]) -> None:
            cell = k.plus(row, k.times(lists.sample(s), k.v.lanes))
            k.store(k.v.add(k.load(u, cell), silent), u, cell)

        loop(k.v, lists.samples, each, start=lists.listed)

    def share(self, vec: ir.Value, silent: ir.Value) -> ir.Value:
        """Shared: add F(0) to the sum of all samples. Returns the value that listed samples take back."""
        k, v, lists = self._k, self._k.v, self._lists
        place = k.times(vec, v.lanes)

        def some_are_zero() -> list[ir.Value]:
            k.store(v.add(k.load(self._total, place), silent), self._total, place)
            self._measure(place, silent)
            return [silent]

        return when(v, lists.some_are_zero, some_are_zero, [v.const(0.0)])[0]

    def _measure(self, place: ir.Value, silent: ir.Value) -> None:
        """Add the size of F(0) at an input to the sums that decide whether sharing is harmless."""
        k, v = self._k, self._k.v
        size = k.builder.select(self._listed, self._taken, self._unlisted)
        k.store(v.add(k.load(size, place), v.abs(silent)), size, place)
        square = v.fma(silent, silent, k.load(self._square, place))
        when(v, self._listed, lambda: k.store(square, self._square, place))

    def most_listed(self) -> ir.Value:
        """The most inputs at which any sample takes F(0) back, in all lanes."""
        k, b = self._k, self._k.builder

        def larger(s: ir.Value, most: list[ir.Value]) -> list[ir.Value]:
            count = b.load(k.at(self._counts, I64, s), typ=I64)
            return [b.select(b.icmp_signed(">", count, most[0]), count, most[0])]

        (most,) = loop(k.v, self._lists.samples, larger, [ir.Constant(I64, 0)])
        return k.v.splat(b.sitofp(most, k.v.scalar))

    def shared(self, vec: ir.Value, most: ir.Value) -> ir.Value:
        """Σ F(0), which all samples share; 0 in explicit mode. Flags it as lost unless proved harmless."""
        k, v = self._k, self._k.v
        place = k.times(vec, v.lanes)
        tables = (self._total, self._taken, self._unlisted, self._square)
        total, taken, unlisted, square = (k.load(table, place) for table in tables)
        size = v.add(taken, unlisted)
        # Squares of anything smaller underflow.
        underflows = v.const(math.sqrt(np.finfo(v.dtype).tiny))
        most_taken = v.minimum(taken, v.fma(most, underflows, v.sqrt(v.mul(most, square))))
        within = v.le(most_taken, v.mul(size, v.const(TAKEN_BACK)))
        harmless = v.logical_and(within, v.lt(size, v.const(math.inf)))

        def is_lost() -> None:
            k.builder.store(ir.Constant(I64, 1), self._lost)

        when(v, v.any(v.logical_not(harmless)), is_lost)
        return total


class SubsetSumArgs(Args):
    vectors: int
    samples: int
    stride: int
    g: int
    """(vectors, stride, lanes)."""
    sums: int
    """(vectors, blocks, BLOCK / GROUP, 2**GROUP, lanes)."""


def subset_sums(target: Target) -> str:
    """The sum of g over every subset of each group of samples.

    The error of an input's zeros is then one of these per group, added up: a quarter of the additions, and no
    subtraction, however large the other samples' errors are.
    """
    k = Kernel("subset_sums", target, SubsetSumArgs)
    v, A, lanes = k.v, SubsetSumArgs.places(), target.lanes
    samples, stride, g, sums = k.number(A.samples), k.number(A.stride), k.pointer(A.g), k.pointer(A.sums)
    groups = k.times(blocks_of(k, samples), BLOCK // GROUP)

    def each_vector(vec: ir.Value, _: list[ir.Value]) -> None:
        def each_group(group: ir.Value, _: list[ir.Value]) -> None:
            def member(n: int) -> ir.Value:
                s = k.plus(k.times(group, GROUP), ir.Constant(I64, n))
                there = k.times(k.plus(k.times(vec, stride), s), lanes)
                is_sample = k.builder.icmp_signed("<", s, samples)
                return when(v, is_sample, lambda: [k.load(g, there)], [v.const(0.0)])[0]

            members = [member(n) for n in range(GROUP)]
            first = k.times(k.plus(k.times(vec, groups), group), 2**GROUP * lanes)
            totals: list[ir.Value] = [v.const(0.0)]
            for error in members:
                totals += [error if n == 0 else v.add(one, error) for n, one in enumerate(totals)]
            for n, total in enumerate(totals):
                k.store(total, sums, k.plus(first, ir.Constant(I64, n * lanes)))

        loop(v, groups, each_group)

    loop(v, k.number(A.vectors), each_vector)
    return k.finish()


def subset_sums_size(vectors: int, samples: int, target: Target) -> int:
    """The size of the sums of subsets, in numbers."""
    return vectors * -(-samples // BLOCK) * (BLOCK // GROUP) * 2**GROUP * target.lanes


def blocks_of(k: Kernel, samples: ir.Value) -> ir.Value:
    return k.builder.sdiv(k.plus(samples, ir.Constant(I64, BLOCK - 1)), ir.Constant(I64, BLOCK))


class ZerosErrors:
    """The sum of the errors of an input's zeros, from the sums of subsets."""

    def __init__(self, k: Kernel, lists: SampleLists, sums: ir.Value, tile: int):
        self._k, self._lists, self._sums = k, lists, sums
        self._blocks = ir.Constant(I64, 1) if tile <= BLOCK else blocks_of(k, lists.samples)
        self._per_vector = k.times(self._blocks, BLOCK // GROUP * 2**GROUP * k.v.lanes)
        self._words = -(-tile // 64)
        self._zeros = k.int64s_on_stack(self._words)  # a bit for each sample

    def _word(self, number: ir.Value) -> ir.Value:
        # LLVM keeps a single word in a register if it can tell that there is only one.
        return self._k.at(self._zeros, I64, number if self._words > 1 else ir.Constant(I64, 0))

    def at_input(self) -> None:
        """Find out which samples are zero."""
        k, b = self._k, self._k.builder

        def set_all(number: ir.Value, _: list[ir.Value]) -> None:
            b.store(ir.Constant(I64, -1), self._word(number))

        def clear_listed(s: ir.Value, _: list[ir.Value]) -> None:
            sample = self._lists.sample(s)
            word = self._word(b.ashr(sample, ir.Constant(I64, 6)))
            bit = b.shl(ir.Constant(I64, 1), b.and_(sample, ir.Constant(I64, 63)))
            b.store(b.xor(b.load(word, typ=I64), bit), word)

        loop(k.v, ir.Constant(I64, self._words), set_all)
        loop(k.v, self._lists.listed, clear_listed)

    def total(self, vec: ir.Value) -> ir.Value:
        """Σ g over the zeros."""
        k, v, b = self._k, self._k.v, self._k.builder
        here = k.times(vec, self._per_vector)

        def each_block(block: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            first = k.times(block, BLOCK)
            word = b.load(self._word(b.ashr(first, ir.Constant(I64, 6))), typ=I64)
            bits = b.lshr(word, b.and_(first, ir.Constant(I64, 63)))
            parts: list[ir.Value] = []
            for n in range(BLOCK // GROUP):
                subset = b.and_(b.lshr(bits, ir.Constant(I64, n * GROUP)), ir.Constant(I64, 2**GROUP - 1))
                group = k.plus(k.times(block, BLOCK // GROUP), ir.Constant(I64, n))
                place = k.times(k.plus(k.times(group, 2**GROUP), subset), v.lanes)
                parts.append(k.load(self._sums, k.plus(here, place)))
            while len(parts) > 1:
                parts = [v.add(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
            return [v.add(carried[0], parts[0])]

        return loop(v, self._blocks, each_block, [v.const(0.0)])[0]
