"""`fit` trains all layers at once or, as in the paper, layer by layer and then fine-tunes them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ftnn.errors import DataError, FtnnError
from ftnn.nn import Network
from ftnn.nn._descriptions import describe
from ftnn.nn._safetensors import as_path
from ftnn.training._chain import check_chain
from ftnn.training._checkpoint import Checkpoint, CheckpointError, Keeper
from ftnn.training._checks import callables, quoted
from ftnn.training._covariance import covariance_of
from ftnn.training._engine import EngineName
from ftnn.training._engine_choice import choose
from ftnn.training._history import History
from ftnn.training._normalised import calibrate_hidden, training_form
from ftnn.training._objective import rounding_of
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._outcome import digest
from ftnn.training._problem import Loss, Problem, problem_for
from ftnn.training._progress import Reporter, reporter
from ftnn.training._rules import Rule
from ftnn.training._run import Callback, Run
from ftnn.training._schedules import HALVING, Schedule
from ftnn.training._settings import SECOND_ORDER, Settings, Solver, without_meaning
from ftnn.training._start import defaults_for
from ftnn.training._stream import count_of, first_batch, rows


def fit(
    net: Network | nn.Sequential,
    x: Any,
    y: Any = None,
    gamma: float | None = None,
    epochs: tuple[int, int] | int | None = None,
    batch_size: int | None = None,
    engine: EngineName = "auto",
    seed: int = 0,
    clip: float | None = 1000.0,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    solver: Solver | None = None,
    optimizer: str | Rule | MakeOptimizer | None = None,
    learning_rate: float | None = None,
    schedule: Schedule | None = None,
    test: tuple[Any, Any] | None = None,
    sample_weight: Any = None,
    loss: Loss | None = None,
    momentum: float = 0.0,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    normalise: bool | None = None,
    calibrate: bool | None = None,
    starts: int | None = None,
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None,
    progress: bool | Reporter = False,
    fine_tuning_shift: float = 4,
    threshold: float = 1e-4,
) -> History:
    """Train a network from its current parameters.

    By default all layers learn at once, by AdamW with a one-cycle schedule and normalised sums. With `gamma`,
    the network is trained as in the paper: layer by layer, then fine-tuned.

    **Arguments:**

    - `net`: the network, or an `nn.Sequential`; its parameters are trained in place.
    - `x`: (samples, in_features), finite numbers; or, without `y`, a DataLoader or another iterable of
        mini-batches (x, y) or (x, y, weights), which is iterated once per epoch and decides their size and
        order.
    - `y`: labels, (samples,) whole numbers; or targets, (samples, out).
    - `gamma`: The learning rate is 2^γ; for fine-tuning, 2^(γ-4). Implies the layerwise solver.
    - `epochs`: For each hidden layer, and for fine-tuning at most; other solvers take the first number. A
        single number is both. (15, 15) by default, 10 for the direct solver. lm and lbfgs count iterations:
        200 by default, and fewer if they converge.
    - `batch_size`: Samples in a mini-batch; the last may be short. Gradients are means over it. 16 by
        default, 32 for the direct solver.
    - `engine`: `"compiled"` (CPU), `"torch"` (any optimizer and device), or `"auto"`.
    - `seed`: The seed of all random numbers: the orders of samples, the fresh output layers of layerwise,
        what modules such as dropout draw, and what `calibrate` and `starts` draw. To draw the whole network
        from it, call [`ftnn.training.initialise`][] first.
    - `clip`: The largest size of each parameter's gradient, summed over the mini-batch; None: no limit.
    - `checkpoint`: a file to save the run's progress in. If it exists, the run resumes from it, unless
        anything that affects the result has changed, such as the optimizer or its settings.
    - `callbacks`: called after each epoch with its record and the network; True ends the stage.
        Checkpoints do not record them: pass the same ones when you resume a run.
    - `solver`: direct: all layers at once. layerwise: one hidden layer after the other, then fine-tuning of
        all. joint: all at once, by plain SGD. lm: Levenberg-Marquardt, for networks of up to a few thousand
        parameters. lbfgs: L-BFGS, for larger ones. With layerwise, a hidden layer learns under a fresh output
        layer, with the layers below it frozen; fine-tuning is Newbob+/Train.
    - `optimizer`: The update rule: adam, adamw, momentum, nesterov, rmsprop or sgd. Or a
        [`ftnn.training.Rule`][] of your own, or a function that makes a torch optimizer from parameters.
    - `learning_rate`: The largest learning rate, instead of gamma. By default, for the direct
        solver: 0.02 with one layer of functions, 0.01 with up to 10, and 0.003 with more or for functions
        that training easily takes to a pole, such as a tangent, or that explode, such as an exponential.
    - `schedule`: How the learning rate changes: constant, cosine, halving, one-cycle, warm-up or warm-up
        cosine. Or a function that maps the progress of a stage, 0 to 1, to a share of the learning rate.
    - `test`: (x, y) to measure on after each epoch, which does not influence training. A sample whose
        outputs are not finite counts as wrong; if there is one at the end, the run has failed.
    - `sample_weight`: (samples,).
    - `loss`: `"softmax"` (the default for integer labels), `"squared"` (the default for other targets),
        `"absolute"`, `"huber"`, `"logistic"` (targets of 0 and 1), or a formula in an output `y` and its
        target `t`.
    - `momentum`: The momentum of SGD.
    - `weight_decay`: The weight decay. 0 by default, unless the direct solver meets functions that would
        explode, such as a tangent, or exponentials between ReLUs: 0.1, if you leave it the optimizer too.
    - `clip_norm`: The largest norm of all gradients together, means over the mini-batch; inf: no limit. 1 by
        default for the direct solver; no limit for the others.
    - `normalise`: Whether hidden layers train with normalised sums, which end up in their parameters; only
        for the direct solver. It does so by default, but not with mini-batches of two or three samples, over
        which they would be noise. During training, each hidden unit's sum has mean 0 and variance 1 over the
        mini-batch, then a trainable scale and bias. Afterwards all of this is folded into the layer's
        parameters and bias (added if there was none) or, where the function's parameters cannot take the
        scale, into `layer.scale`. The optimizer sees parameters of a copy of the network. An `nn.Sequential`
        is trained as it is if it has a normalisation of its own, or modules other than layers, activations
        and dropout.
    - `calibrate`: Whether a network that is as it was drawn is first drawn again from ranges that suit the
        data; not for layerwise and joint. The paper's ranges of catalogue functions count as not given.
    - `starts`: How many starts lm and lbfgs try at once; half of them end after 10, 20, 40 … iterations. The
        first has the network's parameters, unless they are as they were drawn; the others are drawn from
        ranges that suit the data. By default 4 for a network that is as it was drawn, else 1.
    - `bounds`: The bounds of parameters by name, such as {'q': (0, None)}; only for lm. A name from the
        formula stands for all of its entries in all layers; full names, as in `state_dict`, for one layer.
    - `progress`: whether to show progress.
    - `fine_tuning_shift`: Fine-tuning begins with the rate 2^(γ - this).
    - `threshold`: The halving schedule halves the rate when the loss improves by less than this.

    Returns the history. Failure is a result, not an error: see `history.failed` and `history.advice`.
    """
    make_optimizer: Any = optimizer if callable(optimizer) and not isinstance(optimizer, Rule) else None
    pair: Any = epochs  # `Settings` also takes a single number
    settings = Settings(
        gamma=gamma,
        epochs=pair,
        batch_size=batch_size,
        seed=seed,
        clip=clip,
        solver=solver,
        optimizer=None if make_optimizer is not None else optimizer,
        learning_rate=learning_rate,
        schedule=schedule,
        momentum=momentum,
        weight_decay=0.0 if weight_decay is None and make_optimizer else weight_decay,
        clip_norm=clip_norm,
        normalise=normalise,
        calibrate=calibrate,
        starts=starts,
        bounds=bounds,
        fine_tuning_shift=fine_tuning_shift,
        threshold=threshold,
    )
    for name in ("learning_rate", "weight_decay", "momentum"):
        if make_optimizer is not None and getattr(settings, name):
            raise FtnnError(
                f"{name}={quoted(getattr(settings, name))} has no effect on a torch optimizer; set it where "
                "the optimizer is made, such as optimizer=functools.partial(torch.optim.Adam, lr=0.01)"
            )
    batches = None
    if y is None:
        batches, (first_x, y, weights) = x, first_batch(x)
        x = rows(first_x)
        settings = _stream_settings(settings, batches, len(x), batch_size, sample_weight, checkpoint)
        sample_weight = weights
        settings = replace(settings, normalise=normalise)  # its default depends on the batch size
    problem = problem_for(net, (Network, nn.Sequential), x, y, loss=loss, weights=sample_weight, test=test)
    problem = replace(problem, batches=batches)
    if batches is None and problem.weights is not None and not problem.weights.any():
        raise DataError("sample_weight is zero for all samples; at least one weight must be above zero")
    check_chain(net)
    if settings.solver == "layerwise" and not isinstance(net, Network):
        raise FtnnError('solver="layerwise" trains an ftnn.nn.Network; for an nn.Sequential, use "direct"')
    path = None if checkpoint is None else as_path(checkpoint, CheckpointError)
    run = make_run(net, problem, settings, engine, make_optimizer, callables("callbacks", callbacks))
    if path is not None:
        run.checkpoint = Checkpoint(path, _identity(run), lambda: _identity_in_0_1(run))
    with reporter(progress, sum(stage.epochs for stage in run.stages)) as reports:
        try:
            history = run.through(None, reports)
        except KeyboardInterrupt:
            run.checkpoint.flush()
            raise
    if settings.solver == "lm" and history.epochs:
        objective = None if run.search is None else run.search.objective
        history.covariance, history.notes = covariance_of(
            net, problem, settings.bounds or {}, objective, converged=bool(history.converged)
        )
    if settings.solver in SECOND_ORDER and history.loss is not None:
        note = rounding_of(net, problem, history.loss)
        history.notes = history.notes if note is None else [*history.notes, note]
    return history


def make_run(
    net: Network | nn.Sequential,
    problem: Problem,
    settings: Settings,
    engine: EngineName = "auto",
    optimizer: MakeOptimizer | None = None,
    callbacks: tuple[Callback, ...] = (),
    keeper: Keeper | None = None,
    at_chance: float | None = None,
) -> Run:
    """A run of these settings, with the network drawn and normalised as they say.

    **Arguments:**

    - `optimizer`: what makes a torch optimizer, instead of the rule in the settings.
    - `keeper`: what keeps the run's state; None: nothing.
    - `at_chance`: see `Run`.
    """
    keeper = keeper or Checkpoint(None, {})
    if settings.solver in SECOND_ORDER:
        if optimizer is not None:
            raise FtnnError(without_meaning("optimizer", optimizer, settings.solver))
        if engine != "auto":
            raise FtnnError(
                f"engine={quoted(engine)} has no meaning for solver={quoted(settings.solver)}, which "
                "computes in float64 on the CPU"
            )
        return Run(net, problem, settings, settings.solver, None, keeper, callbacks)
    form = None
    if settings.normalise:
        form = training_form(net, problem.x, settings.seed if settings.calibrate else None)
    elif settings.calibrate:
        calibrate_hidden(net, problem.x, settings.seed)
    settings = settings.completed(lambda: defaults_for(net))
    size = min(settings.batch_size or 1, len(problem.x))
    name = choose(engine, net if form is None else form.module, optimizer, size)
    return Run(net, problem, settings, name, optimizer, keeper, callbacks, form, at_chance)


def _stream_settings(
    settings: Settings, batches: Any, size: int, batch_size: int | None, weights: Any, checkpoint: Any
) -> Settings:
    """The settings for an iterable of mini-batches; refuses those that need all samples at once."""
    uses = {
        "batch_size": batch_size is not None,
        "sample_weight": weights is not None,
        "checkpoint": checkpoint is not None,
        **{f'solver="{name}"': settings.solver == name for name in ("layerwise", *SECOND_ORDER)},
    }
    for name, is_used in uses.items():
        if is_used:
            instead = "mini-batches (x, y, weights)" if name == "sample_weight" else "arrays x and y"
            raise FtnnError(f"{name} cannot be used with an iterable of mini-batches; pass {instead} instead")
    if settings.schedule not in ("constant", HALVING) and count_of(batches) is None:
        raise FtnnError(
            f"schedule={settings.schedule!r} needs to know how many mini-batches there are; pass an iterable "
            'with a length, or use schedule="constant"'
        )
    return replace(settings, batch_size=size)


def _identity(run: Run) -> dict[str, Any]:
    """Everything that determines a run's result, except callbacks: a resumed run must match it."""
    settings = run.settings.describe()
    if run.settings.solver in SECOND_ORDER:
        del settings["epochs"]  # an iteration does not depend on how many follow
    return {
        **settings,
        "engine": run.engine,
        "optimizer": run.describe_optimizer(),
        "network": _describe(run.net),
        "first parameters": digest(run.net),
        "frozen": [name for name, p in run.net.named_parameters() if not p.requires_grad],
        **run.problem.identity(),
    }


def _describe(net: nn.Module) -> Any:
    try:
        return describe(net)
    except FtnnError:  # model files do not support every module that can be trained
        return str(net)


def _identity_in_0_1(run: Run) -> str:
    parts = json.dumps([run.settings.describe(), run.engine, _describe(run.net)], sort_keys=True)
    return hashlib.sha256(f"{parts}{run.problem.digest_in_0_1()}{digest(run.net)}".encode()).hexdigest()
