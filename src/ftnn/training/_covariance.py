"""Standard errors of a network's parameters, from the Jacobian at the minimum of the squared error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.nn._feed_forward import used_entries
from ftnn.training._history import Covariance
from ftnn.training._objective import NetworkObjective
from ftnn.training._problem import Array, Problem
from ftnn.training._searches import BoundsOf, bounds_of
from ftnn.training._threads import one_thread_each

MOST_PARAMETERS = 3000
"""The covariance of more is not computed."""
TOLERANCE = 1e-10
"""Directions in which the outputs change less than this, relative to the strongest one and with every
parameter measured by its own effect, are not determined by the data."""
WELL_DETERMINED = 1e-5
"""The least share of the largest eigenvalue from which JᵀJ, which squares all ratios, is accurate enough."""
MOST_NAMED = 5


@torch.no_grad()
def covariance_of(
    net: nn.Module,
    problem: Problem,
    bounds: BoundsOf,
    objective: NetworkObjective | None = None,
    *,
    converged: bool,
) -> tuple[Covariance | None, list[str]]:
    """The covariance at the network's present parameters and what to note about it; None if there is none.

    `objective` is that of this network and problem, if there is one already.
    """
    if problem.loss != "squared":
        return None, [f"no standard errors: they need loss='squared', not {problem.loss!r}"]
    objective = objective or NetworkObjective(net, problem)
    form, theta = objective.form, objective.form.theta()
    exists = _exists(net, form.trained)
    size = int(exists.sum())
    counted = len(problem.x) if problem.weights is None else int(np.count_nonzero(problem.weights))
    observations = counted * problem.outputs
    if form.size > MOST_PARAMETERS:
        return None, [f"no standard errors: {form.size:,} parameters are more than {MOST_PARAMETERS:,}"]
    if observations <= size:
        lacking = (
            f"no standard errors: {observations} observation{'s'[: observations != 1]} for {size} "
            f"parameter{'s'[: size != 1]} leave{'s'[: observations == 1]} no degrees of freedom"
        )
        return None, [lacking]
    with one_thread_each():
        system = objective.system(theta)
    if not bool(torch.isfinite(system.matrix).all()):
        return None, ["no standard errors: the Jacobian is not finite"]
    names = _entries({name: tuple(p.shape) for name, p in form.trained.items()})
    notes: list[str] = []
    free = exists
    if bounds:
        box = bounds_of(form.trained, bounds)
        fixed = exists & ((theta <= box.low) | (theta >= box.high)).numpy()
        free = exists & ~fixed
        if fixed.any():
            notes.append(f"at a bound, so without a standard error: {_some(names, fixed)}")
    variance = 2 * len(problem.x) * system.loss / (observations - int(free.sum()))
    with one_thread_each():
        products = len(problem.x) * system.matrix.numpy()[free][:, free]
        own, undetermined = _quick_inverse(products), np.zeros(0, np.int64)
        if own is None:
            own, undetermined = _inverse(objective.factor(theta).numpy()[:, free])
    matrix = np.full((form.size, form.size), np.nan)
    matrix[np.ix_(free, free)] = variance * own
    bad = np.zeros(form.size, bool)
    bad[np.flatnonzero(free)[undetermined]] = True
    matrix[bad, :] = matrix[:, bad] = np.nan
    matrix[bad, bad] = np.inf
    if bad.any():
        notes.append(
            f"the data do not determine {int(bad.sum())} of {size} parameters (the Jacobian is singular), so "
            f"their standard errors are infinite: {_some(names, bad)}"
        )
    if np.ptp(problem.y, axis=0).max() == 0:
        notes.append("the targets are constant, so standard errors are meaningless")
    elif variance <= (1e-12 * np.abs(problem.y).max()) ** 2:
        notes.append("the fit is exact up to rounding, so standard errors are meaningless")
    if not converged:
        notes.append(
            "the solver has not converged, and standard errors are valid only at a minimum: try more epochs"
        )
    shapes = {name: tuple(p.shape) for name, p in form.trained.items()}
    return Covariance(matrix, names, shapes, float(np.sqrt(variance)), tuple(notes)), notes


def _exists(net: nn.Module, trained: Mapping[str, Tensor]) -> Array:
    """Which entries are parameters, (entries,) bool; not those that a connection's kind does not have."""
    used = used_entries(net)
    parts = (used.get(id(p), torch.ones(p.shape, dtype=torch.bool)) for p in trained.values())
    return torch.cat([part.flatten() for part in parts]).numpy()


def _quick_inverse(products: Array) -> Array | None:
    """The inverse of JᵀJ; None if more than a few digits would be lost."""
    norms = np.sqrt(products.diagonal())
    if not len(norms) or not (norms > 0).all():
        return None
    values, directions = map(
        Tensor.numpy, torch.linalg.eigh(torch.from_numpy(products / np.outer(norms, norms)))
    )
    if not values[0] > WELL_DETERMINED * values[-1]:
        return None
    return (directions / values) @ directions.T / np.outer(norms, norms)


def _inverse(triangle: Array) -> tuple[Array, Array]:
    """(RᵀR)⁻¹, and which parameters have a part in a direction that R does not see, (parameters,) bool.

    The pseudo-inverse, so the entries of the other parameters are right.
    """
    norms = np.linalg.norm(triangle, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    svd = torch.linalg.svd(torch.from_numpy(triangle / norms), full_matrices=True)
    values, directions = svd.S.numpy(), svd.Vh.numpy()
    values = np.concatenate([values, np.zeros(triangle.shape[1] - len(values))])
    seen = values > TOLERANCE * max(values.max(initial=0.0), 1e-300)
    scaled = directions[seen] / values[seen, None]
    missing = np.linalg.norm(directions[~seen], axis=0) > 1e-4
    return scaled.T @ scaled / np.outer(norms, norms), missing


def _entries(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """The name of every entry."""
    names: list[str] = []
    for name, shape in shapes.items():
        names += [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
    return tuple(names)


def _some(names: tuple[str, ...], chosen: Array) -> str:
    listed = [names[n] for n in np.flatnonzero(chosen)]
    rest = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + rest
