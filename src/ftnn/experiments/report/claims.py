"""The paper's numerical claims, recounted in its own tables and in ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ftnn.experiments.paper.mnist.grids import LAYERS
from ftnn.experiments.paper.pi import HIDDEN, STATES
from ftnn.experiments.report.entries import Entry, Place
from ftnn.experiments.report.pi import Curve
from ftnn.experiments.report.texts import layers_of

HIGH = 90.0
"""Our reading of "high accuracies": the median of all later epochs, in percent."""

Value = float | None
Measure = Callable[[Curve], Value]
Test = Callable[[Sequence[float]], bool]


@dataclass(frozen=True)
class Count:
    """A count, and whether it agrees with the paper; None if results are missing."""

    text: str
    holds: bool | None


@dataclass(frozen=True)
class Claim:
    says: str
    paper: Count
    """In the paper's tables."""
    ours: Count


_UNKNOWN = Count("not enough results", None)


def table_claims(entries: Sequence[Entry]) -> list[Claim]:
    return [
        *(_failures(entries, layers, claimed) for layers, claimed in zip(LAYERS, (1, 8, 11), strict=True)),
        _deeper(entries, 1, 5, (14, 38, 0)),
        _deeper(entries, 5, 10, (12, 36, 1)),
        _rates(entries, 5, "relu", "usually", 0.5),
        _rates(entries, 5, "tanh", "always", 1.0),
        *(_rates(entries, 1, activation, "similarly", 0.5) for activation in ("relu", "tanh")),
    ]


def curve_claims(curves: Sequence[Curve]) -> list[Claim]:
    return [claim for state in STATES for claim in _pi_claims(curves, state)]


# --- tables ---


def _failures(entries: Sequence[Entry], layers: int, claimed: int) -> Claim:
    here = [entry for entry in entries if entry.layers == layers]
    theirs = sum(entry.paper.ft_accuracy is None for entry in here)
    done = [entry for entry in here if entry.is_complete]  # a model fails if it fails at every γ
    ours = sum(entry.best_rate is None for entry in done)
    complete = len(done) == len(here)
    models = "model fails" if claimed == 1 else "models fail"
    return Claim(
        f"With {layers_of(layers)}, {claimed} {models} to train",
        Count(str(theirs), theirs == claimed),
        Count(
            str(ours) if complete else f"{ours} of {len(done)} run at all γ",
            ours == claimed if complete else None,
        )
        if done
        else _UNKNOWN,
    )


def _deeper(entries: Sequence[Entry], shallow: int, deep: int, claimed: tuple[int, int, int]) -> Claim:
    """Counts better, worse and equal cells, if both depths trained."""

    def count(value: Callable[[Entry], Value]) -> tuple[int, int, int]:
        values = _by_place(entries, value)
        signs = [
            round(b, 2) - round(a, 2)
            for (layers, name, activation), b in values.items()
            if layers == deep and (a := values.get((shallow, name, activation))) is not None
        ]
        return sum(d > 0 for d in signs), sum(d < 0 for d in signs), sum(d == 0 for d in signs)

    theirs = count(lambda entry: entry.paper.ft_accuracy)
    ours = count(lambda entry: entry.run.ft if entry.run and entry.has_trained else None)
    done = all(entry.is_done for entry in entries if entry.layers in (shallow, deep))
    equal = f", {claimed[2]} equal" if claimed[2] else ""
    return Claim(
        f"{layers_of(deep)} against {shallow}: {claimed[0]} models better, {claimed[1]} worse{equal}",
        Count(_split(theirs), theirs == claimed),
        # The point of the claim: deeper is worse more often than better.
        Count(_split(ours), ours[0] < ours[1] if done else None) if any(ours) else _UNKNOWN,
    )


def _split(counts: tuple[int, int, int]) -> str:
    return f"{counts[0]} better, {counts[1]} worse, {counts[2]} equal"


def _rates(entries: Sequence[Entry], layers: int, activation: str, how: str, share: float) -> Claim:
    """Counts cells whose best γ is smaller than with logistic units."""
    here = [entry for entry in entries if entry.layers == layers]

    def count(value: Callable[[Entry], Value], *, complete: bool) -> Count:
        gammas = _by_place(here, value)
        pairs = [
            (gamma, gammas[layers, name, "logistic"])
            for (_, name, each), gamma in gammas.items()
            if each == activation and (layers, name, "logistic") in gammas
        ]
        if not pairs:
            return _UNKNOWN
        smaller = sum(a < b for a, b in pairs)
        larger = sum(a > b for a, b in pairs)
        holds = smaller > share * len(pairs) if share < 1 else smaller == len(pairs)
        return Count(f"{smaller} of {len(pairs)} smaller, {larger} larger", holds if complete else None)

    label = {"relu": "ReLU", "tanh": "tanh"}[activation]
    return Claim(
        f"With {layers_of(layers)}, the best γ of {label} is {how} smaller than that of logistic",
        count(lambda entry: entry.paper.gamma, complete=True),
        count(_own_best, complete=all(entry.is_complete for entry in here)),
    )


def _own_best(entry: Entry) -> Value:
    """Our best γ; None unless all γ of the paper were run."""
    return entry.best_rate.gamma if entry.best_rate and entry.is_complete else None


def _by_place(entries: Sequence[Entry], value: Callable[[Entry], Value]) -> dict[Place, float]:
    return {
        (entry.layers, entry.function, entry.activation): known
        for entry in entries
        if (known := value(entry)) is not None
    }


# --- π ---


def _pi_claims(curves: Sequence[Curve], state: str) -> list[Claim]:
    """The paper's sentences about its curves, if the memory is reset or carried between epochs."""
    by_seed: dict[int, dict[tuple[int, int], Curve]] = defaultdict(dict)
    for curve in curves:
        if curve.state == state:
            by_seed[curve.seed][curve.hidden, curve.pairs] = curve

    def count(pairs: int, hidden: Sequence[int], label: str, value: Measure, test: Test) -> Count:
        found: list[list[float]] = []
        for _, by_size in sorted(by_seed.items()):
            drawn = [by_size[units, pairs] for units in hidden if (units, pairs) in by_size]
            known = [measured for curve in drawn if (measured := value(curve)) is not None]
            if len(known) == len(hidden):
                found.append(known)
        if not found:
            return _UNKNOWN
        holds = [test(known) for known in found]
        values = "; ".join(", ".join(f"{each:.1f}" for each in known) for known in found)
        seeds = f"; holds with {sum(holds)} of {len(found)} seeds" if len(found) > 1 else ""
        return Count(f"{label}: {values} %{seeds}", sum(holds) > len(found) / 2)

    def high(pairs: int, hidden: Sequence[int], epoch: int) -> Count:
        return count(
            pairs, hidden, "median later", lambda curve: curve.typical_after(epoch), lambda v: min(v) >= HIGH
        )

    def best(pairs: int, test: Test) -> Count:
        return count(pairs, HIDDEN, "best of the last 500", lambda curve: curve.best_of_last, test)

    claims = {
        "All 200D models have high accuracies after 1,500 epochs": high(200, HIDDEN, 1500),
        "256H-400D, 512H-400D and 1024H-400D have high accuracies after 2,500 epochs": high(
            400, HIDDEN[1:], 2500
        ),
        "128H-400D does not have as high an accuracy as its counterparts": best(
            400, lambda known: known[0] < min(known[1:])
        ),
        "800D models have better accuracies with more hidden units": best(
            800, lambda known: all(a < b for a, b in pairwise(known))
        ),
    }
    return [
        Claim(f"{says} (memory {state})", Count("only a figure", None), ours) for says, ours in claims.items()
    ]
