"""Solves the conic problems: built by hand, learned from points, or checked in more dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ftnn.experiments.paper.conic.learned import points
from ftnn.experiments.paper.conic.problems import (
    PAPER_BIAS,
    PAPER_OUTPUT,
    PAPER_P,
    PAPER_Q,
    PROBLEMS,
    Array,
    Problem,
)
from ftnn.experiments.paper.conic.rays import check_rays, draw_units
from ftnn.experiments.paper.running import arrays_of
from ftnn.nn import Network, Transfer
from ftnn.training import Epoch, digest, fit, initialise


@dataclass(frozen=True)
class Solved:
    """The result of a problem; fields are named as in `Outcome`."""

    ft_accuracy: float
    """The percentage of correct points or rays."""
    arrays: dict[str, Array]
    """Parameters, named as in a `state_dict`."""
    digest: str
    epochs: tuple[Epoch, ...] = ()
    failed: str | None = None
    advice: str | None = None
    loss: float | None = None
    lwt_accuracy: float | None = None


def solve(name: str, seed: int) -> Solved:
    """Build, learn or check one problem of `PROBLEMS`."""
    problem = PROBLEMS[name]
    return {"built": _build, "learned": _learn, "rays": _check}[problem.kind](problem, seed)


def _build(problem: Problem, seed: int) -> Solved:
    """The paper's own network; only the test points are random."""
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
    arrays = {f"hidden.0.{name}": array for name, array in arrays_of(layer).items()}
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
    train, test = points(problem, seed, "train"), points(problem, seed, "test")
    history = fit(
        net,
        train,
        problem.truth(train).astype(np.int64),
        gamma=problem.gamma,
        epochs=problem.epochs,
        seed=seed,
        test=(test, problem.truth(test).astype(np.int64)),
        fine_tuning_shift=2,
    )
    return Solved(
        history.ft_accuracy or 0.0,
        arrays_of(net),
        digest(net),
        tuple(history.epochs),
        history.failed,
        history.advice,
        history.loss,
        history.lwt_accuracy,
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

    checked = check_rays(units, sums, np.random.default_rng([seed, 1]))
    return Solved(
        100 * checked.as_derived / checked.rays,
        {f"hidden.0.{name}": array for name, array in state.items()},
        digest(layer),
        failed=checked.fault(problem.is_closed),
    )
