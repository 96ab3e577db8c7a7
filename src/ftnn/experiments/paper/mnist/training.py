"""Training a stage of a cell, from its checkpoint or from its start. Loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache

from ftnn.data import mnist
from ftnn.experiments.grid.jobs import Checkpoint, Kept, Outcome
from ftnn.experiments.grid.task import Tell
from ftnn.experiments.paper.mnist.cells import PIXELS, Cell, Stage, images
from ftnn.experiments.paper.mnist.functions import function_of
from ftnn.experiments.paper.running import Running, arrays_of, load_arrays
from ftnn.nn import Network
from ftnn.training import Epoch, History, digest, initialise
from ftnn.training._checkpoint import Position, State
from ftnn.training._problem import Problem, make_problem
from ftnn.training._progress import Silent
from ftnn.training._run import Run


class _Keeper:
    """Gives a run its start, and sends on what it wants kept."""

    def __init__(self, start: State, earlier: int, running: Running):
        self._start, self._running = start, running
        self._earlier = earlier  # epochs, of the stages before this one

    def load(self) -> State | None:
        return self._start

    def keep(self, state: State, *, now: bool) -> None:
        if now or not self._running.is_due:
            return
        epochs = state.history.epochs[self._earlier :]
        notes = {"position": asdict(state.position), "epochs": [asdict(epoch) for epoch in epochs]}
        last = epochs[-1]
        # The network as it was before the stage is not sent: the stages before this one have it.
        self._running.tell(last.epoch, last.loss, last.test_accuracy, notes, dict(state.engine))

    def flush(self) -> None: ...


@cache
def problem_of(data: str) -> Problem:
    """What is to be learned, by name."""
    loaded, count = mnist(), images(data)
    train, test = (None, None) if count is None else (count, count // 5)
    return make_problem(
        loaded.train_images[:train],
        loaded.train_labels[:train],
        inputs=PIXELS,
        outputs=10,
        dtype="float32",
        loss="softmax",
        test=(loaded.test_images[:test], loaded.test_labels[:test]),
    )


def network_of(cell: Cell, before: Sequence[Kept] = ()) -> Network:
    """The network of a cell as it starts, with what the stages so far have trained of it."""
    net = Network(PIXELS, [cell.width] * cell.hidden_layers, 10, function_of(cell.function), cell.activation)
    initialise(net, cell.seed)
    for kept in before:
        is_top = kept is before[-1] and len(before) == cell.hidden_layers
        arrays = {n: a for n, a in kept.arrays.items() if is_top or not n.startswith("output.")}
        load_arrays(net, arrays, strict=False)
    return net


def train(stage: Stage, before: tuple[Kept, ...], checkpoint: Checkpoint | None, tell: Tell) -> Outcome:
    """Run a stage to its end; see `Task.run`."""
    cell = stage.cell
    problem = problem_of(cell.data)  # before the clock starts: it is read once for many stages
    running = Running(stage.key, checkpoint, tell)
    net = network_of(cell, before)
    history = History([epoch for kept in before for epoch in kept.epochs], engine="compiled")
    earlier = len(history.epochs)
    failed = next((kept for kept in before if kept.failed), None)
    if failed is not None:
        history.failed, history.advice = failed.failed, failed.advice
    else:
        start = State(Position(stage=len(before)), history, arrays_of(net))
        if checkpoint is not None:
            notes = checkpoint.notes
            history.epochs += [Epoch(**epoch) for epoch in notes["epochs"]]
            start = replace(start, position=Position(**notes["position"]), engine=checkpoint.arrays)
        keeper = _Keeper(start, earlier, running)
        run = Run(net, problem, cell.settings(), "compiled", None, keeper, ())
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
    )
