"""Whether a run beats the trivial prediction: the targets' mean, or the most frequent class."""

from __future__ import annotations

import math

import numpy as np
import torch

from ftnn.training._history import Epoch
from ftnn.training._losses import LOGISTIC
from ftnn.training._problem import Array, Problem
from ftnn.training._stream import count_of

MARGIN = 0.002
"""The share by which the trivial loss has to be beaten, unless there are many samples."""
SIGNIFICANT = 9.0
"""A share of this, divided by the number of samples, is more than chance: about three standard deviations."""
DEVIATIONS = 2.0
"""By how many standard deviations an accuracy has to beat the trivial one."""
DRAWN = 1.2
"""Networks start with small random outputs: the loss is at most about this times that of guessing or 0."""
CONSTANT = 0.01
"""Of the loss of predicting 0: what is left of it once constant targets are learned."""


def nothing_learned(
    problem: Problem, last: Epoch, at_chance: float | None = None
) -> tuple[str, float] | None:
    """Why a run that ends with this epoch has learned nothing, and the loss before training; None if it has.

    **Arguments:**

    - `at_chance`: the accuracy, in percent, up to which a classification has learned nothing, whatever its
        classes; None: compare with the trivial prediction.
    """
    if problem.is_classification:
        return _of_classes(problem, last, at_chance)
    if problem.batches is not None:  # their mean is unknown
        return None
    trivial = loss_of_the_mean(problem)
    enough = (1 - _margin(len(problem.y))) * trivial
    if is_constant(problem.y):
        enough = trivial + CONSTANT * (_loss_of(problem, _another(problem)) - trivial)
    if last.loss <= enough:
        return None
    start = DRAWN * max(trivial, _loss_of(problem, np.zeros(problem.outputs)))
    return (
        f"the final loss, {last.loss:.4g}, is {_better(last.loss < trivial)} than {trivial:.4g}, the loss of "
        "always predicting the targets' mean"
    ), start


def _of_classes(problem: Problem, last: Epoch, at_chance: float | None) -> tuple[str, float] | None:
    accuracy = last.train_accuracy if last.test_accuracy is None else last.test_accuracy
    if accuracy is None:
        return None
    mean_weight = 1.0 if problem.weights is None else float(problem.weights.mean())
    guessing = mean_weight * math.log(max(problem.outputs, 2))
    start = DRAWN * guessing
    if at_chance is not None:
        reason = f"the final accuracy, {accuracy:.2f} %, is no better than chance"
        return (reason, start) if accuracy <= at_chance else None
    rule, samples = "always predicting the most frequent class", len(problem.y)
    if problem.batches is None:
        share, trivial = most_frequent(problem)
    else:  # their classes are unknown
        rule, samples = "guessing", samples * (count_of(problem.batches) or 1)
        share, trivial = 1 / problem.outputs, guessing
    measured = samples if problem.test_y is None or last.test_accuracy is None else len(problem.test_y)
    noise = DEVIATIONS * math.sqrt(share * (1 - share) / measured)
    learned = last.loss <= (1 - _margin(samples)) * trivial or accuracy > 100 * (share + noise)
    if learned or accuracy == 100:
        return None
    of_samples = f"{measured:,} sample{'s'[: measured != 1]}"
    return (
        f"the final accuracy, {accuracy:.2f} % of {of_samples}, is {_better(accuracy > 100 * share)} "
        f"than {100 * share:.2f} %, that of {rule}, and the loss, {last.loss:.4g}, is "
        f"{_better(last.loss < trivial)} than {trivial:.4g}, that of predicting "
        + ("the share of each class" if problem.batches is None else "all classes alike")
    ), start


def _margin(samples: int) -> float:
    return min(MARGIN, SIGNIFICANT / samples)


def _better(is_better: bool) -> str:
    return "hardly better" if is_better else "no better"


def is_constant(array: Array) -> bool:
    """Whether all samples, (samples, …), are equal."""
    return bool((array == array[0]).all())


def most_frequent(problem: Problem) -> tuple[float, float]:
    """The accuracy of always predicting the most frequent class, and the loss of predicting the shares.

    Accuracies count samples, and are those of the test data if there are any; losses follow the weights.
    """
    common = np.bincount(problem.y).argmax()
    share = float(np.mean((problem.y if problem.test_y is None else problem.test_y) == common))
    counts = np.bincount(problem.y, problem.weights, minlength=problem.outputs)
    shares = counts[counts > 0] / counts.sum()
    mean_weight = 1.0 if problem.weights is None else float(problem.weights.mean())
    return share, mean_weight * float((shares * np.log(1 / shares)).sum())


def loss_of_the_mean(problem: Problem) -> float:
    """The loss of always predicting the targets' mean or, for the logistic loss, its log odds."""
    y = problem.y.astype(np.float64)
    if problem.loss == "squared" and problem.weights is None:
        return float(y.var(axis=0).sum() / 2)
    prediction = np.average(y, axis=0, weights=problem.weights)
    if problem.loss == LOGISTIC:
        share = np.clip(prediction, 1e-12, 1 - 1e-12)
        prediction = np.log(share / (1 - share))
    return _loss_of(problem, prediction)


def _another(problem: Problem) -> Array:
    """A wrong prediction for constant targets, for comparison: 0, or 1 for targets of 0, (out,)."""
    target = problem.y[0].astype(np.float64)
    return np.where((target == 0) & (problem.loss != LOGISTIC), 1.0, 0.0)


def _loss_of(problem: Problem, prediction: Array) -> float:
    """The loss of always predicting this, (out,)."""
    y = problem.y.astype(np.float64)
    outputs = torch.from_numpy(np.broadcast_to(prediction, y.shape).copy())
    losses = problem.formula.of_samples(outputs, torch.from_numpy(y)).numpy()
    weights = np.ones(len(y)) if problem.weights is None else problem.weights.astype(np.float64)
    return float(weights @ losses / len(y))
