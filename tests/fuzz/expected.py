"""What a run must give, summed from what every connection is worth; and whether it gave it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tests.fuzz.bounded import OVERFLOWED, Array, Bounded, Format, leaf
from tests.fuzz.cases import Case, Run
from tests.fuzz.oracle import Dual, chained, evaluate, evaluate_bounded

FINITE, NAN, INFINITE, NOT_FINITE, SKIPPED = range(5)
"""What an entry must be: near a number, NaN, that infinity, either of these; or nobody can tell."""


@dataclass(frozen=True)
class Expected:
    """A result or a gradient: what each entry must be."""

    name: str
    value: Array
    allowed: Array
    """How far off a finite entry may be."""
    rule: Array

    @property
    def skipped(self) -> int:
        return int((self.rule == SKIPPED).sum())

    def wrong(self, found: Array) -> Array:
        """Where `found` is not what it must be."""
        with np.errstate(all="ignore"):
            far = ~(abs(found.astype(self.value.dtype) - self.value) <= self.allowed)
        other = found.astype(self.value.dtype) != self.value
        return np.select(
            [self.rule == FINITE, self.rule == NAN, self.rule == INFINITE, self.rule == NOT_FINITE],
            [far, ~np.isnan(found), other, np.isfinite(found)],
            False,
        )


@dataclass(frozen=True)
class _Terms:
    """What is summed: finite numbers (0 where a term is not), how far each may be off, and what they are."""

    value: Array
    allowed: Array
    nan: Array
    plus: Array
    minus: Array
    over: Array
    unknown: Array

    @classmethod
    def of(cls, given: Bounded, shape: tuple[int, ...], there: Array, beyond: Array) -> _Terms:
        """Of the connections that are there; `beyond` says where nothing but an overflow can come out."""
        value, flags = np.broadcast_to(given.value, shape), np.broadcast_to(given.flags, shape)
        finite, sure = np.isfinite(value), flags == 0
        over = ~finite & (flags == OVERFLOWED) & beyond & there
        return cls(
            np.where(finite & there, value, 0),
            np.where(finite & there, np.broadcast_to(given.allowed, shape), 0),
            np.isnan(value) & sure & there,
            (value == np.inf) & sure & there,
            (value == -np.inf) & sure & there,
            over,
            ~sure & ~over & there,
        )

    @property
    def odd(self) -> Array:
        """Not finite, for sure."""
        return self.nan | self.plus | self.minus

    @property
    def vague(self) -> Array:
        """A slope may be multiplied out in any order: where one overflows on the way, another need not."""
        return self.unknown | self.over


def _expected(
    form: Format, name: str, total: Array, size: Array, allowed: Array, rule: Array, many: int
) -> Expected:
    """With the rounding of the sum of `many` terms, whose absolute values add up to `size`."""
    rounding = 4 * np.sqrt(many) * form.unit * size
    floor = 4 * many * form.tiny  # what is smaller than every normal number is as good as zero
    allowed = allowed + rounding + floor
    rule = np.where((rule == FINITE) & ~(size + allowed <= form.most / 16), SKIPPED, rule)
    return Expected(name, total, allowed, rule)


class Truth:
    """A case by the oracle: the terms of every distinct row, once for all runs."""

    def __init__(self, case: Case):
        sizes = [abs(run.errors[run.errors != 0]) for run in case.runs]
        largest = max((float(size.max()) for size in sizes if size.size), default=1.0)
        smallest = min((float(size.min()) for size in sizes if size.size), default=1.0)
        self.case = case
        self.form = replace(case.form, largest=max(1.0, largest), smallest=min(1.0, smallest))
        self.shape = (case.x.shape[-2], case.inputs, case.outputs)

    @cached_property
    def _matrices(self) -> dict[str, Array]:
        return {name: matrix[None] for name, matrix in self.case.matrices.items()}

    @cached_property
    def dual(self) -> Dual:
        return self._evaluated(self.form)

    def _evaluated(self, form: Format) -> Dual:
        given = {"x": self.case.x[:, :, None], **self._matrices}
        return evaluate(form, self.case.formula.tree, given, self.case.formula.constants)

    @cached_property
    def steps(self) -> list[dict[str, Bounded]]:
        """For Memory: the value at each time, and its slope by x at every time, parameters and the state."""
        case, form = self.case, self.form
        assert case.state is not None
        matrices = {name: leaf(form, matrix) for name, matrix in self._matrices.items()}
        cell, before = leaf(form, case.state), {"state": leaf(form, np.asarray(form.wide(1)))}
        found: list[dict[str, Bounded]] = []
        for time, x in enumerate(case.x):
            given = {"x": leaf(form, x[:, :, None]), "C": cell, **matrices}
            dual = evaluate_bounded(form, case.formula.tree, given, case.formula.constants)
            slopes = {f"x{time}" if n == "x" else n: s for n, s in dual.slopes.items() if n != "C"}
            if case.through_time and "C" in dual.slopes:
                with np.errstate(all="ignore"):
                    for name, inner in before.items():
                        term = chained(dual.slopes["C"], inner)
                        slopes[name] = slopes[name] + term if name in slopes else term
            found.append({"value": dual.value, **slopes})
            cell, before = dual.value, slopes
        return found

    def _terms(self, given: Bounded) -> _Terms:
        return _Terms.of(given, self.shape, self._there, self._beyond)

    @cached_property
    def _there(self) -> Array:
        present = np.asarray(True) if self.case.present is None else self.case.present
        return np.broadcast_to(present, self.shape)

    @cached_property
    def _beyond(self) -> Array:
        """Where the formula's value is too large, however it is computed."""
        if self.case.layer == "Memory" or not (self.dual.value.flags & OVERFLOWED).any():
            return np.zeros(self.shape, np.bool_)
        worth = self._evaluated(replace(self.form, endless=True)).value
        beyond = (abs(worth.value) > 16 * self.form.most) & (worth.flags == 0)
        return np.broadcast_to(beyond, self.shape)

    def _slope_terms(self, slope: Bounded, value: Bounded) -> _Terms:
        """Slopes are asked to be finite, or not, where the value itself is.

        0·∞ in a chain of slopes may be avoided by another chain; and where the value is lost anyway, a slope
        that the rules make 0 may be so too.
        """
        lost = ~np.isfinite(value.value)
        return self._terms(
            slope.unknown_where(np.where(lost, np.isfinite(slope.value), np.isnan(slope.value)))
        )

    @cached_property
    def _slopes(self) -> dict[str, _Terms]:
        return {n: self._slope_terms(slope, self.dual.value) for n, slope in self.dual.slopes.items()}

    def __call__(self, run: Run) -> list[Expected]:
        with np.errstate(all="ignore"):
            return self._memory(run) if self.case.layer == "Memory" else self._transfer(run)

    def _transfer(self, run: Run) -> list[Expected]:
        found = [self._value("value", self.dual.value, run)]
        if run.by_x:
            found.append(self._by_x(self._slopes.get("x"), run.errors, run.rows))
        for name in self.case.formula.parameters:
            if name not in run.frozen:
                found.append(self._by_parameter(name, [(self._slopes.get(name), run.errors)], run.rows))
        return found

    def _memory(self, run: Run) -> list[Expected]:
        steps, found = self.steps, list[Expected]()
        terms = [
            {
                n: self._terms(b) if n == "value" else self._slope_terms(b, step["value"])
                for n, b in step.items()
            }
            for step in steps
        ]
        for time, step in enumerate(steps):
            found.append(self._value(f"value at {time}", step["value"], run))
        found.append(self._state(terms[-1]["value"], run))
        pairs = list(zip(terms, run.errors, strict=True))
        if run.by_x:
            for time in range(len(steps)):
                given = [(step.get(f"x{time}"), errors) for step, errors in pairs]
                found.append(self._summed(f"gradient by x at {time}", given, run.rows, 2))
        for name in self.case.formula.parameters:
            if name not in run.frozen:
                found.append(self._by_parameter(name, [(s.get(name), e) for s, e in pairs], run.rows))
        return found

    def _value(self, name: str, given: Bounded, run: Run) -> Expected:
        t = self._terms(given)
        rule = np.full(self.shape[::2], FINITE)
        plus, minus = t.plus.any(1), t.minus.any(1)
        total = np.where(plus, np.inf, np.where(minus, -np.inf, t.value.sum(1)))
        rule = np.where(plus | minus, INFINITE, rule)
        rule = np.where(t.over.any(1), NOT_FINITE, rule)
        rule = np.where(plus & minus, NAN, rule)
        rule = np.where(t.unknown.any(1), SKIPPED, rule)
        rule = np.where(t.nan.any(1), NAN, rule)
        size, allowed = abs(t.value).sum(1), t.allowed.sum(1)
        r = run.rows
        many = self.shape[1]
        return _expected(self.form, name, total[r], size[r], allowed[r], rule[r], many)

    def _state(self, t: _Terms, run: Run) -> Expected:
        """Each connection's own value, (batch, in, out)."""
        value = np.where(t.plus, np.inf, np.where(t.minus, -np.inf, t.value))
        rule = np.where(t.plus | t.minus, INFINITE, np.where(t.over, NOT_FINITE, FINITE))
        rule = np.where(t.unknown, SKIPPED, np.where(t.nan, NAN, rule))
        r = run.rows
        return _expected(self.form, "state", value[r], abs(t.value)[r], t.allowed[r], rule[r], 1)

    def _by_x(self, terms: _Terms | None, errors: Array, rows: Array) -> Expected:
        return self._summed("gradient by x", [(terms, errors)], rows, 2)

    def _by_parameter(self, name: str, given: list[tuple[_Terms | None, Array]], rows: Array) -> Expected:
        return self._summed(f"gradient by {name}", given, rows, 0)

    def _summed(
        self, name: str, given: list[tuple[_Terms | None, Array]], rows: Array, axis: int
    ) -> Expected:
        """Σ error·slope over the outputs (axis 2) or the samples (axis 0), and over all of `given`."""
        shape = (len(rows), self.shape[1]) if axis == 2 else self.shape[1:]
        total, size, allowed = (np.zeros(shape, self.form.wide) for _ in range(3))
        rule = np.full(shape, FINITE)
        for t, errors in given:
            if t is None:
                continue
            g = errors.astype(self.form.wide)
            if axis == 2:
                total += _down(g, t.value, rows)
                size += _down(abs(g), abs(t.value), rows)
                allowed += _down(abs(g), t.allowed, rows)
                odd, unknown = t.odd[rows].any(2), t.vague[rows].any(2)
            else:
                by_row, by_size = np.zeros((2, self.shape[0], self.shape[2]), self.form.wide)
                np.add.at(by_row, rows, g)
                np.add.at(by_size, rows, abs(g))
                total += (by_row[:, None] * t.value).sum(0)
                size += (by_size[:, None] * abs(t.value)).sum(0)
                allowed += (by_size[:, None] * t.allowed).sum(0)
                there = np.unique(rows)
                odd, unknown = t.odd[there].any(0), t.vague[there].any(0)
            rule = np.where(odd & (rule == FINITE), NOT_FINITE, rule)
            rule = np.where(unknown, SKIPPED, rule)
        many = self.shape[2] if axis == 2 else len(rows)
        return _expected(self.form, name, total, size, allowed, rule, many * len(given))


def _down(errors: Array, slopes: Array, rows: Array) -> Array:
    """Σ_o errors[s, o]·slopes[row of s, i, o], (batch, in)."""
    found = np.zeros((len(rows), slopes.shape[1]), slopes.dtype)
    for row in np.unique(rows):
        found[rows == row] = errors[rows == row] @ slopes[row].T
    return found
