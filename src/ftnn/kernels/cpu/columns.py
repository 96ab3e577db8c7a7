"""The outputs of a layer in whole vectors, as kernels take them, and the calls around the kernels.

If outputs do not fill whole vectors, kernels take the last ones from a padded copy, and their results are
copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ftnn.formula._expr import plus, symbol
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import tiling
from ftnn.kernels.cpu.compiler import kernel
from ftnn.kernels.cpu.launch import Preparation
from ftnn.kernels.cpu.threads import Call
from ftnn.kernels.cpu.tiling import Sizes, Tile, shares, spans
from ftnn.kernels.loops.copies import CheckArgs, PackArgs, TransposeArgs, check, pack, transpose
from ftnn.kernels.loops.elementwise import ElementwiseArgs, elementwise


def check_call(target: Target, source: int, numbers: int, flag: int) -> Call:
    """Sets a flag if some of these numbers are not finite."""
    return kernel(check, target), CheckArgs(numbers=numbers, source=source, flag=flag)


class Rows(NamedTuple):
    """Rows of numbers in an array: where they start, and how far apart they are."""

    place: int
    length: int


class Columns(NamedTuple):
    """Some outputs in whole vectors: the layer's own, or a padded copy of the last ones."""

    sizes: Sizes
    first: int
    """The first of these outputs."""
    outputs: int
    """How many there are, without padding."""
    vectors: int
    row_length: int
    """Of matrices, gradients, sums and errors."""
    matrices: list[int]
    """The place of each."""
    copying: list[list[Call]]
    """Tasks that fill the copies."""

    @property
    def is_copy(self) -> bool:
        return self.row_length != self.sizes.outputs

    def at(self, place: int) -> int:
        """The place of the first of these outputs in a row of the layer's own array."""
        return place + self.sizes.bytes(self.first)

    def tables(self, launch: Preparation, start: int, gradients: _Gradients) -> tuple[int, int]:
        """The places of tables of the matrices, from an input on, and of its gradients."""
        offset = self.sizes.bytes(start * self.row_length)
        matrices = launch.table([matrix + offset for matrix in self.matrices])
        return matrices, launch.table([rows.place for rows in gradients.targets])

    def copy(self, rows: int, source: Rows, target: Rows, width: int, *, repeats: bool = False) -> Call:
        """Copies rows of these outputs; the rest of `width` is filled with zeros, or with the last output."""
        args = TransposeArgs(
            rows=rows,
            columns=self.outputs,
            width=width,
            source=source.place,
            source_by_row=source.length,
            source_by_column=1,
            target=target.place,
            target_by_row=target.length,
        )
        return kernel(transpose, self.sizes.target, repeats=repeats), args


def columns_of(launch: Preparation, sizes: Sizes, matrices: Sequence[int]) -> list[Columns]:
    """All outputs. `matrices` are their places, each (in, out)."""
    lanes, outputs = sizes.target.lanes, sizes.outputs
    whole = outputs // lanes
    parts: list[Columns] = []
    if whole:
        parts.append(Columns(sizes, 0, whole * lanes, whole, outputs, list(matrices), []))
    if rest := outputs - whole * lanes:
        copies = [launch.scratch(sizes.bytes(sizes.inputs * lanes)) for _ in matrices]
        part = Columns(sizes, whole * lanes, rest, 1, lanes, copies, [])
        for matrix, place in zip(matrices, copies, strict=True):
            # Padded with copies of a real output, so that no other values are computed.
            source, target = Rows(part.at(matrix), outputs), Rows(place, lanes)
            part.copying.append([part.copy(sizes.inputs, source, target, lanes, repeats=True)])
        parts.append(part)
    return parts


# --- forward ---


class Block(NamedTuple):
    """Some vectors of outputs of a tile, and the places for a forward kernel's sums."""

    columns: Columns
    first: int
    """The first vector."""
    vectors: int
    scratch: int
    out: int
    after: list[Call]
    """Calls that follow the kernel's."""

    @property
    def matrices(self) -> list[int]:
        """The place of each, from the first vector on."""
        sizes = self.columns.sizes
        return [matrix + sizes.bytes(self.first * sizes.target.lanes) for matrix in self.columns.matrices]


def blocks(launch: Preparation, columns: Columns, tile: Tile, out: int) -> Iterator[Block]:
    """The blocks of a tile. `out` is the place of the layer's sums, (samples, out)."""
    sizes = columns.sizes
    lanes, count = sizes.target.lanes, len(tiling.tiles(sizes))
    if columns.is_copy:
        sums = Rows(launch.scratch(sizes.bytes(tile.samples * lanes)), lanes)
        target = Rows(columns.at(out) + sizes.bytes(tile.first * sizes.outputs), sizes.outputs)
        after = [columns.copy(tile.samples, sums, target, columns.outputs)]
    else:
        sums, after = Rows(out + sizes.bytes(tile.first * sizes.outputs), sizes.outputs), []
    # Enough blocks for all threads.
    threads = sizes.threads if sizes.parallel else 1
    at_once = min(tiling.BLOCK_VECTORS, max(1, -(-columns.vectors * count // threads)))
    for first, stop in spans(columns.vectors, at_once):
        scratch = launch.scratch(sizes.bytes((stop - first) * tile.stride * lanes))
        place = sums.place + sizes.bytes(first * lanes)
        yield Block(columns, first, stop - first, scratch, place, after)


# --- backward ---


class Packed(NamedTuple):
    """A tile's errors, (vectors, stride, lanes)."""

    columns: Columns
    tile: Tile
    place: int
    tasks: list[list[Call]]
    """Tasks that fill one vector each."""

    def at(self, vector: int) -> int:
        """The place of a vector's errors."""
        sizes = self.columns.sizes
        return self.place + vector * sizes.bytes(self.tile.stride * sizes.target.lanes)


def packed(launch: Preparation, columns: Columns, tile: Tile, errors: int) -> Packed:
    """`errors` is the place of the errors at the layer's sums, (samples, out)."""
    sizes = columns.sizes
    lanes, code = sizes.target.lanes, kernel(pack, sizes.target)
    place = launch.scratch(sizes.bytes(columns.vectors * tile.stride * lanes))
    result = Packed(columns, tile, place, [])
    source = columns.at(errors) + sizes.bytes(tile.first * sizes.outputs)
    if columns.is_copy:
        padded = columns.copy(tile.samples, Rows(source, sizes.outputs), Rows(place, lanes), lanes)
        result.tasks.append([padded])
        return result
    for vector in range(columns.vectors):
        args = PackArgs(
            vectors=1,
            samples=tile.samples,
            stride=tile.stride,
            source=source + sizes.bytes(vector * lanes),
            row_length=sizes.outputs,
            g=result.at(vector),
        )
        result.tasks.append([(code, args)])
    return result


class Step(NamedTuple):
    """What a backward kernel does at once: a tile's errors at some outputs, and some inputs."""

    packed: Packed
    number: int
    """The tile's."""
    start: int
    """The first input."""
    inputs: int
    matrices: int
    """Tables of the matrices, from the first input on, and of the gradients."""
    gradients: int
    accumulate: int
    dx: int
    dx_row_length: int


class Results(NamedTuple):
    """The places of what a backward pass fills, and a flag for numbers that are not finite."""

    gradients: list[int]
    down: int | None
    """The error sent down, (batch, in), if needed."""
    infinite: int


def backward_tasks(
    launch: Preparation,
    packs: Sequence[Sequence[Packed]],
    results: Results,
    call: Callable[[Step], Call],
    *,
    first: bool,
    padded: bool,
) -> list[list[Call]]:
    """The tasks of a backward pass: for each share of the inputs all outputs, and all tiles in order.

    **Arguments:**

    - `packs`: for each of the columns, the errors of all tiles.
    - `first`: whether these are the first samples, whose gradients overwrite what was there.
    - `padded`: whether the kernel pads the error that a tile sends down to whole vectors of samples.
    """
    sizes = packs[0][0].columns.sizes
    row, tasks = sizes.bytes(sizes.outputs), list[list[Call]]()
    lengths = [errors.tile.stride if padded else errors.tile.samples for errors in packs[0]]
    for start, stop in shares(sizes.inputs, parallel=sizes.parallel):
        inputs, calls = stop - start, list[Call]()
        own = [gradient + start * row for gradient in results.gradients]
        # The error that each tile sends down, (inputs, length), from all outputs.
        below = [0 if results.down is None else launch.scratch(sizes.bytes(inputs * n)) for n in lengths]
        for part, of_tiles in enumerate(packs):
            gradients = _Gradients.of(launch, of_tiles[0].columns, inputs, own)
            if not first:
                calls += gradients.copied_in()
            tables = of_tiles[0].columns.tables(launch, start, gradients)
            for n, (errors, length) in enumerate(zip(of_tiles, lengths, strict=True)):
                adds = part > 0 and results.down is not None
                dx = launch.scratch(sizes.bytes(inputs * length)) if adds else below[n]
                calls.append(
                    call(Step(errors, n, start, inputs, *tables, int(n > 0 or not first), dx, length))
                )
                if adds:
                    calls.append(_add(launch, sizes.target, below[n], dx, inputs * length))
            calls += gradients.copied_back()
        if results.down is not None:
            for errors, place, length in zip(packs[0], below, lengths, strict=True):
                calls.append(_send_down(sizes, errors.tile, place, length, results.down, start, inputs))
                calls.append(check_call(sizes.target, place, inputs * length, results.infinite))
        for gradient in own:
            calls.append(check_call(sizes.target, gradient, inputs * sizes.outputs, results.infinite))
        tasks.append(calls)
    return tasks


class _Gradients(NamedTuple):
    """Where kernels write the gradients of some inputs: to the layer's own arrays, or to copies."""

    columns: Columns
    inputs: int
    own: list[Rows]
    targets: list[Rows]

    @classmethod
    def of(cls, launch: Preparation, columns: Columns, inputs: int, gradients: Sequence[int]) -> _Gradients:
        """`gradients` are the places of the first input's."""
        length = columns.row_length
        own = [Rows(columns.at(gradient), columns.sizes.outputs) for gradient in gradients]
        if not columns.is_copy:
            return cls(columns, inputs, own, own)
        size = columns.sizes.bytes(inputs * length)
        return cls(columns, inputs, own, [Rows(launch.scratch(size), length) for _ in own])

    def copied_in(self) -> list[Call]:
        """Calls that copy what is there already, for kernels to add to."""
        return self._copied(self.own, self.targets, self.columns.row_length)

    def copied_back(self) -> list[Call]:
        return self._copied(self.targets, self.own, self.columns.outputs)

    def _copied(self, sources: Sequence[Rows], targets: Sequence[Rows], width: int) -> list[Call]:
        pairs = zip(sources, targets, strict=True)
        return (
            [self.columns.copy(self.inputs, *pair, width) for pair in pairs] if self.columns.is_copy else []
        )


def _send_down(sizes: Sizes, tile: Tile, place: int, length: int, down: int, start: int, inputs: int) -> Call:
    """Copies the error that a tile sends down, (inputs, length), to its place in (batch, in)."""
    args = TransposeArgs(
        rows=tile.samples,
        columns=inputs,
        width=inputs,
        source=place,
        source_by_row=1,
        source_by_column=length,
        target=down + sizes.bytes(tile.first * sizes.inputs + start),
        target_by_row=sizes.inputs,
    )
    return kernel(transpose, sizes.target), args


def _add(launch: Preparation, target: Target, to: int, what: int, numbers: int) -> Call:
    """Adds numbers to others."""
    names = ("to", "what")
    code = kernel(elementwise, (plus(*map(symbol, names)),), names, target)
    args = ElementwiseArgs(
        rows=1,
        columns=numbers,
        sources=launch.table([to, what]),
        source_row_lengths=launch.table([numbers, numbers]),
        targets=launch.table([to]),
        target_row_length=numbers,
    )
    return code, args
