"""Which connections are dead, asleep or awake.

In the paper's words a connection *sleeps* if it is zero for some inputs, and is *dead* if it is zero for all.
F06, `rect(p)*u*x`, is dead forever once p is negative: its output is 0, and p never moves again. F07, with
`rect_ada`, is then dead too, but p still moves, so it can be revived. For any formula:

- **dead**: the same value and zero slope by x for every finite input. This is proved from the formula by
  bounds, not by trying inputs. It is **revivable** if the slope by some parameter is not always zero: then
  training can change it; else, nothing can.
- **sleeping**, on given data: not dead, but the same value and zero slope by x for every sample. Inputs have
  no effect, and errors do not propagate. Other inputs, or training, may wake it.
- **awake**: all others. A connection whose input never changes is awake if its slope is not zero: the input
  is silent, not the connection.

At exactly 0, a rectifier has slope 1, by the paper's rule, as in the layer; so F06 with p = 0 is revivable.
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
from ftnn.inspect._layers import Array, connection_list, describe, fate, layers_of
from ftnn.kernels.eager.evaluation import evaluate
from ftnn.nn import Network
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._modes import evaluating

SAMPLES = 1024
"""Samples per pass through the network."""
VALUES = 2**20
"""Values (samples × connections) in memory at once, for each derivative of a function."""


@dataclass(frozen=True)
class Counts:
    """The connections of a layer. Without data, counts that need data are None."""

    name: str
    """The layer's name in its network; empty for a single layer."""
    function: str
    in_features: int
    out_features: int
    connections: int
    dead: int
    revivable: int
    """Dead connections that training can still change."""
    sleeping: int | None = None
    reviving: int | None = None
    """Dead or sleeping connections with a parameter that moves on this data."""
    awake: int | None = None


@dataclass(frozen=True)
class Census(Sequence[Counts]):
    """The counts of every layer, in order; `str()` formats them as a table."""

    layers: tuple[Counts, ...]

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: Any) -> Any:
        return self.layers[index]

    @property
    def dead(self) -> int:
        return sum(layer.dead for layer in self.layers)

    @property
    def revivable(self) -> int:
        return sum(layer.revivable for layer in self.layers)

    @property
    def sleeping(self) -> int | None:
        return _total([layer.sleeping for layer in self.layers])

    @property
    def awake(self) -> int | None:
        return _total([layer.awake for layer in self.layers])

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The header, and a row for each layer."""
        with_data = self.awake is not None
        header = ("layer", "function", "size", "connections", "dead", "revivable")
        header += ("sleeping", "reviving", "awake") if with_data else ()
        rows: list[tuple[str, ...]] = []
        for layer in self.layers:
            counts = (layer.dead, layer.revivable)
            counts += (layer.sleeping, layer.reviving, layer.awake) if with_data else ()
            shares = (_with_share(count or 0, layer.connections) for count in counts)
            size = f"{layer.in_features}→{layer.out_features}"
            rows.append((layer.name or "-", layer.function, size, f"{layer.connections:,}", *shares))
        return header, rows

    def __str__(self) -> str:
        header, rows = self.table()
        columns = [
            [cell.rjust(width) if n >= 3 else cell.ljust(width) for cell in cells]
            for n, cells in enumerate(zip(header, *rows, strict=True))
            for width in [max(map(len, cells))]
        ]
        return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _with_share(count: int, total: int) -> str:
    if not count:
        return "0"
    share = 100 * count / total
    return f"{count:,} ({'<1' if share < 1 else f'{share:.0f}'} %)"


def _total(counts: list[int | None]) -> int | None:
    present = [count for count in counts if count is not None]
    return sum(present) if len(present) == len(counts) else None


@torch.no_grad()
def connections(net: nn.Module, x: Any = None) -> Census:
    """Count the dead, sleeping and awake connections of every layer of functions.

    **Arguments:**

    - `net`: a `Transfer`, a `Network`, or any module that contains such layers and no memory. It runs in
        evaluation mode; its own mode is restored.
    - `x`: (samples, in_features), finite numbers; for other modules, their input, samples first. Without
        data, only `dead` and `revivable` are counted, which hold for all inputs.

    **dead**: the same value, and zero slope by x, for every finite input. **revivable**: those of them that
    training can still change.
    **sleeping**: not dead, but on this data the same value and zero slope by x for every sample.
    **awake**: all others.
    """
    observers = {name: _Observer(layer) for name, layer in layers_of(net)}
    if x is not None:
        samples = _samples(net, x)
        _run(net, samples, {name: observer.extend_range for name, observer in observers.items()})
        for name, observer in observers.items():
            if observer.range is None:
                raise FtnnError(f"no data reached layer {name!r}: the module does not use it")
            observer.apply_bounds()
        if any(len(observer.undecided) for observer in observers.values()):
            _run(net, samples, {name: observer.observe for name, observer in observers.items()})
    return Census(tuple(observer.counts(name, x is not None) for name, observer in observers.items()))


def _samples(net: nn.Module, x: Any) -> Tensor:
    unmasked(x, "x")
    first = next(net.parameters())
    try:
        samples = torch.as_tensor(x if isinstance(x, Tensor) else np.asarray(x)).to(first.device, first.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"x must be an array of numbers, not {type(x).__name__} ({error})") from error
    if isinstance(net, Network | FeedForward) and (samples.dim() != 2 or samples.shape[1] != net.in_features):
        raise ShapeError(
            f"x must have shape (samples, {net.in_features}), one column per input, "
            f"not {tuple(samples.shape)}"
        )
    if samples.dim() == 0 or len(samples) == 0:
        raise DataError(f"x has no samples: its shape is {tuple(samples.shape)}")
    if not bool(torch.isfinite(samples).all()):
        place = (~torch.isfinite(samples)).nonzero()[0].tolist()
        raise DataError(
            f"x is {float(samples[tuple(place)])} at {place}, but must be finite; fill in or drop such rows"
        )
    return samples


def _run(net: nn.Module, samples: Tensor, observe: dict[str, Callable[[Tensor], None]]) -> None:
    """Run `net` on the samples, and call `observe` with the inputs of each layer, (rows, in)."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def before_forward(layer: nn.Module, args: tuple[Any, ...]) -> None:
            rows = args[0].detach().reshape(-1, layer.in_features)
            if not bool(torch.isfinite(rows).all()):
                raise DataError(f"layer {name!r} gets inputs that are not finite: earlier layers overflow")
            observe[name](rows)

        return before_forward

    handles = [net.get_submodule(name).register_forward_pre_hook(hook(name)) for name in observe]
    try:
        with evaluating(net):  # dropout would hide samples, and batch statistics would change
            for block in samples.split(SAMPLES):
                net(block)
    except RuntimeError as error:  # torch's error for a wrong shape
        raise ShapeError(
            f"this {type(net).__name__} does not accept samples of shape {tuple(samples.shape[1:])}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


class _Observer:
    """Observes the inputs of a layer in two passes over the data.

    The first pass finds the range of each input; bounds over this range prove most sleeping connections
    asleep. The second evaluates the connections that are still undecided on samples.
    """

    def __init__(self, layer: FeedForward):
        self.layer = layer
        self.connections = connection_list(layer)
        self.fate = fate(layer, self.connections)
        self.range: tuple[Tensor, Tensor] | None = None
        """The smallest and the largest value of each input, (in,)."""
        self.quiet, self.awake, self.moves = (np.zeros(len(self.connections), dtype=bool) for _ in range(3))
        self.first_values: Tensor | None = None
        """The value of each connection for the first sample."""
        self.undecided: Array = np.flatnonzero(~self.fate.dead)

    def extend_range(self, rows: Tensor) -> None:
        if len(rows):
            block = torch.aminmax(rows, dim=0)
            lo, hi = block if self.range is None else self.range
            self.range = torch.minimum(block.min, lo), torch.maximum(block.max, hi)

    def apply_bounds(self) -> None:
        """Decide the connections for which bounds over the range of the data are a proof."""
        assert self.range is not None
        lo, hi = (bound[self.connections.inputs].double().cpu().numpy() for bound in self.range)
        here = fate(self.layer, self.connections, (lo, hi))
        self.quiet = here.dead | here.silent
        self.undecided = np.flatnonzero(~self.fate.dead & ~here.dead)

    def observe(self, rows: Tensor) -> None:
        start = 0
        while start < len(rows) and len(self.undecided):
            # The fewer connections are undecided, the more samples fit.
            stop = min(len(rows), start + max(1, VALUES // len(self.undecided)))
            for indices in np.array_split(self.undecided, -(-len(self.undecided) // VALUES)):
                self._observe(rows[start:stop], indices)
            decided = self.awake | (self.quiet & self.moves)
            self.undecided = self.undecided[~decided[self.undecided]]
            start = stop

    def _observe(self, rows: Tensor, indices: Array) -> None:
        function, on_device = self.layer.function, torch.from_numpy(indices).to(rows.device)
        exprs = (function.expr, *(function.slope(name) for name in (INPUT, *function.parameters)))
        x = rows[:, self.connections.inputs[on_device]]
        value, slope, *slopes = evaluate(exprs, {INPUT: x, **self.connections.pick(on_device)})
        value = value.expand(x.shape)
        if self.first_values is None:
            self.first_values = torch.full(
                (len(self.connections),), torch.nan, dtype=rows.dtype, device=rows.device
            )
        first = self.first_values[on_device]
        first = torch.where(first.isnan(), value[0], first)
        self.first_values[on_device] = first
        wakes = ((value != first) | (slope != 0)).any(0)
        moves = torch.stack([(s.expand(x.shape) != 0).any(0) for s in slopes]).any(0)
        # A value that is provably constant may still differ by rounding.
        self.awake[indices] |= wakes.cpu().numpy() & ~self.quiet[indices]
        self.moves[indices] |= moves.cpu().numpy()

    def counts(self, name: str, with_data: bool) -> Counts:
        layer, dead = self.layer, self.fate.dead
        revivable = self.fate.silent
        asleep = ~dead & ~self.awake
        sleeping, reviving = asleep & ~revivable, asleep & self.moves
        data_counts = (int(sleeping.sum()), int(reviving.sum()), int(self.awake.sum()))
        return Counts(
            name,
            describe(layer),
            layer.in_features,
            layer.out_features,
            len(self.connections),
            int((dead | revivable).sum()),
            int(revivable.sum()),
            *(data_counts if with_data else ()),
        )
