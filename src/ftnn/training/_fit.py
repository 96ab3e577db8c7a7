"""`fit`: layer-wise supervised training, then fine-tuning; or all layers at once."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from ftnn.errors import FtnnError
from ftnn.nn import Network
from ftnn.nn._descriptions import describe
from ftnn.nn._network import reset_linear
from ftnn.training import _engines
from ftnn.training._checkpoint import Checkpoint, Position, State
from ftnn.training._engines import Engine, EngineName, MakeOptimizer
from ftnn.training._history import Epoch, History, StageName
from ftnn.training._problem import Array, Loss, Problem, make_problem
from ftnn.training._progress import Reporter, reporter
from ftnn.training._streams import Purpose, order, torch_generator

Solver = Literal["layerwise", "joint"]
Callback = Callable[[Epoch, Network], bool | None]
"""Called after each epoch with its record and the network as it is then; True ends the stage."""

_PURPOSES: dict[StageName, Purpose] = {"lwt": Purpose.lwt, "ft": Purpose.ft, "joint": Purpose.joint}


@dataclass(frozen=True)
class Settings:
    """How to train. The defaults are the paper's."""

    gamma: float = -2
    """The learning rate is 2^γ; for fine-tuning, 2^(γ - `fine_tuning_shift`)."""
    epochs: tuple[int, int] = (15, 15)
    """Of layer-wise training, for each hidden layer; of fine-tuning, at most. Joint training: the first."""
    batch_size: int = 16
    seed: int = 0
    clip: float | None = 1000.0
    """The largest allowed size of each parameter's gradient, summed over the mini-batch; None: no limit."""
    solver: Solver = "layerwise"
    momentum: float = 0.0
    weight_decay: float = 0.0
    fine_tuning_shift: float = 4
    threshold: float = 1e-4
    """Fine-tuning halves its rate when the loss improves by less than this."""

    def __post_init__(self) -> None:
        problems = [
            (not math.isfinite(self.gamma), f"gamma={self.gamma!r} must be a finite number"),
            (
                len(self.epochs) != 2 or min(self.epochs) < 0,
                f"epochs={self.epochs!r} must be two numbers of 0 or more",
            ),
            (self.batch_size < 1, f"batch_size={self.batch_size!r} must be 1 or more"),
            (self.seed < 0, f"seed={self.seed!r} must be 0 or more"),
            (self.clip is not None and not self.clip > 0, f"clip={self.clip!r} must be above 0, or None"),
            (
                self.solver not in ("layerwise", "joint"),
                f"solver={self.solver!r}: allowed are layerwise, joint",
            ),
            (not 0 <= self.momentum < 1, f"momentum={self.momentum!r} must be in [0, 1)"),
            (self.weight_decay < 0, f"weight_decay={self.weight_decay!r} must be 0 or more"),
        ]
        for wrong, message in problems:
            if wrong:
                raise FtnnError(message)

    @property
    def rate(self) -> float:
        return 2.0**self.gamma

    @property
    def fine_tuning_rate(self) -> float:
        return 2.0 ** (self.gamma - self.fine_tuning_shift)


@dataclass(frozen=True)
class Stage:
    """A part of a run: which layers learn, and for how long."""

    name: StageName
    layer: int
    """The hidden layer that learns, from 1; 0 for all."""
    epochs: int
    rate: float


def stages(settings: Settings, hidden_layers: int) -> list[Stage]:
    """The parts of a run, in order."""
    first, second = settings.epochs
    if settings.solver == "joint" or hidden_layers == 0:
        return [Stage("joint", 0, first, settings.rate)]
    layerwise = [Stage("lwt", layer, first, settings.rate) for layer in range(1, hidden_layers + 1)]
    return [*layerwise, Stage("ft", 0, second, settings.fine_tuning_rate)]


def fit(
    net: Network,
    x: Any,
    y: Any,
    gamma: float = -2,
    epochs: tuple[int, int] | int = (15, 15),
    batch_size: int = 16,
    engine: EngineName = "auto",
    seed: int = 0,
    clip: float | None = 1000.0,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    solver: Solver = "layerwise",
    test: tuple[Any, Any] | None = None,
    sample_weight: Any = None,
    loss: Loss | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    optimizer: MakeOptimizer | None = None,
    progress: bool | Reporter = False,
    fine_tuning_shift: float = 4,
    threshold: float = 1e-4,
) -> History:
    """Train a network as the paper does, from the parameters that it has.

    **Arguments:**

    - `net`: the network; its parameters are trained in place.
    - `x`: (samples, in_features), finite numbers.
    - `y`: labels, (samples,) whole numbers; or targets, (samples, out).
    - `gamma`: the learning rate is 2^γ; 2^(γ-4) for fine-tuning.
    - `epochs`: for each hidden layer, and for fine-tuning, at most. `solver="joint"` does the first number.
    - `batch_size`: of the mini-batches; a short last one is kept. Gradients are means over it.
    - `engine`: `"compiled"` (CPU, plain SGD), `"torch"` (any optimiser and device), or `"auto"`.
    - `seed`: of all random streams: the orders of samples and the fresh output layers. To draw the hidden
        layers from it too, call [`ftnn.training.initialise`][] first.
    - `clip`: the largest allowed size of each parameter's gradient summed over the mini-batch.
    - `checkpoint`: a file to keep the run in. If it is there, the run goes on from it.
    - `callbacks`: called after each epoch with its record and the network; True ends the stage.
    - `solver`: `"layerwise"`: each hidden layer under a fresh output layer, those below frozen; then
        fine-tuning of everything (Newbob+/Train). `"joint"`: everything at once.
    - `test`: (x, y) to measure on after each epoch. Nothing is chosen by it.
    - `sample_weight`: (samples,).
    - `loss`: `"softmax"` or `"squared"`; by default the former for whole-numbered labels.
    - `momentum`, `weight_decay`: of the SGD. `optimizer`: makes another optimiser from parameters.
    - `progress`: whether to tell how it goes.

    Returns the history. Failure is a result, not an error: see `history.failed` and `history.advice`.
    """
    pair = (epochs, epochs) if isinstance(epochs, int) else (int(epochs[0]), int(epochs[1]))
    settings = Settings(
        gamma, pair, batch_size, seed, clip, solver, momentum, weight_decay, fine_tuning_shift, threshold
    )
    dtype = str(net.output.weight.dtype).removeprefix("torch.")
    problem = make_problem(
        x,
        y,
        inputs=net.in_features,
        outputs=net.out_features,
        dtype=dtype,
        loss=loss,
        weights=sample_weight,
        test=test,
    )
    name = _engines.choose(engine, net, settings, optimizer)
    path = None if checkpoint is None else Path(checkpoint)
    configuration = _configuration(net, problem, settings, name) if path is not None else ""
    run = _Run(net, problem, settings, name, optimizer, Checkpoint(path, configuration), tuple(callbacks))
    total = sum(stage.epochs for stage in run.stages)
    with reporter(progress, total) as told:
        try:
            return run.all(told)
        except KeyboardInterrupt:
            run.checkpoint.flush()
            raise


def _configuration(net: Network, problem: Problem, settings: Settings, engine: str) -> str:
    """What must be the same for a run to go on: settings, network, data, and the parameters it began with."""
    parts = json.dumps([asdict(settings), engine, describe(net)], sort_keys=True)
    return hashlib.sha256(f"{parts}{problem.digest()}{digest(net)}".encode()).hexdigest()


def digest(module: nn.Module) -> str:
    """The SHA-256 of a module's parameters and constants."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        total.update(f"{name} {array.dtype} {tuple(array.shape)} ".encode())
        total.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class _FailedError(Exception):
    """Carries why training ended."""

    def __init__(self, reason: str, advice: str):
        super().__init__(reason)
        self.reason, self.advice = reason, advice


class _Run:
    """A run of `fit`, step by step."""

    def __init__(
        self,
        net: Network,
        problem: Problem,
        settings: Settings,
        engine: str,
        optimizer: MakeOptimizer | None,
        checkpoint: Checkpoint,
        callbacks: tuple[Callback, ...],
    ):
        self.net, self.problem, self.settings = net, problem, settings
        self.engine, self.optimizer = engine, optimizer
        self.checkpoint, self.callbacks = checkpoint, callbacks
        self.stages = stages(settings, len(net.layers))
        self.state = State(history=History(engine=engine))

    def all(self, told: Reporter) -> History:
        found = self.checkpoint.load()
        if found is not None:
            self.state = found
            self._load_net(found.net)
            if found.position.finished:
                return found.history
        history = self.state.history
        try:
            problem = self.problem
            for number, stage in enumerate(self.stages):
                here = self.problem if stage.name == "ft" else problem
                done = number < self.state.position.stage
                if done and stage.name != "lwt":
                    continue
                engine, head = self._set_up(stage, here)
                if not done:
                    self._stage(number, stage, engine, head, here, told)
                if stage.name == "lwt" and stage.layer < len(self.net.layers):
                    problem = here.below(engine.hidden(here.x), _map(engine.hidden, here.test_x))
            self._judge(history)
        except _FailedError as failure:
            history.failed, history.advice = failure.reason, failure.advice
        self._keep(replace(self.state.position, finished=True), {}, now=True)
        return history

    # --- setting up ---

    def _set_up(self, stage: Stage, problem: Problem) -> tuple[Engine, nn.Linear]:
        """The engine of a stage, and the output layer it trains."""
        layers = self.net.layers if stage.layer == 0 else self.net.layers[stage.layer - 1 : stage.layer]
        head = self.net.output if stage.layer == 0 else self._fresh_head(stage.layer)
        made = _engines.make_engine(
            self.engine, layers, head, self.net.activation, problem, self.settings, self.optimizer
        )
        return made, head

    def _fresh_head(self, layer: int) -> nn.Linear:
        """A new output layer for a hidden one, drawn by seed."""
        like = self.net.output.weight
        head = nn.Linear(self.net.layers[layer - 1].out_features, self.net.out_features, dtype=like.dtype)
        reset_linear(head, torch_generator(self.settings.seed, Purpose.output, layer - 1))
        return head.to(like.device)

    # --- a stage ---

    def _stage(
        self, number: int, stage: Stage, engine: Engine, head: nn.Linear, problem: Problem, told: Reporter
    ) -> None:
        position = self.state.position
        if position.stage != number:
            position = Position(stage=number, loss=position.loss)
        elif self.state.engine:
            engine.restore(self.state.engine)
        rate = stage.rate if position.rate is None else position.rate
        before_stage = self._net_arrays()
        last_loss = position.loss
        for epoch in range(position.epochs + 1, stage.epochs + 1):
            before = engine.snapshot()
            try:
                record = self._epoch(stage, engine, problem, epoch, rate, told)
            except _FailedError:
                engine.restore(before)
                self._write_back(stage, engine, head)
                raise
            ends = False
            if stage.name == "ft" and last_loss is not None:
                gain = last_loss - record.loss
                if gain < 0:
                    engine.restore(before)
                    record, ends = replace(record, undone=True), True
                elif gain < self.settings.threshold:
                    rate /= 2
            if not record.undone:
                last_loss = record.loss
            self.state.history.epochs.append(record)
            told.end(record)
            if self.callbacks:
                self._write_back(stage, engine, head)
                wishes = [callback(record, self.net) for callback in self.callbacks]  # all of them are called
                ends |= any(wishes)
            position = Position(number, epoch, rate, last_loss)
            if ends:
                break
            self.state = State(position, self.state.history, before_stage, engine.snapshot())
            self.checkpoint.keep(self.state, now=False)
        self._write_back(stage, engine, head)
        self._keep(Position(stage=number + 1, loss=last_loss), {}, now=True)

    def _write_back(self, stage: Stage, engine: Engine, head: nn.Linear) -> None:
        """Bring the network up to date."""
        engine.write_back()
        if stage.layer == len(self.net.layers) and stage.name == "lwt":
            # The last hidden layer's output layer stays as the network's.
            self.net.output.load_state_dict(head.state_dict())

    def _epoch(
        self,
        stage: Stage,
        engine: Engine,
        problem: Problem,
        epoch: int,
        rate: float,
        told: Reporter,
    ) -> Epoch:
        settings = self.settings
        steps = -(-len(problem.x) // settings.batch_size)
        told.begin(stage.name, stage.layer, epoch, stage.epochs, steps)
        samples = order(settings.seed, _PURPOSES[stage.name], stage.layer, epoch, len(problem.x))
        losses: list[Array] = []
        right = 0
        start = time.perf_counter()
        finite = True
        for chunk in engine.epoch(samples, rate):
            losses.append(chunk.losses)
            right += chunk.right
            finite = chunk.finite
            told.advance(len(chunk.losses), float(chunk.losses[-1]))
        seconds = time.perf_counter() - start
        if not finite or not all(np.isfinite(array).all() for array in engine.snapshot().values()):
            what = "a parameter" if finite else "the loss"
            where = (
                f"{_NAMES[stage.name]}{f', hidden layer {stage.layer}' if stage.layer else ''}, epoch {epoch}"
            )
            raise _FailedError(
                f"{what} was not finite in {where}", f"a smaller gamma: {settings.gamma - 1:g}"
            )
        accuracy = 100 * right / len(problem.x) if problem.loss == "softmax" else None
        loss = float(np.concatenate(losses).mean())
        tested = (None, None)
        if problem.test_x is not None and problem.test_y is not None:
            tested = measure(engine.outputs(problem.test_x), problem.test_y, problem.loss)
        return Epoch(stage.name, stage.layer, epoch, rate, loss, accuracy, *tested, seconds)

    # --- the end ---

    def _judge(self, history: History) -> None:
        """Mark a run that ends no better than chance, or than always answering the mean."""
        kept = [epoch for epoch in history.epochs if not epoch.undone]
        if not kept:
            return
        last = kept[-1]
        if self.problem.loss == "squared":
            untrained = loss_of_the_mean(self.problem)
            if untrained == 0 or last.loss <= untrained:
                return
            reason = f"the final loss, {last.loss:.4g}, is above {untrained:.4g}, that of the targets' mean"
        else:
            accuracy = last.train_accuracy if last.test_accuracy is None else last.test_accuracy
            classes = self.net.out_features
            if accuracy is None or accuracy > 100 * at_chance(classes):
                return
            untrained = math.log(max(classes, 2))
            reason = f"the final accuracy, {accuracy:.2f} %, is no better than chance"
        larger = f"a larger gamma: {self.settings.gamma + 1:g}, or the function's grounded()"
        smaller = f"a smaller gamma: {self.settings.gamma - 1:g}"
        raise _FailedError(reason, larger if last.loss < 1.05 * untrained else smaller)

    # --- keeping ---

    def _net_arrays(self) -> dict[str, Array]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.net.state_dict().items()}

    def _load_net(self, arrays: dict[str, Array]) -> None:
        self.net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})

    def _keep(self, position: Position, engine: dict[str, Array], *, now: bool) -> None:
        self.state = State(position, self.state.history, self._net_arrays(), engine)
        self.checkpoint.keep(self.state, now=now)


_NAMES: dict[StageName, str] = {"lwt": "layer-wise training", "ft": "fine-tuning", "joint": "joint training"}


def at_chance(classes: int) -> float:
    """The accuracy up to which a network counts as untrained: 0.2 for ten classes, 0.56 for two."""
    chance = 1 / max(classes, 1)
    return chance + (1 - chance) / 9


def loss_of_the_mean(problem: Problem) -> float:
    """The squared loss of an answer that is always the targets' mean."""
    y = problem.y.astype(np.float64)
    weights = np.ones(len(y)) if problem.weights is None else problem.weights.astype(np.float64)
    if not weights.any():
        return 0.0
    squares = (y - np.average(y, axis=0, weights=weights)) ** 2
    return float(0.5 * (weights @ squares).sum() / len(y))


def measure(outputs: Array, y: Array, loss: Loss) -> tuple[float | None, float]:
    """(accuracy in percent or None, mean loss) of a network's linear outputs, (samples, out)."""
    outputs = outputs.astype(np.float64)
    if loss == "squared":
        return None, float(0.5 * ((outputs - y) ** 2).sum(1).mean())
    with np.errstate(all="ignore"):
        shifted = outputs - outputs.max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    return 100 * int((outputs.argmax(1) == y).sum()) / len(y), float(losses.mean())


def _map(function: Callable[[Array], Array], x: Array | None) -> Array | None:
    return None if x is None else function(x)
