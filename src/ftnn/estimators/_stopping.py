"""Ends stages of training, and remembers the best network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ftnn.nn import Network
from ftnn.nn._folding import adapt
from ftnn.training import Epoch

PLATEAU = 0.95
"""A stage runs until its loss has fallen to this fraction of the first: many functions start slowly."""


class Stopping:
    """A callback that ends a stage when it no longer improves.

    **Arguments:**

    - `score`: the score of an epoch; larger is better.
    - `tol`: the smallest improvement over the best score of the stage that counts.
    - `patience`: the number of epochs in a row without an improvement that ends a stage; may be infinite.
    - `keep_best`: whether to remember the parameters with the best score.
    """

    def __init__(self, score: Callable[[Epoch], float], tol: float, patience: float, *, keep_best: bool):
        self._score, self._tol, self._patience, self._keep_best = score, tol, patience, keep_best
        self._stage: tuple[str, int] | None = None
        self._first_loss = self._lowest_loss = float("inf")
        self._best_of_stage = self._best = -float("inf")
        self._waited = 0
        self._best_state: dict[str, Any] | None = None
        self.scores: list[float] = []
        """Of every epoch that was not undone."""

    def __call__(self, epoch: Epoch, net: Network) -> bool:
        if epoch.undone:
            return False  # fine-tuning ends by itself
        score = self._score(epoch)
        self.scores.append(score)
        is_complete = epoch.layer in (0, len(net.layers))  # otherwise, its output layer is not trained yet
        if self._keep_best and is_complete and score > self._best:
            self._best, self._best_state = score, copy.deepcopy(net.state_dict())
        if (epoch.stage, epoch.layer) != self._stage:
            self._stage, self._waited = (epoch.stage, epoch.layer), 0
            self._best_of_stage = score
            self._first_loss = self._lowest_loss = epoch.loss
            return False
        self._lowest_loss = min(self._lowest_loss, epoch.loss)
        improved = score > self._best_of_stage + self._tol
        self._best_of_stage = max(self._best_of_stage, score)
        self._waited = 0 if improved or self._lowest_loss > PLATEAU * self._first_loss else self._waited + 1
        return self._waited >= self._patience

    def restore_best(self, net: Network) -> bool:
        """Restore the parameters with the best score. Returns whether they are other ones than before."""
        if self._best_state is None:
            return False
        before, best = net.state_dict(), self._best_state
        is_other = before.keys() != best.keys() or not all(torch.equal(before[n], best[n]) for n in best)
        adapt(net, best)
        net.load_state_dict(best)
        return is_other
