"""Evaluates the parameters of a solved problem with the formula alone, without torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftnn.experiments.paper.conic.problems import Array, Problem, Quadric
from ftnn.experiments.paper.conic.rays import RayCheck, Units, check_rays
from ftnn.experiments.paper.values import first_layer
from ftnn.formula import catalogue

POINTS = 4000
"""Training points, and as many test points."""


def points(problem: Problem, seed: int, part: str) -> Array:
    """Random points, (POINTS, 2) float32, determined by the seed; `part` is `train` or `test`."""
    rng = np.random.default_rng([seed, ("train", "test").index(part)])
    return rng.uniform(*problem.window, (POINTS, 2)).astype(np.float32)


def decide(problem: Problem, arrays: Mapping[str, Array], where: Array) -> Array:
    """(n, 2) → (n,): positive where the network answers "inside"; its zeros are the boundary."""
    sums = unit_sums(problem, arrays, where)
    if problem.kind == "built":
        return -sums.min(1)  # the output is 1 if any unit is below 0
    weight, bias = arrays["output.weight"].astype(np.float64), arrays["output.bias"].astype(np.float64)
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-sums))) @ (weight[1] - weight[0]) + bias[1] - bias[0]


def unit_sums(problem: Problem, arrays: Mapping[str, Array], where: Array) -> Array:
    """(n, dimension) → (n, units): the input sum of each hidden unit, in float64."""
    function = catalogue[problem.function]
    values = {name: arrays[stored][None] for name, stored in first_layer(function).items()}
    signals = function(where[:, :, None], **values)
    return signals.sum(1) + arrays["hidden.0.bias"]


def learned_quadric(problem: Problem, arrays: Mapping[str, Array]) -> Quadric | None:
    """The boundary that a single hidden unit has learned; None if there are more units, or no boundary.

    The output changes where the unit's signal is -c/w. That corresponds to one level of Σ u p² (x - q)², and
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


def rays_again(problem: Problem, arrays: Mapping[str, Array], seed: int) -> RayCheck:
    """Repeat a ray check from stored parameters, with the formula instead of a layer."""
    p = arrays["hidden.0.theta.p"]
    signs = np.repeat(np.array(problem.signs)[:, None], p.shape[1], axis=1)
    units = Units(p, arrays["hidden.0.theta.q"], signs, arrays["hidden.0.bias"])
    return check_rays(
        units, lambda where: unit_sums(problem, arrays, where), np.random.default_rng([seed, 1])
    )
