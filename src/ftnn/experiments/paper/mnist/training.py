"""Trains the stages of cells. Loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache

import torch

from ftnn.data import mnist
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.task import OnProgress
from ftnn.experiments.paper.mnist.cells import HELD_OUT, PIXELS, Cell, Stage, images
from ftnn.experiments.paper.mnist.direct import Direct
from ftnn.experiments.paper.mnist.functions import function_of, given
from ftnn.experiments.paper.running import Running, arrays_of, load_arrays
from ftnn.nn import Network
from ftnn.training import Epoch, History, Settings, digest, initialise
from ftnn.training._checkpoint import Position, State
from ftnn.training._fit import make_run
from ftnn.training._outcome import measure
from ftnn.training._problem import Problem, make_problem
from ftnn.training._progress import Silent
from ftnn.training._run import Run

AT_CHANCE = 20.0
"""The final accuracy, in percent, up to which a cell has failed: see `docs/reproduction.md`."""


class _Keeper:
    """Stands in for a checkpoint file: starts a run, and reports its checkpoints to the scheduler."""

    def __init__(self, start: State, checkpoint: Checkpoint | None, running: Running):
        self._running = running
        self._earlier = len(start.history.epochs)  # in the stages before this one
        self._start = start
        if checkpoint is not None:
            notes = checkpoint.notes
            start.history.epochs += [Epoch(**epoch) for epoch in notes["epochs"]]
            self._start = replace(start, position=Position(**notes["position"]), engine=checkpoint.arrays)

    def load(self) -> State | None:
        return self._start

    def keep(self, state: State, *, now: bool) -> None:
        if now or not self._running.is_due:
            return
        epochs = state.history.epochs[self._earlier :]
        notes = {"position": asdict(state.position), "epochs": [asdict(epoch) for epoch in epochs]}
        last = epochs[-1]
        # The network before this stage is not sent: it is in the earlier stages' results.
        self._running.report(last.epoch, last.loss, last.test_accuracy, notes, dict(state.engine))

    def flush(self) -> None: ...


@cache
def problem_of(data: str) -> Problem:
    """The data and loss of a cell's `data`."""
    loaded, count = mnist(), images(data)
    return make_problem(
        loaded.train_images[:count],
        loaded.train_labels[:count],
        inputs=PIXELS,
        outputs=10,
        dtype="float32",
        loss="softmax",
        test=(loaded.test_images, loaded.test_labels),
    )


def network_of(cell: Cell, before: Sequence[Predecessor] = ()) -> Network:
    """A cell's network with its initial parameters, or those that earlier stages trained."""
    net = Network(PIXELS, [cell.width] * cell.hidden_layers, 10, function_of(cell.function), cell.activation)
    initialise(net, cell.seed)
    for stage in before:
        is_top = stage is before[-1] and len(before) == cell.hidden_layers
        arrays = {n: a for n, a in stage.arrays.items() if is_top or not n.startswith("output.")}
        load_arrays(net, arrays, strict=False)
    return net


def train_directly(task: Direct, checkpoint: Checkpoint | None, on_progress: OnProgress) -> Outcome:
    """Run a cell of direct training; see `Task.run`."""
    cell = task.cell
    problem = problem_of(cell.data)  # before the clock starts: many cells share it
    running = Running(task.key, checkpoint, on_progress)
    net = Network(PIXELS, [cell.width] * cell.hidden_layers, 10, given(cell.function), cell.activation)
    initialise(net, cell.seed)
    keeper = _Keeper(State(net=arrays_of(net)), checkpoint, running)
    settings = Settings(epochs=(cell.epochs, 0), seed=cell.seed)
    run = make_run(net, problem, settings, "compiled", keeper=keeper, at_chance=AT_CHANCE)
    history = run.through(None, Silent())
    return Outcome(
        key=task.key,
        epochs=tuple(history.epochs),
        failed=history.failed,
        advice=history.advice,
        loss=history.loss,
        arrays=arrays_of(net),
        lwt_accuracy=None,
        ft_accuracy=history.accuracy,
        digest=digest(net),
        seconds=running.seconds,
        validation_accuracy=_validation_accuracy(net, cell.data),
    )


def _validation_accuracy(net: Network, data: str) -> float | None:
    """On the images that are held out; None if the network was trained on them."""
    loaded, count = mnist(), images(data)
    if count > HELD_OUT:
        return None
    x, y = (values[HELD_OUT:] for values in (loaded.train_images, loaded.train_labels))
    with torch.no_grad():
        accuracy, _ = measure(net(torch.from_numpy(x)).numpy(), y, "softmax")
    return accuracy


def train(
    stage: Stage, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
) -> Outcome:
    """Run a stage; see `Task.run`."""
    cell = stage.cell
    problem = problem_of(cell.data)  # before the clock starts: many stages share it
    running = Running(stage.key, checkpoint, on_progress)
    net = network_of(cell, before)
    history = History([epoch for stage in before for epoch in stage.epochs], engine="compiled")
    earlier = len(history.epochs)
    failed = next((each for each in before if each.failed), None)
    if failed is not None:
        history.failed, history.advice = failed.failed, failed.advice
    else:
        start = State(Position(stage=len(before)), history, arrays_of(net))
        keeper = _Keeper(start, checkpoint, running)
        run = Run(net, problem, cell.settings(), "compiled", None, keeper, (), at_chance=AT_CHANCE)
        history = run.through(None if stage.ends_cell else cell.hidden_layers - 1, Silent())
    arrays = arrays_of(net)
    if not stage.ends_cell:
        trained = (f"hidden.{cell.hidden_layers - 1}.", "output.")
        arrays = {name: array for name, array in arrays.items() if name.startswith(trained)}
    return Outcome(
        key=stage.key,
        epochs=tuple(history.epochs[earlier:]),
        failed=history.failed,
        advice=history.advice,
        loss=history.loss,
        arrays=arrays,
        lwt_accuracy=history.lwt_accuracy,
        ft_accuracy=history.ft_accuracy if stage.ends_cell else None,
        digest=digest(net),
        seconds=running.seconds,
        validation_accuracy=None if history.failed else _validation_accuracy(net, cell.data),
        lwt_validation_accuracy=before[-1].validation_accuracy if stage.ends_cell else None,
    )
