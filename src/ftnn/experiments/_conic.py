"""The paper's conic hypersurfaces: built by hand, learned from points, and checked in more dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ftnn.experiments._conic_problems import (
    PAPER_BIAS,
    PAPER_OUTPUT,
    PAPER_P,
    PAPER_Q,
    PROBLEMS,
    Array,
    Problem,
    Quadric,
)
from ftnn.experiments._conic_rays import RayCheck, Units, check_rays, draw_units
from ftnn.formula import catalogue
from ftnn.nn import Network, Transfer
from ftnn.training import Epoch, digest, fit, initialise

POINTS = 4000
"""To learn from, and as many others to measure on."""


@dataclass(frozen=True)
class Solved:
    """What came of a problem."""

    accuracy: float
    """In percent: of the points, or of the rays, that are as they should be."""
    arrays: dict[str, Array]
    """Parameters by name, as a network's `state_dict` has them."""
    digest: str
    epochs: tuple[Epoch, ...] = ()
    failed: str | None = None
    advice: str | None = None
    loss: float | None = None
    lwt_accuracy: float | None = None


def solve(name: str, seed: int) -> Solved:
    """Build, learn or check one problem of `PROBLEMS`."""
    problem = PROBLEMS[name]
    solvers: dict[str, Callable[[Problem, int], Solved]] = {
        "built": _build,
        "learned": _learn,
        "rays": _check,
    }
    return solvers[problem.kind](problem, seed)


def points(problem: Problem, seed: int, part: str) -> Array:
    """(POINTS, 2) float32, the same for the same seed; `part` is `train` or `test`."""
    rng = np.random.default_rng([seed, ("train", "test").index(part)])
    return rng.uniform(*problem.window, (POINTS, 2)).astype(np.float32)


# --- the paper's network ---


def _build(problem: Problem, seed: int) -> Solved:
    """The paper's own network. Nothing is random but the points on which it is looked at."""
    layer = Transfer(2, problem.units, problem.function, dtype=torch.float64)
    with torch.no_grad():
        layer.matrix("p").copy_(torch.tensor(PAPER_P, dtype=torch.float64))
        layer.matrix("q").copy_(torch.tensor(PAPER_Q, dtype=torch.float64))
        assert layer.bias is not None
        layer.bias.fill_(PAPER_BIAS)
    weight, bias = PAPER_OUTPUT
    where = points(problem, seed, "test").astype(np.float64)
    with torch.no_grad():
        hidden = (layer(torch.from_numpy(where)).numpy() >= 0).astype(np.float64)
    answers = hidden.sum(1) * weight + bias >= 0
    arrays = {f"hidden.0.{name}": tensor.numpy().copy() for name, tensor in layer.state_dict().items()}
    arrays |= {"output.weight": np.full((1, problem.units), weight), "output.bias": np.full(1, bias)}
    return Solved(100 * float(np.mean(answers == problem.truth(where))), arrays, digest(layer))


# --- learning from points ---


def _learn(problem: Problem, seed: int) -> Solved:
    net = Network(2, [problem.units], 2, problem.function, "logistic")
    initialise(net, seed)
    layer = net.layers[0]
    if "u" in layer.function.constants:
        with torch.no_grad():
            layer.matrix("u").copy_(torch.tensor([problem.signs] * problem.units))
    given, others = points(problem, seed, "train"), points(problem, seed, "test")
    history = fit(
        net,
        given,
        problem.truth(given).astype(np.int64),
        gamma=problem.gamma,
        epochs=problem.epochs,
        seed=seed,
        test=(others, problem.truth(others).astype(np.int64)),
        fine_tuning_shift=2,
    )
    return Solved(
        history.ft_accuracy or 0.0,
        {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()},
        digest(net),
        tuple(history.epochs),
        history.failed,
        history.advice,
        history.loss,
        history.lwt_accuracy,
    )


def decide(problem: Problem, arrays: Mapping[str, Array], where: Array) -> Array:
    """(n, 2) → (n,): positive where a network says "inside"; continuous, so that its zeros can be drawn."""
    sums = unit_sums(problem, arrays, where)
    if problem.kind == "built":
        return -sums.min(1)  # the output is 1 where any unit is below 0
    weight, bias = arrays["output.weight"].astype(np.float64), arrays["output.bias"].astype(np.float64)
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-sums))) @ (weight[1] - weight[0]) + bias[1] - bias[0]


def unit_sums(problem: Problem, arrays: Mapping[str, Array], where: Array) -> Array:
    """(n, dimension) → (n, units): what each hidden unit gets, in float64 and by the formula alone."""
    function = catalogue[problem.function]
    values = {name: arrays[f"hidden.0.theta.{name}"] for name in function.parameters}
    values |= {name: arrays[f"hidden.0.constants.{name}"] for name in function.constants}
    signals = function(where[:, :, None], **{name: array[None] for name, array in values.items()})
    return signals.sum(1) + arrays["hidden.0.bias"]


def learned_quadric(problem: Problem, arrays: Mapping[str, Array]) -> Quadric | None:
    """The boundary that one hidden unit has learned; None for more units, or where it has none.

    The output turns where the unit's signal is -c/w; that signal belongs to one level of Σ u p² (x - q)², and
    dividing by the level gives centre, semi-axes and signs.
    """
    if problem.kind != "learned" or problem.units != 1:
        return None
    weight, bias = arrays["output.weight"].astype(np.float64), arrays["output.bias"].astype(np.float64)
    w, c = float(weight[1, 0] - weight[0, 0]), float(bias[1] - bias[0])
    signal = -c / w if w else 0.0
    if not 0 < signal < 1:
        return None
    level = float(np.log(signal / (1 - signal)) - arrays["hidden.0.bias"][0])
    p = arrays["hidden.0.theta.p"][:, 0].astype(np.float64)
    if level == 0 or not p.all():
        return None
    u = np.array(problem.signs) * np.sign(level)
    with np.errstate(over="ignore"):
        axes = np.sqrt(abs(level)) / np.abs(p)
    if not np.isfinite(axes).all():
        return None
    return Quadric(
        tuple(map(float, arrays["hidden.0.theta.q"][:, 0])), tuple(map(float, axes)), tuple(map(float, u))
    )


# --- rays in more dimensions ---


def _check(problem: Problem, seed: int) -> Solved:
    units = draw_units(problem, np.random.default_rng([seed, 0]))
    layer = Transfer(problem.dimension, problem.units, problem.function, dtype=torch.float64)
    state = {"theta.p": units.p, "theta.q": units.q, "bias": units.bias}
    if "u" in layer.function.constants:
        state["constants.u"] = units.u
    layer.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})

    def sums(where: Array) -> Array:
        with torch.no_grad():
            return layer(torch.from_numpy(where)).numpy()

    found = check_rays(units, sums, np.random.default_rng([seed, 1]))
    return Solved(
        100 * found.as_derived / found.rays,
        {f"hidden.0.{name}": array for name, array in state.items()},
        digest(layer),
        failed=found.fault(problem.is_closed),
    )


def rays_again(problem: Problem, arrays: Mapping[str, Array], seed: int) -> RayCheck:
    """The counts of a check, from what was kept of it; this time by the formula, and not by a layer."""
    p = arrays["hidden.0.theta.p"]
    signs = np.repeat(np.array(problem.signs)[:, None], p.shape[1], axis=1)
    units = Units(p, arrays["hidden.0.theta.q"], signs, arrays["hidden.0.bias"])
    return check_rays(
        units, lambda where: unit_sums(problem, arrays, where), np.random.default_rng([seed, 1])
    )
