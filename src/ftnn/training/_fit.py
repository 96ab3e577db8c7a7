"""`fit`: layer-wise supervised training, then fine-tuning; or all layers at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ftnn.nn import Network
from ftnn.nn._descriptions import describe
from ftnn.nn._safetensors import as_path
from ftnn.training._checkpoint import Checkpoint, CheckpointError
from ftnn.training._checks import callables
from ftnn.training._engine import EngineName
from ftnn.training._engine_choice import choose
from ftnn.training._history import History
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._outcome import digest
from ftnn.training._problem import Loss, problem_for
from ftnn.training._progress import Reporter, reporter
from ftnn.training._run import Callback, Run
from ftnn.training._settings import Settings, Solver


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
    - `gamma`: The learning rate is 2^γ; for fine-tuning, 2^(γ-4).
    - `epochs`: For each hidden layer, and for fine-tuning at most; joint training takes the first number. A
        single number is both.
    - `batch_size`: Samples in a mini-batch; the last may be short. Gradients are means over it.
    - `engine`: `"compiled"` (CPU, plain SGD), `"torch"` (any optimiser and device), or `"auto"`.
    - `seed`: The seed of all random numbers: the orders of samples and the fresh output layers. To draw the
        hidden layers from it too, call [`ftnn.training.initialise`][] first.
    - `clip`: The largest size of each parameter's gradient, summed over the mini-batch; None: no limit.
    - `checkpoint`: a file to keep the run in. If it is there, the run goes on from it; it is refused where
        anything that decides the result differs, the optimizer and its settings among them.
    - `callbacks`: called after each epoch with its record and the network; True ends the stage. A checkpoint
        does not know them: give a resumed run the same ones.
    - `solver`: layerwise: one hidden layer after the other, then fine-tuning of all. joint: all at once.
        A hidden layer learns under a fresh output layer, those below it frozen; fine-tuning is Newbob+/Train.
    - `test`: (x, y) to measure on after each epoch. Nothing is chosen by it. A sample for which the outputs
        are not finite counts as wrong; if there is one at the end, the run has failed.
    - `sample_weight`: (samples,).
    - `loss`: `"softmax"` or `"squared"`; by default the former for whole-numbered labels.
    - `momentum`: The momentum of SGD.
    - `weight_decay`: The weight decay of SGD.
    - `optimizer`: makes another optimiser from parameters.
    - `progress`: whether to show how it goes.
    - `fine_tuning_shift`: Fine-tuning begins with the rate 2^(γ - this).
    - `threshold`: Fine-tuning halves its rate when the loss improves by less than this.

    Returns the history. Failure is a result, not an error: see `history.failed` and `history.advice`.
    """
    pair: Any = epochs  # a single number too, which `Settings` makes a pair
    settings = Settings(
        gamma, pair, batch_size, seed, clip, solver, momentum, weight_decay, fine_tuning_shift, threshold
    )
    problem = problem_for(net, Network, x, y, loss=loss, weights=sample_weight, test=test)
    path = None if checkpoint is None else as_path(checkpoint, CheckpointError)
    name = choose(engine, net, settings, optimizer)
    called = callables("callbacks", callbacks)
    run = Run(net, problem, settings, name, optimizer, Checkpoint(None, {}), called)
    if path is not None:
        run.checkpoint = Checkpoint(path, _identity(run), lambda: _identity_in_0_1(run))
    with reporter(progress, sum(stage.epochs for stage in run.stages)) as reports:
        try:
            return run.through(None, reports)
        except KeyboardInterrupt:
            run.checkpoint.flush()
            raise


def _identity(run: Run) -> dict[str, Any]:
    """What must be the same for a run to go on: all that decides its result, but for callbacks."""
    return {
        **asdict(run.settings),
        "engine": run.engine,
        "optimizer": run.describe_optimizer(),
        "network": describe(run.net),
        "first parameters": digest(run.net),
        "frozen": [name for name, p in run.net.named_parameters() if not p.requires_grad],
        **run.problem.identity(),
    }


def _identity_in_0_1(run: Run) -> str:
    parts = json.dumps([asdict(run.settings), run.engine, describe(run.net)], sort_keys=True)
    return hashlib.sha256(f"{parts}{run.problem.digest_in_0_1()}{digest(run.net)}".encode()).hexdigest()
