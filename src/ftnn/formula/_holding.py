"""Holding ranges: initial ranges for a formula with memory, where the user gives none.

A connection with memory, C → F(x; C), is useful if what it has seen stays in its state: two states that
differ must neither become the same (it forgets, and gradients vanish) nor drift ever further apart (gradients
explode). A connection *holds* if the difference of two states stays within a factor of `FACTOR` over `STEPS`
steps without input, x = 0, both for the states before and after a step and for two states close to each other
after it. The rule tries ranges for one parameter at a time:

- ± a width,
- narrowly around a *critical* value, at which the slope ∂F/∂C is 1 for x = 0 and C = 0, such as q = 1 in
  `tanh(p*x + q*C + r)`,
- only if nothing else holds, from half a width to the width, of either sign,

and takes those at which, in this order of importance,

1. at least `HOLD` of the connections hold, and states stay finite for random inputs,
2. as many parameters as possible have a random sign,
3. one step moves a unit's sum by a variance of about 1, as near as widths in powers of 2 come to it,
4. even more connections hold, in tenths,
5. the numbers are of moderate size: neither too small nor too large for the steps of an optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, MEMORY
from ftnn.formula._function import Function
from ftnn.formula._numpy import Array, evaluate, run, schedule
from ftnn.formula._ranges import Range
from ftnn.formula._spread import evenly_spread

STEPS, FACTOR = 100, 10.0
HOLD = 0.65
"""The share of the connections that should hold: more than half, since layers draw other ones."""
NEAR = 1e-4
"""The difference of two states close to each other."""
NARROW = 0.015
"""Half the width of a range around a critical value, relative to it."""
SYMMETRIC = [(-(2.0**power), 2.0**power) for power in range(-10, 3)]
_POSITIVE = [(2.0 ** (power - 1), 2.0**power) for power in range(-4, 5)]
ONE_SIDED = _POSITIVE + [(-high, -low) for low, high in _POSITIVE]
"""Tried if nothing else holds."""
MUCH = 0.1
"""How much more they must hold."""
ROUNDS = 3
DRAWS = 64
"""Random connections."""


@dataclass(frozen=True)
class Held:
    """Chosen ranges, and what was measured for them."""

    ranges: dict[str, Range]
    """Of all parameters: those given, and those chosen."""
    holds: float
    """The share of the connections that hold."""
    variance: float
    """How much one step moves a unit's sum."""

    @property
    def preference(self) -> tuple[float, ...]:
        """Smaller is better."""
        doublings = abs(math.log2(self.variance)) / 2  # of a parameter's width
        sizes = [abs(math.log2(max(map(abs, bounds)) or 1.0)) for bounds in self.ranges.values()]
        return (
            max(0.0, HOLD - self.holds),
            sum(low > 0 or high < 0 for low, high in self.ranges.values()),
            round(doublings),
            -round(self.holds, 1),
            round(sum(sizes), 6),
        )


def holding(function: Function, in_features: int, x: Array) -> Held | None:
    """Ranges that hold a signal; None if the states are never finite, or the same for all inputs.

    **Arguments:**

    - `function`: a formula with `C`; its given ranges are kept.
    - `in_features`: the number of inputs of the layer.
    - `x`: typical inputs, any number of them.
    """
    rule = _Rule(function, in_features, x)
    best = rule.search(SYMMETRIC)
    if best is None or best.holds < HOLD:  # such as logistic(q)*C
        other = rule.search(SYMMETRIC + ONE_SIDED)
        if best is None or (other is not None and other.holds > best.holds + MUCH):
            best = other
    return best


class _Rule:
    """Tries ranges for the free parameters of a function, with the same draws for all of them."""

    def __init__(self, function: Function, in_features: int, x: Array):
        self.function, self.in_features, self._x = function, in_features, x
        self._free = [name for name in function.parameters if name not in function.init]
        self._units = evenly_spread((*function.parameters, INPUT), DRAWS)
        random = np.random.default_rng(0)
        self._fixed = {k: random.choice(np.asarray(v), (DRAWS, 1)) for k, v in function.choices.items()}
        self._noise = random.choice(x, (STEPS, DRAWS))
        self._root = lower(function.expr, "numpy")
        self._schedule = schedule(self._root)

    def search(self, options: Sequence[Range]) -> Held | None:
        """The best of these ranges and those around critical values, changing one at a time."""
        ranges = {
            name: self.function.init.get(name) or self._start(name) for name in self.function.parameters
        }
        best = _better(None, *self._tried([ranges]))
        for _ in range(ROUNDS):
            before = best
            for name in self._free:
                ranges = ranges if best is None else best.ranges
                tried = [*options, *map(_around, self._critical(name, ranges))]
                best = _better(best, *self._tried([{**ranges, name: option} for option in tried]))
            if best is before:
                break
        return best

    def _slope(self, values: Mapping[str, Array | float]) -> Array:
        """∂F/∂C for x = 0 and almost no state."""
        constants = {name: choices[0] for name, choices in self.function.choices.items()}
        at = {INPUT: 0.0, MEMORY: NEAR, **constants, **values}
        return evaluate(self.function.slope(MEMORY), at)

    def _start(self, name: str) -> Range:
        """Around 1 for a parameter that forgets everything at 0, such as q in `q*C`; otherwise around 0."""
        ones = dict.fromkeys(self.function.parameters, 1.0)
        return _around(1.0) if float(self._slope({**ones, name: 0.0})) == 0 else (-0.0625, 0.0625)

    def _critical(self, name: str, ranges: Mapping[str, Range]) -> list[float]:
        """The smallest values of a parameter at which ∂F/∂C passes 1, for the others at their centres."""
        centres = {other: (low + high) / 2 for other, (low, high) in ranges.items()}
        found: list[float] = []
        for sign in (1.0, -1.0):
            low, high = 2.0**-6, 2.0**6
            for _ in range(4):
                grid = np.geomspace(low, high, 101)
                above = np.broadcast_to(self._slope({**centres, name: sign * grid}) > 1, grid.shape)
                passes = np.flatnonzero(above[1:] != above[:-1])
                if not len(passes):
                    break
                low, high = float(grid[passes[0]]), float(grid[passes[0] + 1])
            else:
                found.append(sign * float(f"{low:.4g}"))
        return found

    @np.errstate(all="ignore")  # what overflows is not finite, and refused
    def _tried(self, options: Sequence[Mapping[str, Range]]) -> list[Held]:
        """What is measured for each of the options, all at once; without those that are not finite."""
        count = len(options)
        values: dict[str, Array] = {}
        for name in self.function.parameters:
            low, high = np.array([ranges[name] for ranges in options]).T[:, :, None, None]
            values[name] = (low + (high - low) * self._units[name]).reshape(count * DRAWS, 1)
        values |= {name: np.tile(fixed, (count, 1)) for name, fixed in self._fixed.items()}

        def step(x: Array, state: Array | float) -> Array:
            value = run(self._schedule, {**values, INPUT: x, MEMORY: state})[self._root]
            return np.broadcast_to(value, (count * DRAWS, np.shape(x)[-1]))

        response = step(self._x[None, :], 0.0)
        variance = response.reshape(count, DRAWS, -1).var(2).mean(1) * self.in_features
        chosen = (self._units[INPUT] * len(self._x)).astype(int)
        after = step(np.tile(self._x[chosen], (count, 1)), 0.0)
        first = state = np.concatenate([np.zeros_like(after), after, after + NEAR, after], 1)
        x = np.zeros_like(state)
        for noise in self._noise:
            x[:, 3] = np.tile(noise, count)  # the last state: with inputs
            state = step(x, state)
        before, later = np.abs(np.diff(first[:, :3])), np.abs(np.diff(state[:, :3]))
        keeps = ((later >= before / FACTOR) & (later <= before * FACTOR)).all(1).reshape(count, DRAWS)
        numbers = np.concatenate([state, response], 1).reshape(count, -1)
        return [
            Held(dict(ranges), float(keep.mean()), float(amount))
            for ranges, keep, amount, every in zip(options, keeps, variance, numbers, strict=True)
            if np.isfinite(every).all() and 1e-100 < amount < 1e100
        ]


def _around(value: float) -> Range:
    low, high = sorted(float(f"{value * (1 + side * NARROW):.6g}") for side in (-1, 1))
    return low, high


def _better(best: Held | None, *others: Held) -> Held | None:
    for other in others:
        if best is None or other.preference < best.preference:
            best = other
    return best
