"""Trials of initial ranges: what a function sends, and the conditions for balanced ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftnn.formula._amplitudes import amplitudes
from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Call, Expr, postorder
from ftnn.formula._function import Function
from ftnn.formula._inputs import Inputs
from ftnn.formula._numpy import Array, run, schedule
from ftnn.formula._ranges import Range
from ftnn.formula._spread import evenly_spread

CURVATURE = 0.2
"""The most that κ^L may exceed 1, about."""
TAIL, FAR = 1.25, 6.0
STEP, LEAST_VARIANCE = (0.25, 2.0), 0.25
"""Weights of smaller inputs would move too little to compare with."""
AWAKE = 0.15
"""The least share of the connections that carries the signal: the participation ratio of their variances,
0.56 for weights."""
DRIFT, EXPLODES = 0.5, 20.0
"""How far training may move parameters, and how much larger than usual no connection should be then."""
MARGIN = 2.0
"""How far training may move parameters before the function leaves its domain, if ranges allow that."""
DISTANCE, GROWTH = 12.0, 16.0
"""If this many deviations are doubled, how much more an ordinary function sends at most."""
DRAWS = 64
"""Random connections."""


@dataclass(frozen=True)
class Trial:
    """What was measured for some widths."""

    ranges: dict[str, Range]
    gain: float
    tail: float
    awake: float
    dead: float
    """The share of the connections that send the same whatever their input."""
    step: float
    """How far a step of an optimiser moves the sum, compared with a weight."""
    variance: float
    curvature: float
    """The share of the variance that a straight line does not explain."""
    common: float
    layers: int
    needs_sign: bool
    """Whether the function was not finite with parameters of random sign."""

    @property
    def violation(self) -> float:
        """How far the conditions are violated: 1 if they all hold."""
        unbalanced = max(abs(self.gain - 1), self.curvature) * self.layers / CURVATURE
        slow, fast = STEP
        moves = max(slow / max(self.step, 1e-9), self.step / fast)
        return max(1.0, unbalanced, self.tail / TAIL, AWAKE / self.awake, moves)

    @property
    def preference(self) -> tuple[float, float, float]:
        """Smaller is better: how far the conditions are violated, then how straight the function is."""
        if not self.needs_sign:
            return self.violation, -round(self.curvature, 6), 0.0
        # Of equal ranges, those far from 0: training should not take the parameters across.
        near = sum(1 / min(abs(low), abs(high)) for low, high in self.ranges.values() if low * high > 0)
        return round(self.violation, 9), -round(self.curvature, 6), near


class Trials:
    """Measures ranges for the free parameters of a function, with the same random draws for all of them."""

    def __init__(self, function: Function, in_features: int, inputs: Inputs, layers: int):
        self.function, self.in_features, self.layers = function, in_features, layers
        self.free = [name for name in function.parameters if name not in function.init]
        self.amplitudes = {k: e for k, e in amplitudes(function).items() if k in self.free}
        if set(self.amplitudes) != set(amplitudes(function)):  # some are given: none can be scaled
            self.amplitudes = {}
        self._x, self._scale, self._inputs = inputs.array, inputs.scale, inputs
        self.is_finite = False
        """Whether the function was finite in any trial."""
        self._needs_sign = False
        """Whether all trials with parameters of random sign have failed."""
        self._keeps_distance = False
        """Whether the function must also be finite after training has moved the parameters inside it."""
        self._steep: tuple[str, float] | None = None
        """(name, x) of a slope that was not finite where the function itself was."""
        self._units = evenly_spread(function.parameters, DRAWS)
        random = np.random.default_rng(0)
        self._fixed = {k: random.choice(np.asarray(v), (DRAWS, 1)) for k, v in function.choices.items()}
        self._roots = [lower(expr, "numpy") for expr in needed(function)]
        self._schedule = schedule(*self._roots)
        self._set_sides((1,) if self._x.min() >= 0 else (-1, 1))

    def _set_sides(self, sides: tuple[int, ...]) -> None:
        """Set the points to evaluate at: usual inputs, zero, far inputs on these sides, and the extremes."""
        far = np.linspace(1, FAR, 6) * float(np.sqrt(np.mean(self._x**2)))
        extremes = self._inputs.extremes
        self._sides = sides
        self._points = np.concatenate([self._x, [0.0], *(side * far for side in sides), extremes])
        self._far = slice(len(self._x) + 1, len(self._points) - len(extremes))
        self._expected = np.r_[: len(self._x), self._far.stop : len(self._points)]

    def _values(self, ranges: dict[str, Range], points: Array | None = None) -> list[Array]:
        """F and its slopes by x and the free parameters at all points, (draws, points) each."""
        points = self._points if points is None else points
        bounds = {**self.function.init, **ranges}
        known = {name: low + (high - low) * self._units[name] for name, (low, high) in bounds.items()}
        computed = run(self._schedule, {INPUT: points[None, :], **known, **self._fixed})
        return [np.broadcast_to(computed[root], (DRAWS, len(points))) for root in self._roots]

    @np.errstate(all="ignore")  # what overflows is not finite, and refused
    def _trial(self, ranges: dict[str, Range]) -> Trial | None:
        x, count = self._x, len(self._x)
        values, *slopes = self._values(ranges)
        y, by_x, *by_parameters = (array[:, :count] for array in (values, *slopes))
        if not all(np.isfinite(array[:, self._expected]).all() for array in (values, *slopes)):
            self._steep = self._steep or self._steep_slope(values, slopes)
            return None
        if self._keeps_distance and not self._stays_finite(ranges):
            return None
        self.is_finite = True
        variances = y.var(1)
        variance = float(variances.mean())
        if not 1e-100 < variance < 1e100:
            return None
        along = (y * (x - x.mean())).mean(1) ** 2 / x.var()
        zero, far = values[:, count], values[:, self._far]
        rest = np.where(np.isfinite(zero), zero, y.mean(1))[:, None]
        sent = np.sqrt(np.mean((far - rest) ** 2, 0) / np.mean((y - rest) ** 2))
        tail = float(np.max(sent * math.sqrt(np.mean(x**2)) / np.abs(self._points[self._far])))
        return Trial(
            ranges,
            gain=float((by_x**2).mean() * x.var()) / variance,
            tail=tail if math.isfinite(tail) else 1e6,
            awake=variance**2 / float((variances**2).mean()),
            dead=float((variances == 0).mean()),
            step=self._step(by_parameters, variance),
            variance=variance,
            curvature=1 - float(along.mean()) / variance,
            common=float(y.mean(0).var()) / variance,
            layers=self.layers,
            needs_sign=self._needs_sign,
        )

    def _steep_slope(self, values: Array, slopes: Sequence[Array]) -> tuple[str, float] | None:
        """(name, x) of a slope that is not finite; None if the function itself is not."""
        if not np.isfinite(values[:, self._expected]).all():
            return None
        points = self._points[self._expected]
        for name, slope in zip((INPUT, *self.free), slopes, strict=True):
            is_finite = np.isfinite(slope[:, self._expected]).all(0)
            if not is_finite.all():
                return name, float(points[is_finite.argmin()])
        return None

    def _step(self, by_parameters: Sequence[Array], variance: float) -> float:
        """`_Trial.step`. A part that is the same for all inputs does not count: a bias can remove it."""
        scale = 1 / math.sqrt(variance * self.in_features)
        total = 0.0
        for name, slope in zip(self.free, by_parameters, strict=True):
            total += float(slope.var(1).mean()) * scale ** (2 - 2 * self.amplitudes.get(name, 0.0))
        return math.sqrt(total / max(float(self._x.var()), LEAST_VARIANCE))

    @np.errstate(all="ignore")
    def _stays_finite(self, ranges: dict[str, Range]) -> bool:
        """Whether training does not take the function out of its domain."""
        drifted = (self._values(self._drifted(ranges, drift))[0] for drift in (-MARGIN, MARGIN))
        return all(not np.isnan(values[:, self._expected]).any() for values in drifted)

    def _drifted(self, ranges: dict[str, Range], drift: float) -> dict[str, Range]:
        """The ranges of a trial after training has moved the parameters inside F."""
        bounds = {**self.function.init, **ranges}
        inner = [name for name in self.function.parameters if name not in self.amplitudes]
        return bounds | {name: (bounds[name][0] + drift, bounds[name][1] + drift) for name in inner}

    @np.errstate(all="ignore")
    def _is_fragile(self, ranges: dict[str, Range]) -> bool:
        """Whether some connections are much larger than the others."""
        y = self._values(ranges)[0][:, : len(self._x)]
        sizes = np.abs(y - y[:, :1]).max(1)
        return not bool((sizes <= EXPLODES * np.median(sizes)).all())

    @np.errstate(all="ignore")
    def _is_explosive(self, ranges: dict[str, Range]) -> bool:
        """Whether doubling a far input multiplies what is sent by more than `GROWTH`, or later may."""
        if any(self._is_trained_power(part) for part in postorder(self.function.expr)):
            return True
        far = DISTANCE * float(np.sqrt(np.mean(self._x**2)))
        for side in self._sides:
            zero, once, twice = self._values(ranges, np.array([0.0, side * far, 2 * side * far]))[0].T
            if np.isinf(twice).any():
                return True
            near, distant = (np.square(np.nan_to_num(y - zero, posinf=0, neginf=0)) for y in (once, twice))
            if distant.sum() > GROWTH**2 * near.sum():
                return True
        return False

    def _is_trained_power(self, part: Expr) -> bool:
        match part:
            case Call("pow", (base, exponent)):
                return INPUT in base.names and not exponent.names.isdisjoint(self.function.parameters)
            case _:
                return False


def needed(function: Function) -> list[Expr]:
    """F and its slopes by x and the parameters whose ranges are free."""
    free = [name for name in function.parameters if name not in function.init]
    return [function.expr, *(function.slope(name) for name in (INPUT, *free))]
