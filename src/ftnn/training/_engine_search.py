"""The engine of second-order solvers: an epoch is an iteration of every search that is still alive.

Several searches start at once. After 10, 20, 40 … iterations, only the better half goes on. Each search is
computed by one thread, so results do not depend on the number of threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

from ftnn.training._checkpoint import CheckpointError
from ftnn.training._engine import Snapshot, Steps
from ftnn.training._engine_torch import TorchSteps
from ftnn.training._objective import NetworkObjective, check_memory
from ftnn.training._outcome import classes_of
from ftnn.training._problem import Array, Problem
from ftnn.training._searches import Lbfgs, LevenbergMarquardt, OneSearch, starting_networks
from ftnn.training._settings import Settings
from ftnn.training._threads import one_thread_each

FIRST_CUT = 10
"""The iteration after which half of the searches end; then each time after twice as many."""


class SearchEngine:
    """Follows the protocol `Engine`. Every epoch uses all samples, so their order does not matter."""

    def __init__(self, module: nn.Module, problem: Problem, settings: Settings):
        self._module, self._problem = module, problem
        if settings.solver == "lm":
            check_memory(module, problem)
        networks = starting_networks(
            module, problem.x, settings.seed, settings.starts, calibrate=bool(settings.calibrate)
        )
        if settings.solver == "lm":
            bounds = settings.bounds or {}
            self._searches: list[OneSearch] = [LevenbergMarquardt(n, problem, bounds) for n in networks]
        else:
            self._searches = [Lbfgs(network, problem) for network in networks]
        self._alive, self._count = list(range(len(networks))), 0

    @property
    def converged(self) -> bool:
        """Whether no search can improve any more."""
        return all(self._searches[n].converged for n in self._alive)

    @property
    def _best(self) -> OneSearch:
        return min((self._searches[n] for n in self._alive), key=lambda search: search.loss)

    @property
    def objective(self) -> NetworkObjective | None:
        """The best search's, if it searched on the network itself; it knows the last pass."""
        best = self._best
        if isinstance(best, LevenbergMarquardt) and best.net is self._module:
            return best.objective
        return None

    def epoch(self, order: Array, rates: Array, data: Problem | None = None) -> Iterator[Steps]:
        active = [self._searches[n] for n in self._alive if not self._searches[n].converged]
        with one_thread_each() as threads, warnings.catch_warnings():
            # SciPy's, if a line search finds no step. Not in the threads, which share the filters.
            warnings.simplefilter("ignore")
            if threads == 1 or len(active) <= 1:
                for search in active:
                    search.advance()
            else:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(_advance, active))
        self._count += 1
        self._cut()
        best, right = self._best, 0
        if self._problem.is_classification:
            y = torch.from_numpy(self._problem.y)
            right = int((classes_of(torch.from_numpy(self.outputs(self._problem.x))) == y).sum())
        yield TorchSteps(np.array([best.loss]), right, bool(np.isfinite(best.loss)))

    def _cut(self) -> None:
        """End the searches that are not finite and, at certain times, those that are behind."""
        finite = [n for n in self._alive if np.isfinite(self._searches[n].loss)]
        self._alive = finite or self._alive[:1]
        cuts = (FIRST_CUT * 2**n for n in range(self._count.bit_length()))
        if self._count in cuts and len(self._alive) > 1:
            ranked = sorted(self._alive, key=lambda n: self._searches[n].loss)
            self._alive = sorted(ranked[: (len(ranked) + 1) // 2])

    def outputs(self, x: Array) -> Array:
        with one_thread_each():
            return self._best.outputs(torch.from_numpy(x).double()).numpy()

    def hidden(self, x: Array) -> Array:
        raise NotImplementedError("second-order solvers train all layers at once")

    def snapshot(self) -> Snapshot:
        arrays = {"alive": np.array(self._alive), "count": np.array([self._count])}
        for n in self._alive:
            arrays |= {f"{n}.{name}": array for name, array in self._searches[n].arrays().items()}
        return arrays

    def restore(self, snapshot: Snapshot) -> None:
        expected = {name: array.shape for name, array in self.snapshot().items() if name.endswith("theta")}
        try:
            alive, count = snapshot["alive"].tolist(), int(snapshot["count"][0])
            parts = {n: _of(snapshot, n) for n in alive}
            if not alive or any(expected.get(f"{n}.theta") != parts[n]["theta"].shape for n in alive):
                raise KeyError("theta")
            for n in alive:
                self._searches[n].restore(parts[n])
        except (KeyError, IndexError, ValueError) as error:
            raise CheckpointError(f"the checkpoint has an invalid search: {error!r}") from error
        self._alive, self._count = alive, count

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the best parameters found into the network, with the constants they were found for."""
        best = self._best
        best.write()
        found = best.net.state_dict()
        for name, tensor in self._module.state_dict().items():
            tensor.copy_(found[name])


def _advance(search: OneSearch) -> None:
    search.advance()


def _of(snapshot: Snapshot, number: int) -> dict[str, Array]:
    prefix = f"{number}."
    return {name.removeprefix(prefix): array for name, array in snapshot.items() if name.startswith(prefix)}
