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

and takes the most curved of these. A parameter that needs a sign, as in a root or a logarithm, gets it, and
keeps a distance from where the function is not finite, so that training does not take it there. Finally the
rule scales the amplitudes, the parameters that scale the whole function, so that the sum over all inputs has
variance 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ftnn.errors import FormulaError
from ftnn.formula._amplitudes import amplitudes
from ftnn.formula._catalogue import with_paper_ranges
from ftnn.formula._expr import Call, Expr, postorder
from ftnn.formula._function import Function
from ftnn.formula._holding import holding
from ftnn.formula._inputs import Inputs, assumed
from ftnn.formula._parse import error_in
from ftnn.formula._ranges import Range
from ftnn.formula._trials import DRIFT, Trial, Trials, needed

HALF = 0.4
"""The share of dead connections from which positive amplitudes are tried."""
POWERS = range(-4, 5)
"""Widths to try, as powers of 2. Other scales of the inputs than 1 widen the range on both sides."""
MAX_OPERATIONS = 500
"""Functions with more operations in their value and slopes start in the paper's ranges: trials would take too
long."""
MANY = 6
"""The most parameters that may have different widths."""
MOST = 600
"""The most combinations of widths to try at once."""
WORSE = 1.5
"""How much further the conditions may be violated to keep distance from the edge of the domain."""
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
    if _operations(*needed(function)) > MAX_OPERATIONS or not 1e-30 < inputs.scale < 1e30:
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


class _Rule(Trials):
    """Searches for the best ranges."""

    def best(self) -> Trial | None:
        """The best trial; None if the function is never finite."""
        best = self._best()
        if best is not None and not self._stays_finite(best.ranges):
            self.is_finite, self._keeps_distance = False, True
            safer, self.is_finite = self._best(), True
            if safer is not None and safer.violation <= WORSE * best.violation:
                return safer
        return best

    def _best(self) -> Trial | None:
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

    def _one_signed(self, first: str | None, searched: list[str], widths: list[float]) -> Trial | None:
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

    def _search(self, start: dict[str, Range], options: Mapping[str, Sequence[Range]]) -> Trial | None:
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

    def _best_of(self, candidates: Iterator[dict[str, Range]]) -> Trial | None:
        best = None
        for ranges in candidates:
            best = _better(best, self._trial(ranges))
        return best

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
        example = f"FORMULA where {self.function.parameters[0]} in [0.5, 2]"
        return error_in(
            self.function.formula,
            f"found no initial ranges that keep {what} finite {where}{why}; "
            f"change the formula or the inputs, or give {remedy}, as in {example}",
        )

    def scaled(self, trial: Trial) -> Balance:
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


def _operations(*roots: Expr) -> int:
    return sum(isinstance(part, Call) for part in postorder(*roots))


def _of_sign(width: float, sign: int | None) -> Range:
    """A range of this width; of both signs if `sign` is None."""
    if sign is None:
        return -width, width
    return (width / 2, width) if sign > 0 else (-width, -width / 2)


def _better(one: Trial | None, other: Trial | None) -> Trial | None:
    if one is None or other is None:
        return one or other
    return other if other.preference < one.preference else one


def _rounded(bound: float) -> float:
    return float(f"{bound:.6g}")
