"""A run of training, stage by stage, which can resume from any stage."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from ftnn.nn import Network
from ftnn.nn._activations import Activate
from ftnn.nn._folding import adapt
from ftnn.nn._modes import evaluating
from ftnn.nn._network import reset_linear
from ftnn.training._advice import advice, needs_epochs
from ftnn.training._checkpoint import CheckpointError, Keeper, Position, State, check_like
from ftnn.training._diagnosis import cause_in, cause_in_data, scale_of
from ftnn.training._engine import Engine, Snapshot
from ftnn.training._engine_choice import make_engine
from ftnn.training._engine_search import SearchEngine
from ftnn.training._history import Epoch, History, StageName
from ftnn.training._normalised import TrainingForm
from ftnn.training._optimizers import MakeOptimizer, describe, make, trained
from ftnn.training._outcome import measure
from ftnn.training._problem import Array, Problem
from ftnn.training._progress import Reporter
from ftnn.training._random import Purpose, modules_draw_from, order, stream, torch_generator
from ftnn.training._schedules import HALVING, factors, try_out
from ftnn.training._settings import SECOND_ORDER, Settings, Stage, stages_of
from ftnn.training._start import defaults_for
from ftnn.training._stream import count_of, pieces
from ftnn.training._verdict import nothing_learned

Trainable = Network | nn.Sequential
Callback = Callable[[Epoch, Any], bool | None]
"""Called after each epoch with its record and the network at that point; True ends the stage."""

_PURPOSES: dict[StageName, Purpose] = {
    "lwt": Purpose.lwt,
    "ft": Purpose.ft,
    "joint": Purpose.joint,
    "direct": Purpose.direct,
}
_NAMES: dict[StageName, str] = {
    "lwt": "layer-wise training",
    "ft": "fine-tuning",
    "joint": "joint training",
    "direct": "training",
    "lm": "training",
    "lbfgs": "training",
}


MEASURED = 2000
"""The most samples that show whether a network has learned anything."""


class FailedError(Exception):
    """Training failed; carries the reason, advice and, if they are not the training data, the samples."""

    def __init__(self, reason: str, advice: str, x: Array | None = None):
        super().__init__(reason)
        self.reason, self.advice, self.x = reason, advice, x


class Run:
    """One run of `fit`.

    **Arguments:**

    - `form`: what direct training trains instead of the network; None: the network.
    - `at_chance`: the accuracy, in percent, up to which a run has failed, as in the paper's experiments;
        None: compare with the trivial prediction.
    """

    def __init__(
        self,
        net: Trainable,
        problem: Problem,
        settings: Settings,
        engine: str,
        optimizer: MakeOptimizer | None,
        checkpoint: Keeper,
        callbacks: tuple[Callback, ...],
        form: TrainingForm | None = None,
        at_chance: float | None = None,
    ):
        self.net, self.problem, self.settings = net, problem, settings
        self.engine, self.optimizer = engine, optimizer
        self.checkpoint, self.callbacks, self.form = checkpoint, callbacks, form
        self.at_chance = at_chance
        self.stages = stages_of(settings, len(net.layers) if isinstance(net, Network) else 0)
        self.state = State(history=History(engine=engine))
        self.search: SearchEngine | None = None
        """That of a second-order solver, if it has run."""

    def through(self, last: int | None, reporter: Reporter) -> History:
        """Run from the checkpoint to the end of stage number `last`, or of the last stage if None."""
        saved = self.checkpoint.load()
        if saved is not None:
            if not 0 <= saved.position.stage <= len(self.stages):
                raise CheckpointError(
                    f"the checkpoint is at stage {saved.position.stage}; expected 0 to {len(self.stages)}"
                )
            self._refuse_fewer_epochs(saved)
            self.state = saved
            self._load_net(saved.net)
            if saved.position.finished:
                return saved.history
            saved.history.failed = saved.history.advice = None
        history = self.state.history
        stages = self.stages if last is None else self.stages[: last + 1]
        for stage in stages:
            try_out(stage.schedule, stage.epochs * self._steps_of(self.problem))
        try:
            problem = self.problem
            for number, stage in enumerate(stages):
                current = self.state.position.stage
                # A finished stage is needed only for its outputs, as inputs of a layer still to be trained.
                feeds = stage.name == "lwt" and any(
                    later.name == "lwt" for later in stages[max(number + 1, current) :]
                )
                if number < current and not feeds:
                    continue
                here = self.problem if stage.name == "ft" else problem
                module = self._trained(stage)
                engine = make_engine(self.engine, module, here, self.settings, self.optimizer, stage.rate)
                if saved is None and number == 0:
                    with evaluating(module):  # the engine would leave it in evaluation mode
                        here.check_start(engine.outputs)
                self.search = engine if isinstance(engine, SearchEngine) else None
                if number >= current:
                    self._stage(number, stage, engine, module, here, reporter)
                if feeds:
                    test_x = None if here.test_x is None else engine.hidden(here.test_x)
                    problem = replace(here, x=engine.hidden(here.x), test_x=test_x)
            if len(stages) == len(self.stages):
                self._judge(history)
        except FailedError as failure:
            history.failed = failure.reason
            history.advice = self._cause(failure) or failure.advice
        if self._can_go_on:
            self.checkpoint.keep(self.state, now=True)
        else:
            self._keep(replace(self.state.position, finished=True))
        return history

    @property
    def _can_go_on(self) -> bool:
        """Whether the run ends only because it has had all its epochs, and more would continue it."""
        is_search = self.settings.solver in SECOND_ORDER
        return is_search and self.state.position.stage == 0 and bool(self.state.engine)

    def _refuse_fewer_epochs(self, saved: State) -> None:
        """Second-order solvers may go on with more epochs than before, but not go back."""
        done, allowed = len(saved.history.epochs), self.stages[0].epochs
        if self.settings.solver in SECOND_ORDER and done > allowed:
            raise CheckpointError(
                f"the checkpoint has {done} epochs, more than epochs={allowed}: allow more, choose another "
                "file, or remove it to start over"
            )

    # --- setting up ---

    def _trained(self, stage: Stage) -> nn.Module:
        """The module that a stage trains: the network, its form, or a hidden layer under an output layer."""
        if stage.layer == 0:
            return self.net if self.form is None else self.form.module
        assert isinstance(self.net, Network)
        n = stage.layer - 1
        return nn.Sequential(
            self.net.layers[n], Activate(self.net.activations[n]), self._fresh_head(self.net, stage.layer)
        )

    def describe_optimizer(self) -> Any:
        """The optimizer of each stage, as JSON; a single one if they are all the same."""
        if self.optimizer is None:
            return None
        by_stage: list[Any] = []
        for stage in self.stages:
            parameters = trained(self._trained(stage))
            by_stage.append(describe(make(self.optimizer, parameters), parameters))
        return by_stage[0] if all(other == by_stage[0] for other in by_stage) else by_stage

    def _fresh_head(self, net: Network, layer: int) -> nn.Linear:
        """A new output layer for a hidden layer, drawn from the seed."""
        like = net.output.weight
        head = nn.Linear(net.layers[layer - 1].out_features, net.out_features, dtype=like.dtype)
        reset_linear(head, torch_generator(self.settings.seed, Purpose.output, layer - 1))
        return head.to(like.device)

    # --- a stage ---

    def _stage(
        self,
        number: int,
        stage: Stage,
        engine: Engine,
        module: nn.Module,
        problem: Problem,
        reporter: Reporter,
    ) -> None:
        position, at_first = self.state.position, engine.snapshot()
        if position.stage != number:
            position = Position(stage=number)
        elif self.state.engine:
            engine.restore(self.state.engine)
        rate = stage.rate if position.rate is None else position.rate
        before_stage = _arrays_of(self.net)
        last_loss, before = position.loss, engine.snapshot()
        ends = False
        for epoch in range(position.epochs + 1, stage.epochs + 1):
            try:
                record, after = self._epoch(stage, engine, problem, epoch, rate, reporter)
            except FailedError:
                engine.restore(before)
                self._write_back(stage, engine, module)
                raise
            except KeyboardInterrupt:
                if stage.name in SECOND_ORDER:  # keep the best so far
                    engine.restore(before)
                    self._write_back(stage, engine, module)
                raise
            ends = False
            if isinstance(engine, SearchEngine):
                ends = self.state.history.converged = engine.converged
            if stage.schedule == HALVING and last_loss is not None:
                gain = last_loss - record.loss
                if gain < 0:
                    engine.restore(before)
                    record, ends = replace(record, undone=True), True
                elif gain < self.settings.threshold:
                    rate /= 2
            if not record.undone:
                last_loss = record.loss
            self.state.history.epochs.append(record)
            reporter.end(record)
            if self.callbacks:
                self._write_back(stage, engine, module)
                stops = [callback(record, self.net) for callback in self.callbacks]  # call all of them
                ends |= any(stops)
            position = Position(number, epoch, rate, last_loss)
            if ends:
                break
            before = after if not self.callbacks else engine.snapshot()  # they may have changed the network
            self.state = State(position, self.state.history, before_stage, before)
            # It may be written later, when the history has gone on.
            history = replace(self.state.history, epochs=[*self.state.history.epochs])
            self.checkpoint.keep(replace(self.state, history=history), now=False)
        if stage.name == "ft" and self._is_worse_than_before(last_loss):
            engine.restore(at_first)
            epochs = self.state.history.epochs
            epochs[:] = [replace(record, undone=record.undone or record.stage == "ft") for record in epochs]
        self._write_back(stage, engine, module)
        if ends or not self._can_go_on:
            self._keep(Position(stage=number + 1))

    def _is_worse_than_before(self, loss: float | None) -> bool:
        """Whether fine-tuning ends with a larger loss than layer-wise training did.

        Until then, its epochs are compared only with each other: when all layers start to move at once, the
        loss often grows at first and later falls far below its starting point.
        """
        before = [record.loss for record in self.state.history.epochs if record.stage != "ft"]
        return bool(before) and loss is not None and loss > before[-1]

    def _write_back(self, stage: Stage, engine: Engine, module: nn.Module) -> None:
        """Copy the trained parameters into the network."""
        engine.write_back()
        if self.form is not None and self.state.history.epochs:  # else leave the network as it is
            self.form.write()
        if isinstance(self.net, Network) and stage.name == "lwt" and stage.layer == len(self.net.layers):
            # The last hidden layer's output layer becomes the network's.
            assert isinstance(module, nn.Sequential)
            self.net.output.load_state_dict(module[-1].state_dict())

    def _epoch(
        self, stage: Stage, engine: Engine, problem: Problem, epoch: int, rate: float, reporter: Reporter
    ) -> tuple[Epoch, Snapshot]:
        """The record of an epoch, and everything that it has changed."""
        steps = self._steps_of(problem)
        reporter.begin(stage.name, stage.layer, epoch, stage.epochs, steps)
        losses: list[Array] = []
        first = right = count = 0
        finite = True
        start = time.perf_counter()
        for samples, data in self._data(stage, problem, epoch):
            size = -(-len(samples) // self._batch_size)
            done = (epoch - 1) * steps + first
            rates = rate * factors(stage.schedule, done, size, stage.epochs * steps)
            with self._modules_draw(stage, epoch):
                for chunk in engine.epoch(samples, rates, data):
                    losses.append(chunk.losses)
                    right += chunk.right
                    finite = chunk.finite
                    reporter.advance(len(chunk.losses), float(chunk.losses[-1]))
            first, count = first + size, count + len(samples)
            if not finite:
                break
        seconds, after = time.perf_counter() - start, engine.snapshot()
        numbers = (array for array in after.values() if array.dtype.kind == "f")
        if not finite or not all(np.isfinite(array).all() for array in numbers):
            quantity = "a parameter" if finite else "the loss"
            layer = f", hidden layer {stage.layer}" if stage.layer else ""
            raise FailedError(
                f"{quantity} was not finite in {_NAMES[stage.name]}{layer}, epoch {epoch}",
                self._advice("smaller"),
            )
        accuracy = 100 * right / count if problem.is_classification else None
        loss = float(np.concatenate(losses).mean())
        test_results = (None, None)
        if problem.test_x is not None and problem.test_y is not None:
            test_results = measure(engine.outputs(problem.test_x), problem.test_y, problem.loss)
        return Epoch(stage.name, stage.layer, epoch, rate, loss, accuracy, *test_results, seconds), after

    def _modules_draw(self, stage: Stage, epoch: int) -> AbstractContextManager[None]:
        """Compiled code and second-order solvers call no module that draws random numbers."""
        if self.engine != "torch":
            return nullcontext()
        seeds = stream(self.settings.seed, Purpose.modules, stage.layer, epoch)
        return modules_draw_from(int(seeds.integers(2**63)), next(self.net.parameters()).device)

    def _steps_of(self, problem: Problem) -> int:
        """The number of mini-batches in an epoch; 1 if unknown."""
        if problem.batches is not None:
            return count_of(problem.batches) or 1
        return -(-len(problem.x) // self._batch_size)

    @property
    def _batch_size(self) -> int:
        """Second-order solvers use all samples at once."""
        return len(self.problem.x) if self.settings.batch_size is None else self.settings.batch_size

    def _data(self, stage: Stage, problem: Problem, epoch: int) -> Iterator[tuple[Array, Problem | None]]:
        """The order of an epoch's samples: all of the problem's, or piece by piece from a stream."""
        if stage.name in SECOND_ORDER:
            yield np.arange(len(problem.x)), None
            return
        if problem.batches is None:
            seed, purpose = self.settings.seed, _PURPOSES[stage.name]
            yield order(seed, purpose, stage.layer, epoch, len(problem.x)), None
            return
        for piece in pieces(problem, self._batch_size, epoch):
            yield np.arange(len(piece.x)), piece

    # --- the end ---

    def _judge(self, history: History) -> None:
        """Raise if a run has learned nothing, or its outputs are not finite on the test data."""
        epochs = [epoch for epoch in history.epochs if not epoch.undone]
        if not epochs:
            return
        last = epochs[-1]
        if last.test_loss is not None and not math.isfinite(last.test_loss):
            raise FailedError(
                f"the final test loss is {last.test_loss}: the network's outputs are not finite on the test "
                "data",
                f"test data similar to the training data, or {self._advice('smaller')}",
                self.problem.test_x,
            )
        found = nothing_learned(self.problem, self._as_measured(last), self.at_chance)
        if found is None:
            return
        reason, start = found
        # If the rate is too small, the loss stays the same; if it is too large, the loss grows at least once.
        has_grown = max(epoch.loss for epoch in epochs) >= 1.05 * start
        direction = "smaller" if has_grown else "larger"
        raise FailedError(reason, self._advice(direction, unfinished=needs_epochs(self.settings, history)))

    def _advice(self, direction: Literal["smaller", "larger"], *, unfinished: bool = False) -> str:
        if self.optimizer is not None:  # the settings only scale its rate
            return f"a {direction} learning rate of the optimizer"
        rate = defaults_for(self.net)["learning_rate"] if self.settings.solver == "direct" else None
        normalised = self.form is not None
        return advice(self.settings, direction, rate, normalised=normalised, unfinished=unfinished)

    def _as_measured(self, last: Epoch) -> Epoch:
        """The last epoch with the loss and accuracy of the network that normalised training ended in.

        While sums are normalised over mini-batches, losses say little about it if running statistics have not
        settled: after a few steps on data of a large scale, it can be far worse.
        """
        problem = self.problem
        if self.form is None or problem.batches is not None or problem.weights is not None:
            return last
        some = slice(None, None, -(-len(problem.x) // MEASURED))
        parameter = next(self.net.parameters())
        x = torch.from_numpy(problem.x[some]).to(parameter.device, parameter.dtype)
        with torch.no_grad(), evaluating(self.net):
            outputs = self.net(x).cpu().numpy()
        accuracy, loss = measure(outputs, problem.y[some], problem.loss)
        return replace(last, loss=loss, train_accuracy=accuracy)

    def _cause(self, failure: FailedError) -> str | None:
        """What to change first, if the functions or the data are the cause."""
        x = self.problem.x if failure.x is None else failure.x
        found = cause_in(self.net, x) or cause_in_data(self.problem)
        if found is not None:
            return found
        scale = scale_of(self.problem)
        return None if scale is None else f"{scale}; or {failure.advice}"

    # --- saving ---

    def _load_net(self, arrays: dict[str, Array]) -> None:
        expected = self.net
        if self.form is not None:  # it may have given layers a bias or a scale
            expected = copy.deepcopy(self.net)
            adapt(expected, {*arrays, *expected.state_dict()})
        check_like(arrays, _arrays_of(expected))
        adapt(self.net, arrays)
        self.net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})

    def _keep(self, position: Position) -> None:
        """Save the state between stages, or at the end."""
        self.state = State(position, self.state.history, _arrays_of(self.net))
        self.checkpoint.keep(self.state, now=True)


def _arrays_of(net: nn.Module) -> dict[str, Array]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in net.state_dict().items()}
