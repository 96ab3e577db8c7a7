"""Balanced ranges: initial ranges chosen from the formula, where the user gives none.

A weight passes a signal forward and an error backward with the same gain; a function does so only in some
ranges of its parameters. For inputs x and random parameters,

    κ = E[(∂F/∂x)²]·Var(x) / Var(F)

is the backward gain over the forward gain: 1 for a weight, more for a curved function. Over L layers, errors
grow by κ^L compared with signals. Among a grid of widths for the parameters, the rule keeps those at which

- F and its slope are finite for all inputs,
- κ differs from 1 by at most `CURVATURE`/L, and at most this share of the variance of F is not linear in x:
  signals and errors grow alike,
- inputs of up to `FAR` times their usual size send at most `TAIL` times what a weight would,
- the signal is spread over the connections: most of them are awake,
- a step of an optimiser, which moves every parameter by about as much, moves a unit's sum `STEP` times as
  far as it would with weights: neither too little nor too much,

and takes the most curved of these. Finally it scales the amplitudes, the parameters that scale the whole
function, so that the sum over all inputs has variance 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ftnn.errors import FormulaError
from ftnn.formula._amplitudes import amplitudes
from ftnn.formula._catalogue import with_paper_ranges
from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Call, Expr, postorder
from ftnn.formula._function import Function
from ftnn.formula._holding import holding
from ftnn.formula._inputs import Inputs, assumed
from ftnn.formula._numpy import Array, run, schedule
from ftnn.formula._parse import error_in
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
HALF = 0.4
"""The share of dead connections from which positive amplitudes are tried."""
POWERS = range(-4, 5)
"""Widths to try, as powers of 2. Other scales of the inputs than 1 widen the range on both sides."""
DRIFT, EXPLODES = 0.5, 20.0
"""How far training may move parameters, and how much larger than usual no connection should be then."""
MARGIN = 2.0
"""How far training may move parameters before the function leaves its domain, if ranges allow that."""
WORSE = 1.5
"""How much further the conditions may be violated for that."""
DISTANCE, GROWTH = 12.0, 16.0
"""If this many deviations are doubled, how much more an ordinary function sends at most."""
DRAWS = 64
"""Random connections."""
MAX_OPERATIONS = 500
"""Functions with more operations in their value and slopes start in the paper's ranges: trials would take too
long."""
MANY = 6
"""The most parameters that may have different widths."""
MOST = 600
"""The most combinations of widths to try at once."""
ONE_SIGNED = 3
"""The most parameters that are tried with one sign each, where nothing else is finite."""


@dataclass(frozen=True)
class Balance:
    """Chosen ranges, and what was measured for them."""

    ranges: Mapping[str, Range]
    """Of all parameters: those given, and those chosen."""
    gain: float
    """κ."""
    tail: float
    """What a far input sends, compared with a weight."""
    awake: float
    """The share of the connections that carry the signal."""
    violation: float
    """How far the conditions are violated: 1 if they all hold."""
    common: float
    """The share of the signal that is the same in all connections: 0 if their signs are random."""
    fragile: bool = False
    """Whether training can easily take the function to a pole or out of its domain."""
    explosive: bool = False
    """Whether training can make it grow with x faster than any ordinary power, as an exponential does."""
    assumes: str = ""
    """The inputs that were assumed, a name in `assumed()`; empty if they were given."""
    holds: float | None = None
    """For functions with memory whose ranges were chosen, the share of the connections that hold a signal."""


def balanced(function: Function, in_features: int, inputs: Inputs | None = None, layers: int = 1) -> Balance:
    """Initial ranges for a layer: the given ones, and balanced ones for the other parameters.

    **Arguments:**

    - `in_features`: the number of inputs of the layer.
    - `inputs`: what they are; by default a unit normal or, if nothing is finite for it, one of one sign.
    - `layers`: how many such layers follow each other.

    Functions with memory follow a rule of their own, in `_holding.py`. Raises `FormulaError` if no ranges
    keep the function finite.
    """
    if inputs is not None:
        return _balanced(function, in_features, inputs, layers)
    errors: list[FormulaError] = []
    for name, expected in assumed().items():
        try:
            return replace(_balanced(function, in_features, expected, layers), assumes=name)
        except FormulaError as error:
            errors.append(error)
    raise errors[0]


def scaled_ranges(function: Function, ranges: Mapping[str, Range], factor: float) -> dict[str, Range]:
    """Ranges that multiply the function by `factor`; the same if its amplitudes are given, or it has none."""
    exponents = amplitudes(function)
    if not set(exponents).isdisjoint(function.init):
        exponents = {}
    powers = {name: factor ** exponents.get(name, 0.0) for name in ranges}
    scaled = {
        name: (_rounded(low * powers[name]), _rounded(high * powers[name]))
        for name, (low, high) in ranges.items()
    }
    return {**scaled, **{name: bounds for name, bounds in ranges.items() if name in function.init}}


def initial_ranges(function: Function) -> Mapping[str, Range]:
    """Typical ranges: balanced ones for a layer of 100 inputs or, if nothing is finite, the paper's ±0.1."""
    try:
        return balanced(function, 100).ranges
    except FormulaError:
        return with_paper_ranges(function).init


@lru_cache(maxsize=512)
def _balanced(function: Function, in_features: int, inputs: Inputs, layers: int) -> Balance:
    unmeasured = Balance(with_paper_ranges(function).init, *[math.nan] * 3, violation=1.0, common=0.0)
    if _operations(*_needed(function)) > MAX_OPERATIONS or not 1e-30 < inputs.scale < 1e30:
        return unmeasured
    if function.has_memory:
        held = holding(function, in_features, inputs.array)
        return unmeasured if held is None else replace(unmeasured, ranges=held.ranges, holds=held.holds)
    rule = _Rule(function, in_features, inputs, layers)
    best = rule.best()
    if best is None and (rule.is_finite or not rule.free):  # the same for all inputs, or given
        return unmeasured
    if best is None:
        raise rule.error()
    return rule.scaled(best)


@dataclass(frozen=True)
class _Trial:
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


class _Rule:
    """Tries widths for the free parameters of a function, with the same random draws for all of them."""

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
        self._roots = [lower(expr, "numpy") for expr in _needed(function)]
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

    def best(self) -> _Trial | None:
        """The best trial; None if the function is never finite."""
        best = self._best()
        if best is not None and not self._stays_finite(best.ranges):
            self.is_finite, self._keeps_distance = False, True
            safer, self.is_finite = self._best(), True
            if safer is not None and safer.violation <= WORSE * best.violation:
                return safer
        return best

    def _best(self) -> _Trial | None:
        # The first amplitude has width 1: only the others' relative widths change the function's shape.
        first = next(iter(self.amplitudes), None)
        searched = [name for name in self.free if name != first]
        more = abs(round(math.log2(self._scale)))
        widths = [2.0**power for power in range(POWERS.start - more, POWERS.stop + more)]
        symmetric = [(-width, width) for width in widths]
        start: dict[str, Range] = {} if first is None else {first: (-1.0, 1.0)}
        best = self._search(start, dict.fromkeys(searched, symmetric))
        self._needs_sign = not self.is_finite
        if best is None or best.violation > 1.5:
            positive = [(width / 2, width) for width in widths]
            best = _better(best, self._search(start, dict.fromkeys(searched, symmetric + positive)))
        if best is None and not self.is_finite:
            return self._one_signed(first, searched, widths)
        if best is not None and best.dead > HALF and self.amplitudes:  # such as rect(p)
            flipped = {
                name: (0.0, high) for name, (_, high) in best.ranges.items() if name in self.amplitudes
            }
            positive_trial = self._trial({**best.ranges, **flipped})
            if positive_trial is not None and positive_trial.awake > 1.5 * best.awake:
                best = positive_trial
        return best

    def _one_signed(self, first: str | None, searched: list[str], widths: list[float]) -> _Trial | None:
        """The best trial in which as few parameters as possible have one sign, positive or negative.

        **Arguments:**

        - `first`: the amplitude whose width is 1, if there is one.
        """
        if self._x.max() <= 0:
            self._set_sides((-1,))
        names = [*searched] if first is None else [first, *searched]
        for count in range(1, min(len(names), ONE_SIGNED) + 1):
            best = None
            for chosen in itertools.combinations(names, count):
                for signs in itertools.product((1, -1), repeat=count):
                    sign_of = dict(zip(chosen, signs, strict=True))
                    start = {} if first is None else {first: _of_sign(1.0, sign_of.get(first))}
                    options = {
                        name: [_of_sign(width, sign_of.get(name)) for width in widths] for name in searched
                    }
                    best = _better(best, self._search(start, options))
            if best is not None:
                return best
        return None

    def _search(self, start: dict[str, Range], options: Mapping[str, Sequence[Range]]) -> _Trial | None:
        """The best combination of each name's options: of all, or, if these are too many, name by name."""
        names = [*options]
        if math.prod(map(len, options.values())) <= MOST:
            combinations = itertools.product(*options.values())
            return self._best_of({**start, **dict(zip(names, each, strict=True))} for each in combinations)
        alike = [
            {**start, **dict(zip(names, each, strict=True))} for each in zip(*options.values(), strict=True)
        ]
        best = self._best_of(iter(alike))
        for _ in range(3 if len(names) <= MANY else 0):
            before = best
            for name in names:
                ranges = alike[0] if best is None else best.ranges
                best = _better(best, self._best_of({**ranges, name: option} for option in options[name]))
            if best is before:
                break
        return best

    def _best_of(self, candidates: Iterator[dict[str, Range]]) -> _Trial | None:
        best = None
        for ranges in candidates:
            best = _better(best, self._trial(ranges))
        return best

    def _values(self, ranges: dict[str, Range], points: Array | None = None) -> list[Array]:
        """F and its slopes by x and the free parameters at all points, (draws, points) each."""
        points = self._points if points is None else points
        bounds = {**self.function.init, **ranges}
        known = {name: low + (high - low) * self._units[name] for name, (low, high) in bounds.items()}
        computed = run(self._schedule, {INPUT: points[None, :], **known, **self._fixed})
        return [np.broadcast_to(computed[root], (DRAWS, len(points))) for root in self._roots]

    @np.errstate(all="ignore")  # what overflows is not finite, and refused
    def _trial(self, ranges: dict[str, Range]) -> _Trial | None:
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
        return _Trial(
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

    def error(self) -> FormulaError:
        """Why there are no ranges."""
        x = self._inputs.extremes or self._inputs.values
        where = f"for inputs from {min(x):.3g} to {max(x):.3g}"
        if given := ", ".join(f"{n} in [{a:g}, {b:g}]" for n, (a, b) in self.function.init.items()):
            where += f" and {given}"
        what, why = "the function", ""
        if self._steep is not None:
            name, at = self._steep
            what, why = "its slopes", f" (the slope by {name} is not at x = {at:.3g})"
        remedy = "other ranges" if given else "ranges"
        return error_in(
            self.function.formula,
            f"found no initial ranges that keep {what} finite {where}{why}; "
            f"change the formula or the inputs, or give {remedy} with init=",
        )

    def _step(self, by_parameters: Sequence[Array], variance: float) -> float:
        """`_Trial.step`. A part that is the same for all inputs does not count: a bias can remove it."""
        scale = 1 / math.sqrt(variance * self.in_features)
        total = 0.0
        for name, slope in zip(self.free, by_parameters, strict=True):
            total += float(slope.var(1).mean()) * scale ** (2 - 2 * self.amplitudes.get(name, 0.0))
        return math.sqrt(total / max(float(self._x.var()), LEAST_VARIANCE))

    def scaled(self, trial: _Trial) -> Balance:
        """The ranges of a trial, with amplitudes that give the sum over all inputs variance 1."""
        deviation = math.sqrt(trial.variance * self.in_features)
        every = {name: {**self.function.init, **trial.ranges}[name] for name in self.function.parameters}
        ranges = scaled_ranges(self.function, every, 1 / deviation)
        measured = (trial.gain, trial.tail, trial.awake, trial.violation, trial.common)
        # An amplitude that must keep its sign is near 0 with many inputs, as in `sqrt(p)*x`.
        near_zero = trial.needs_sign and any(
            low * high > 0 for low, high in (ranges[name] for name in self.amplitudes)
        )
        drifted = [self._drifted(trial.ranges, drift) for drift in (-DRIFT, DRIFT)]
        return Balance(
            ranges,
            *measured,
            fragile=near_zero or any(map(self._is_fragile, drifted)),
            explosive=any(map(self._is_explosive, drifted)),
        )

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
        """Whether doubling a far input multiplies what is sent by more than `GROWTH`, or could after training."""
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


def _needed(function: Function) -> list[Expr]:
    """F and its slopes by x and the parameters whose ranges are free."""
    free = [name for name in function.parameters if name not in function.init]
    return [function.expr, *(function.slope(name) for name in (INPUT, *free))]


def _operations(*roots: Expr) -> int:
    return sum(isinstance(part, Call) for part in postorder(*roots))


def _of_sign(width: float, sign: int | None) -> Range:
    """A range of this width; of both signs if `sign` is None."""
    if sign is None:
        return -width, width
    return (width / 2, width) if sign > 0 else (-width, -width / 2)


def _better(one: _Trial | None, other: _Trial | None) -> _Trial | None:
    if one is None or other is None:
        return one or other
    return other if other.preference < one.preference else one


def _rounded(bound: float) -> float:
    return float(f"{bound:.6g}")
