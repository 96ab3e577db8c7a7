"""Running one stage, wherever that is: in a worker process or on a machine of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import torch

from ftnn.data import mnist, pi_digits
from ftnn.experiments._conic import solve
from ftnn.experiments._jobs import Checkpoint, Job, Kept, Outcome, Progress
from ftnn.experiments._tasks import Cell, ConicCell, PiCell, function_of, images
from ftnn.nn import MemoryNetwork, Network
from ftnn.training import Epoch, History, Pass, digest, fit_sequence, initialise
from ftnn.training._checkpoint import Position, State
from ftnn.training._problem import Array, Problem, make_problem
from ftnn.training._progress import Silent
from ftnn.training._run import Run

SECONDS_BETWEEN = 0.5
"""Where epochs are shorter than this, not each of them is told."""


Tell = Callable[[Progress], None]


def execute(job: Job, tell: Tell) -> Outcome:
    """Run a stage from its checkpoint, or from its start, to its end. Calls `tell` as epochs end."""
    if isinstance(job.task.cell, PiCell):
        return _run_pi(job, job.task.cell, tell)
    if isinstance(job.task.cell, ConicCell):
        return _run_conic(job, job.task.cell)
    return _run_stage(job, job.task.cell, tell)


# --- stages of layer-wise training and fine-tuning ---


class _Keeper:
    """Gives a run its start, and sends on what it wants kept."""

    def __init__(self, job: Job, start: State, told_before: int, clock: _Clock, tell: Tell):
        self.state = start
        self._job, self._told_before, self._clock, self._tell = job, told_before, clock, tell
        self._last = time.monotonic()

    def load(self) -> State | None:
        return self.state

    def keep(self, state: State, *, now: bool) -> None:
        self.state = state
        if now or time.monotonic() - self._last < SECONDS_BETWEEN:
            return
        self._last = time.monotonic()
        epochs = state.history.epochs[self._told_before :]
        notes = {
            "position": asdict(state.position),
            "epochs": [asdict(epoch) for epoch in epochs],
            "seconds": self._clock.seconds,
        }
        last = epochs[-1]
        # The network as it was before the stage is not sent: the stages before this one have it.
        checkpoint = Checkpoint(notes, dict(state.engine))
        self._tell(Progress(self._job.task.key, last.epoch, last.loss, last.test_accuracy, checkpoint))

    def flush(self) -> None: ...


class _Clock:
    """Processor time of this stage, over all the processes that had a part in it."""

    def __init__(self, job: Job):
        self._before = 0.0 if job.checkpoint is None else float(job.checkpoint.notes["seconds"])
        self._start = time.process_time()

    @property
    def seconds(self) -> float:
        return self._before + time.process_time() - self._start


@cache
def problem_of(data: str) -> Problem:
    """What is to be learned, by name."""
    found, count = mnist(), images(data)
    train, test = (None, None) if count is None else (count, count // 5)
    return make_problem(
        found.train_images[:train],
        found.train_labels[:train],
        inputs=784,
        outputs=10,
        dtype="float32",
        loss="softmax",
        test=(found.test_images[:test], found.test_labels[:test]),
    )


def network_of(cell: Cell, before: Sequence[Kept] = ()) -> Network:
    """The network of a cell as it starts, with what the stages so far have trained of it."""
    net = Network(784, [cell.width] * cell.hidden_layers, 10, function_of(cell.function), cell.activation)
    initialise(net, cell.seed)
    for kept in before:
        is_top = kept is before[-1] and len(before) == cell.hidden_layers
        arrays = {n: a for n, a in kept.arrays.items() if is_top or not n.startswith("output.")}
        net.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in arrays.items()}, strict=False)
    return net


def _run_stage(job: Job, cell: Cell, tell: Tell) -> Outcome:
    problem = problem_of(cell.data)  # before the clock starts: it is read once for many stages
    clock, task = _Clock(job), job.task
    net = network_of(cell, job.before)
    history = History([epoch for kept in job.before for epoch in kept.epochs], engine="compiled")
    earlier = len(history.epochs)
    failed = next((kept for kept in job.before if kept.failed), None)
    if failed is not None:
        history.failed, history.advice = failed.failed, failed.advice
    else:
        start = State(Position(stage=len(job.before)), history, _arrays(net))
        if job.checkpoint is not None:
            notes = job.checkpoint.notes
            history.epochs += [Epoch(**epoch) for epoch in notes["epochs"]]
            start = replace(start, position=Position(**notes["position"]), engine=job.checkpoint.arrays)
        keeper = _Keeper(job, start, earlier, clock, tell)
        run = Run(net, problem, cell.settings(), "compiled", None, keeper, ())
        history = run.through(cell.hidden_layers - 1 if task.kind == "lwt" else None, Silent())
    arrays = _arrays(net)
    if task.kind == "lwt":
        mine = (f"hidden.{cell.hidden_layers - 1}.", "output.")
        arrays = {name: array for name, array in arrays.items() if name.startswith(mine)}
    return Outcome(
        key=task.key,
        epochs=tuple(history.epochs[earlier:]),
        failed=history.failed,
        advice=history.advice,
        loss=history.loss,
        arrays=arrays,
        lwt_accuracy=history.lwt_accuracy,
        ft_accuracy=history.ft_accuracy if task.kind == "ft" else None,
        digest=digest(net),
        seconds=clock.seconds,
    )


def _arrays(net: torch.nn.Module) -> dict[str, Array]:
    return {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}


# --- curves of π ---


def _run_pi(job: Job, cell: PiCell, tell: Tell) -> Outcome:
    clock = _Clock(job)
    net = MemoryNetwork(10, cell.hidden, 10, activation="logistic")
    initialise(net, cell.seed)
    passes: list[Pass] = []
    if job.checkpoint is not None:
        net.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in job.checkpoint.arrays.items()})
        passes = [Pass(**given) for given in job.checkpoint.notes["epochs"]]
    last = time.monotonic()

    def told(found: Pass, net: MemoryNetwork) -> None:
        nonlocal last
        passes.append(found)
        if time.monotonic() - last >= SECONDS_BETWEEN:
            last = time.monotonic()
            notes = {"epochs": [asdict(each) for each in passes], "seconds": clock.seconds}
            progress = Progress(
                job.task.key, len(passes), found.loss, found.accuracy, Checkpoint(notes, _arrays(net))
            )
            tell(progress)

    digits = pi_digits(cell.pairs + 1)
    history = fit_sequence(
        net,
        np.eye(10, dtype=np.float32)[digits[:-1]],
        digits[1:],
        gamma=cell.gamma,
        epochs=cell.epochs,
        done=len(passes),
        callbacks=[told],
    )
    return Outcome(
        key=job.task.key,
        epochs=tuple(passes),
        failed=history.failed,
        advice=history.advice,
        loss=passes[-1].loss if passes else None,
        arrays=_arrays(net),
        lwt_accuracy=None,
        ft_accuracy=passes[-1].accuracy if passes else None,
        digest=digest(net),
        seconds=clock.seconds,
    )


# --- conic hypersurfaces ---


def _run_conic(job: Job, cell: ConicCell) -> Outcome:
    """Seconds of work: it is not resumed, but run again."""
    clock = _Clock(job)
    found = solve(cell.problem, cell.seed)
    return Outcome(
        key=job.task.key,
        epochs=found.epochs,
        failed=found.failed,
        advice=found.advice,
        loss=found.loss,
        arrays=found.arrays,
        lwt_accuracy=found.lwt_accuracy,
        ft_accuracy=found.accuracy,
        digest=found.digest,
        seconds=clock.seconds,
    )
