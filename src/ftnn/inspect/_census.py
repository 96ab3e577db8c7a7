"""Which connections are dead, asleep or awake.

In the paper's words a connection *sleeps* where it is zero for some inputs, and is *dead* where it is zero
for all. F06, `rect(p)*u*x`, is dead for good once p is negative: nothing is sent, and p never moves again.
F07, with `rect_ada`, is silent then too, but p still moves, so it can revive. For any formula:

- **dead**: for every finite input the same value, and no slope by x or any parameter. Neither inputs nor
  training can change what it sends. Proved from the formula by bounds, not tried out.
- **sleeping**, on given data: not dead, but the same value and no slope by x for every sample. Of what comes
  in nothing goes out, and no error comes back. Other inputs, or training, may wake it.
- **awake**: all others. One whose input never changes is awake, if its slope is not zero: the input is
  silent, not the connection.

What a rectifier does at exactly 0 is what the layer does: slope 1 by the paper's rule, so that F06 with p = 0
is not dead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.data._masked import unmasked
from ftnn.errors import DataError, FtnnError, ShapeError
from ftnn.formula._expr import INPUT
from ftnn.inspect._layers import Array, Fate, Listed, described, fate, layers_of, listed
from ftnn.kernels._evaluate import evaluate
from ftnn.nn import Network, Transfer

SAMPLES = 1024
"""Samples that go through the network at once."""
VALUES = 2**20
"""Values over samples and connections that are held at once, of each of a function's derivatives."""


@dataclass(frozen=True)
class Counts:
    """A layer's connections. What only data can tell is None where none were given."""

    name: str
    """Of the layer in its network; empty for a layer alone."""
    function: str
    in_features: int
    out_features: int
    connections: int
    dead: int
    silent: int
    """Of those not dead, how many send one value whatever the input: they sleep on any data."""
    sleeping: int | None = None
    reviving: int | None = None
    """Of those sleeping, how many have a parameter that still moves on these data."""
    awake: int | None = None


@dataclass(frozen=True)
class Census(Sequence[Counts]):
    """The counts of every layer, in order; `str()` is a table for people."""

    layers: tuple[Counts, ...]

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: Any) -> Any:
        return self.layers[index]

    @property
    def dead(self) -> int:
        return sum(layer.dead for layer in self.layers)

    @property
    def sleeping(self) -> int | None:
        return _total([layer.sleeping for layer in self.layers])

    @property
    def awake(self) -> int | None:
        return _total([layer.awake for layer in self.layers])

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Heads, and a row for each layer."""
        with_data = self.awake is not None
        heads = ("layer", "function", "size", "connections", "dead")
        heads += ("sleeping", "reviving", "awake") if with_data else ("silent",)
        rows: list[tuple[str, ...]] = []
        for c in self.layers:
            known = (c.dead, c.sleeping, c.reviving, c.awake) if with_data else (c.dead, c.silent)
            shape = f"{c.in_features}→{c.out_features}"
            counts = (_share(count or 0, c.connections) for count in known)
            rows.append((c.name or "-", c.function, shape, f"{c.connections:,}", *counts))
        return heads, rows

    def __str__(self) -> str:
        heads, rows = self.table()
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        lines = [[*heads], *map(list, rows)]
        text = ["  ".join(_aligned(cells, widths)).rstrip() for cells in lines]
        return "\n".join(text)


def _aligned(cells: list[str], widths: list[int]) -> list[str]:
    return [
        cell.ljust(width) if n < 3 else cell.rjust(width)
        for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _share(count: int, of: int) -> str:
    if not count:
        return "0"
    share = 100 * count / of
    return f"{count:,} ({'<1' if share < 1 else f'{share:.0f}'} %)"


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@torch.no_grad()
def connections(net: nn.Module, x: Any = None) -> Census:
    """Count the dead, sleeping and awake connections of every layer of functions.

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or any module that has such layers and no memory. It is run as in
        `eval()`, and left as it was.
    - `x`: (samples, in_features), finite numbers; for a module of your own, what it takes, samples first.
        Without data only what is true for every input is counted: `dead` and `silent`.

    **dead**: the same value, and no slope by x or any parameter, for every finite input: it cannot come back.
    **sleeping**: not dead, but on these data the same value and no slope by x for every sample.
    **awake**: all others.
    """
    watched = {name: _Watched(layer) for name, layer in layers_of(net)}
    if x is not None:
        samples = _samples(net, x)
        _run(net, samples, {name: watch.measure for name, watch in watched.items()})
        for name, watch in watched.items():
            if watch.range is None:
                raise FtnnError(f"the layer {name!r} was not reached by the data: the module does not use it")
            watch.conclude()
        if any(len(watch.open) for watch in watched.values()):
            _run(net, samples, {name: watch.look for name, watch in watched.items()})
    return Census(tuple(watch.counts(name, x is not None) for name, watch in watched.items()))


def _samples(net: nn.Module, x: Any) -> Tensor:
    unmasked(x, "x")
    first = next(net.parameters())
    try:
        samples = torch.as_tensor(x if isinstance(x, Tensor) else np.asarray(x)).to(first.device, first.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"x must be an array of numbers, not {type(x).__name__} ({error})") from error
    if isinstance(net, Network | Transfer) and (samples.dim() != 2 or samples.shape[1] != net.in_features):
        raise ShapeError(
            f"x must have the shape (samples, {net.in_features}), one column for each input; "
            f"it has {tuple(samples.shape)}"
        )
    if samples.dim() == 0 or len(samples) == 0:
        raise DataError(f"x has no samples: its shape is {tuple(samples.shape)}; at least one is needed")
    if not bool(torch.isfinite(samples).all()):
        place = (~torch.isfinite(samples)).nonzero()[0].tolist()
        raise DataError(
            f"x has a {float(samples[tuple(place)])} at {place}; only finite numbers say what sleeps: "
            "fill in or drop such rows"
        )
    return samples


def _run(net: nn.Module, samples: Tensor, see: dict[str, Callable[[Tensor], None]]) -> None:
    """Send the samples through `net`, and let each layer's function see what comes to it."""
    modes = [(part, part.training) for part in net.modules()]

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def seen(layer: nn.Module, args: tuple[Any, ...]) -> None:
            rows = args[0].detach().reshape(-1, layer.in_features)
            if not bool(torch.isfinite(rows).all()):
                raise DataError(
                    f"the layer {name!r} gets inputs that are not finite: these data overflow the ones below"
                )
            see[name](rows)

        return seen

    hooks = [net.get_submodule(name).register_forward_pre_hook(hook(name)) for name in see]
    try:
        net.eval()  # dropout would hide samples, and batch statistics would change
        for part in samples.split(SAMPLES):
            net(part)
    except RuntimeError as error:  # torch's word for a shape that does not fit
        raise ShapeError(
            f"this {type(net).__name__} does not take samples of shape {tuple(samples.shape[1:])}: {error}"
        ) from error
    finally:
        for handle in hooks:
            handle.remove()
        for part, mode in modes:
            part.training = mode


class _Watched:
    """A layer while data come to it, twice.

    First the range of each input is found, and bounds over it say of most sleeping connections that they
    sleep. Then samples are tried on those of which not all is known, which get fewer and fewer.
    """

    def __init__(self, layer: Transfer):
        self.layer = layer
        self.list: Listed = listed(layer)
        self.fate: Fate = fate(layer, self.list)
        self.range: tuple[Tensor, Tensor] | None = None
        """The least and the largest of each input, (in,)."""
        self.quiet, self.awake, self.moves = (np.zeros(len(self.list), dtype=bool) for _ in range(3))
        self.first: Tensor | None = None
        """What each connection sent for the first sample."""
        self.open: Array = np.flatnonzero(~self.fate.dead)

    def measure(self, rows: Tensor) -> None:
        if len(rows):
            found = torch.aminmax(rows, dim=0)
            lo, hi = found if self.range is None else self.range
            self.range = torch.minimum(found.min, lo), torch.maximum(found.max, hi)

    def conclude(self) -> None:
        """What bounds over the range of the data say."""
        assert self.range is not None
        lo, hi = (bound[self.list.inputs].double().cpu().numpy() for bound in self.range)
        here = fate(self.layer, self.list, (lo, hi))
        self.quiet = here.dead | here.silent
        self.open = np.flatnonzero(~self.fate.dead & ~here.dead)

    def look(self, rows: Tensor) -> None:
        start = 0
        while start < len(rows) and len(self.open):
            # Few samples while many connections are open, and more as they get fewer.
            stop = min(len(rows), start + max(1, VALUES // len(self.open)))
            for part in np.array_split(self.open, -(-len(self.open) // VALUES)):
                self._look(rows[start:stop], part)
            known = self.awake | (self.quiet & self.moves)
            self.open = self.open[~known[self.open]]
            start = stop

    def _look(self, rows: Tensor, which: Array) -> None:
        function, places = self.layer.function, torch.from_numpy(which).to(rows.device)
        by = (INPUT, *function.parameters)
        exprs = (function.expr, *(function.slope(name) for name in by))
        x = rows[:, self.list.inputs[places]]
        value, slope, *slopes = evaluate(exprs, {INPUT: x, **self.list.pick(places)})
        value = value.expand(x.shape)
        if self.first is None:
            self.first = torch.full((len(self.list),), torch.nan, dtype=rows.dtype, device=rows.device)
        first = self.first[places]
        first = torch.where(first.isnan(), value[0], first)
        self.first[places] = first
        wakes = ((value != first) | (slope != 0)).any(0)
        moves = torch.stack([(s.expand(x.shape) != 0).any(0) for s in slopes]).any(0)
        # What is proved to be one value might still be computed with another rounding.
        self.awake[which] |= wakes.cpu().numpy() & ~self.quiet[which]
        self.moves[which] |= moves.cpu().numpy()

    def counts(self, name: str, with_data: bool) -> Counts:
        layer, dead = self.layer, self.fate.dead
        sleeping = ~dead & ~self.awake
        seen = (int(sleeping.sum()), int((sleeping & self.moves).sum()), int(self.awake.sum()))
        return Counts(
            name,
            described(layer),
            layer.in_features,
            layer.out_features,
            len(self.list),
            int(dead.sum()),
            int(self.fate.silent.sum()),
            *(seen if with_data else ()),
        )
