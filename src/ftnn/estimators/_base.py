"""The common base of the classifier and the regressor."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ftnn.data._scaling import InputScaler
from ftnn.estimators._forward import forward
from ftnn.estimators._parameters import (
    DTYPES,
    AnyFunction,
    check_parameters,
    settings_for,
    settings_of,
    value_errors,
)
from ftnn.estimators._samples import Array, Samples, checked
from ftnn.estimators._scaling import fitted
from ftnn.estimators._stopping import Stopping
from ftnn.nn import Network
from ftnn.training import Epoch, History, initialise
from ftnn.training import fit as train
from ftnn.training._diagnosis import cause_in
from ftnn.training._engine import EngineName
from ftnn.training._losses import loss_for
from ftnn.training._outcome import require_finite
from ftnn.training._problem import Loss
from ftnn.training._rules import Rule
from ftnn.training._schedules import HALVING, Schedule
from ftnn.training._settings import SECOND_ORDER, Settings, Solver

_PIECE = 4096
"""The number of samples predicted at once."""
NOT_AT_THE_MINIMUM = (
    "no standard errors: they are valid only at the minimum of the training loss, and early_stopping=True "
    "kept earlier parameters"
)


class Estimator(BaseEstimator):
    """A network of functions as a scikit-learn estimator: the part that does not depend on the task.

    **Arguments:**

    - `function`: the function on the connections of the hidden layers: a catalogue name, a formula, a
        [`ftnn.Function`][], [`ftnn.Mixed`][], or a list with one for each hidden layer.
    - `hidden_layer_sizes`: the width of each hidden layer; a number for one layer.
    - `activation`: `"logistic"`, `"relu"`, `"tanh"` or a formula in x: one, or a list with one for each
        hidden layer.
    - `standardise`: whether inputs are standardised, each feature to mean 0 and variance 1 over the training
        samples and their weights, and limited to ±5, so that outliers do not dominate. With False, features
        should already be of about unit size. Targets of a regressor are standardised in any case; predictions
        are in their own units.
    - `gamma`: The learning rate is 2^γ; for fine-tuning, 2^(γ-4). Implies the layerwise solver. -4 by
        default, unless the solver is direct. If training fails, a warning says what to try: wide layers need
        smaller steps, few samples and slow functions larger ones.
    - `solver`: direct: all layers at once. layerwise: one hidden layer after the other, then fine-tuning of
        all. joint: all at once, by plain SGD. lm: Levenberg-Marquardt, for networks of up to a few thousand
        parameters. lbfgs: L-BFGS, for larger ones. Direct by default, unless gamma is given.
    - `loss`: what is minimised. For a regressor `"squared"` (the default), `"absolute"`, `"huber"` or a
        formula in an output `y` and its target `t`, both standardised. For a classifier `"softmax"`.
    - `optimizer`: The update rule: adam, adamw, momentum, nesterov, rmsprop or sgd. Or a
        [`ftnn.training.Rule`][]. AdamW by default for the direct solver, else SGD.
    - `learning_rate`: The largest learning rate, instead of gamma. By default, for the direct solver: 0.01,
        or 0.003 for functions that training easily takes to a pole, such as a tangent.
    - `schedule`: How the learning rate changes: constant, cosine, halving, one-cycle, warm-up or warm-up
        cosine.
    - `epochs`: by default, as many as make 1,000 steps, and at least 10. For `solver="layerwise"`, the
        maximum for each hidden layer, for `"joint"` in total: 100 by default. lm and lbfgs count iterations:
        200 by default, and fewer if they converge.
    - `fine_tuning_epochs`: the maximum; fine-tuning also ends when the loss grows.
    - `batch_size`: Samples in a mini-batch; the last may be short. By default, 16 to 64 for the direct
        solver, with about 25 mini-batches an epoch if that is possible; for the others, 16.
    - `clip`: The largest size of each parameter's gradient, summed over the mini-batch; None: no limit.
    - `momentum`: The momentum of SGD.
    - `weight_decay`: The weight decay. 0.3 by default for the direct solver with AdamW, else 0.
    - `clip_norm`: The largest norm of all gradients together, means over the mini-batch; inf: no limit. 1 by
        default for the direct solver; no limit for the others.
    - `normalise`: Whether hidden layers train with normalised sums, which end up in their parameters; only
        for the direct solver. True by default for it, except with mini-batches of two or three samples.
    - `calibrate`: Whether a network that is as it was drawn is first drawn again from ranges that suit the
        data; not for layerwise and joint.
    - `starts`: How many starts lm and lbfgs try at once; half of them end after 10, 20, 40 … iterations. 4 by
        default.
    - `bounds`: The bounds of parameters by name, such as {'q': (0, None)}; only for lm.
    - `engine`: `"compiled"`, `"torch"`, or `"auto"` for the fastest one that supports the settings.
    - `early_stopping`: whether to hold out samples for validation and restore the parameters with the best
        score on them. A stage ends when the score no longer improves, as `n_iter_no_change` says.
    - `validation_fraction`: the fraction to hold out; of each class, if it has enough samples.
    - `n_iter_no_change`: a stage ends after this many epochs in a row that improve the loss (with
        `early_stopping`, the validation score) by no more than `tol`; not before the loss has begun to fall.
        Only with a constant or halving schedule: others, such as the direct solver's, are followed to their
        end, where the learning rate is small and the loss falls once more.
    - `random_state`: a number for reproducible results, which do not depend on the order of the samples.
    - `verbose`: whether to print progress on standard error.
    - `dtype`: `"float32"` or `"float64"`, for parameters and training. Predictions are float64 and finite: if
        the network's outputs are not finite, a `DataError` is raised.

    **Attributes** after fitting:

    - `network_`: the trained [`ftnn.nn.Network`][]. It takes standardised inputs, and a regressor's gives
        standardised targets: `network_(torch.tensor(scaler_.transform(X), dtype=torch.float32))`. To save
        both in one file, use [`ftnn.save`][] with the estimator.
    - `scaler_`: the `StandardScaler` of the inputs, whose `transform` also limits them to ±5; None if inputs
        are not standardised.
    - `history_`: the [`ftnn.training.History`][]. If training failed, its `failed` says why, and there is a
        `ConvergenceWarning`, as there is if lm or lbfgs did not converge. Its `notes` say if standard errors
        cannot be trusted.
    - `n_features_in_`, `feature_names_in_`: as in all scikit-learn estimators.
    - `n_iter_`: the number of epochs over all stages. `loss_curve_`: the loss of each epoch that was not
        undone; `loss_`: the last of them. Losses of a regressor are those of standardised targets.
    - `validation_scores_`, `best_validation_score_`: None without `early_stopping`.
    """

    network_: Network
    scaler_: Any
    history_: History
    n_features_in_: int
    n_iter_: int
    loss_: float
    loss_curve_: list[float]
    validation_scores_: list[float] | None
    best_validation_score_: float | None

    def __init__(
        self,
        *,
        function: AnyFunction | Sequence[AnyFunction] = "F16",
        hidden_layer_sizes: int | Sequence[int] = (200,),
        activation: str | Sequence[str] = "relu",
        standardise: bool = True,
        gamma: float | None = None,
        solver: Solver | None = None,
        loss: Loss | None = None,
        optimizer: str | Rule | None = None,
        learning_rate: float | None = None,
        schedule: Schedule | None = None,
        epochs: int | None = None,
        fine_tuning_epochs: int = 15,
        batch_size: int | None = None,
        clip: float | None = 1000.0,
        momentum: float = 0.0,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        normalise: bool | None = None,
        calibrate: bool | None = None,
        starts: int | None = None,
        bounds: Mapping[str, tuple[float | None, float | None]] | None = None,
        engine: EngineName = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        dtype: Literal["float32", "float64"] = "float32",
    ):
        self.function = function
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.standardise = standardise
        self.gamma = gamma
        self.solver: Solver | None = solver
        self.loss = loss
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.epochs = epochs
        self.fine_tuning_epochs = fine_tuning_epochs
        self.batch_size = batch_size
        self.clip = clip
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.normalise = normalise
        self.calibrate = calibrate
        self.starts = starts
        self.bounds = bounds
        self.engine: EngineName = engine
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.dtype: Literal["float32", "float64"] = dtype

    # --- defined by the task ---

    _has_classes: bool

    def _validation_score(self, epoch: Epoch) -> float:
        """The score of an epoch on the validation samples: larger is better."""
        raise NotImplementedError

    def _check(self) -> None:
        """Refuse invalid parameters."""
        check_parameters(self.get_params(deep=False))
        _ = self._loss

    @property
    def _loss(self) -> Loss:
        with value_errors():
            return loss_for(self.loss, classes=self._has_classes)

    # --- training ---

    def _learn(self, samples: Samples, outputs: int) -> Self:
        """Train a new network on these samples."""
        self._start(samples, outputs)
        samples, validation = self._standardised(samples).in_order(), None
        if self.early_stopping:
            samples, validation = samples.split(
                self.validation_fraction, self._seed, by_class=self._has_classes
            )
            validation = validation.expanded()
        settings = Settings(**settings_of(self.get_params(deep=False), 1))
        ends_early = settings.solver not in SECOND_ORDER and settings.schedule in (None, "constant", HALVING)
        stopping = Stopping(
            (lambda epoch: -epoch.loss) if validation is None else self._validation_score,
            self.tol,
            # Ending early would cut off the part of a schedule in which the rate falls, or the last digits.
            self.n_iter_no_change if ends_early else inf,
            keep_best=validation is not None,
        )
        self.history_ = self._train(
            samples.expanded(),
            self._seed,
            test=None if validation is None else (validation.x, validation.y),
            callbacks=(stopping,),
        )
        if validation is not None:
            if stopping.restore_best(self.network_) and self.history_.covariance is not None:
                self.history_.covariance = None
                self.history_.notes = [NOT_AT_THE_MINIMUM]
            self.validation_scores_ = stopping.scores
            self.best_validation_score_ = max(stopping.scores, default=None)
        return self._finish(self.history_.failed is not None, is_new=True)

    def _learn_more(self, samples: Samples, outputs: int) -> Self:
        """Train all layers together for one epoch, from the current parameters if there are any."""
        if not hasattr(self, "network_"):
            self._start(samples, outputs)
        history = self.history_
        # Each call has a different order of samples.
        seed = int(np.random.SeedSequence([self._seed, len(history.epochs)]).generate_state(1)[0])
        more = dict.fromkeys(("normalise", "calibrate", "starts", "bounds"))
        more |= {"solver": "joint", "epochs": 1}
        new = self._train(self._standardised(samples).in_order().expanded(), seed, more)
        diverged = not new.epochs  # one epoch is too early to compare with chance
        history.engine = new.engine
        history.epochs += [replace(epoch, epoch=len(history.epochs) + 1) for epoch in new.epochs]
        history.failed, history.advice = (new.failed, new.advice) if diverged else (None, None)
        return self._finish(diverged)

    def _start(self, samples: Samples, outputs: int) -> None:
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.scaler_ = fitted(InputScaler(), samples.x, samples.weights) if self.standardise else None
        self.network_ = self._make_network(outputs)
        self.history_ = History()
        self.validation_scores_ = self.best_validation_score_ = None

    def _finish(self, failed: bool, *, is_new: bool = False) -> Self:
        history = self.history_
        self.n_iter_ = len(history.epochs)
        self.loss_curve_ = [epoch.loss for epoch in history.epochs if not epoch.undone]
        self.loss_ = self.loss_curve_[-1] if self.loss_curve_ else float("nan")
        problem = None
        if failed:
            scaling = "; or standardise=True" if self.scaler_ is None else ""
            problem = f"{history.failed}. Try {history.advice}{scaling}. "
            problem += "Predictions use the last finite parameters."
        elif history.converged is False and is_new and not self.early_stopping:
            count = self.n_iter_
            errors = "" if history.covariance is None else ", and standard errors cannot be trusted"
            problem = (
                f"solver={self.solver!r} did not converge in {count} iteration{'s'[: count != 1]}, so the "
                f"loss may still fall{errors}. Try more epochs, such as {4 * count}."
            )
        if problem is not None:
            # Where fit was called.
            warnings.warn(f"{type(self).__name__}: {problem}", ConvergenceWarning, stacklevel=4)
        return self

    def _train(
        self, samples: Samples, seed: int, others: Mapping[str, Any] | None = None, **arguments: Any
    ) -> History:
        """Call `ftnn.training.fit` with this estimator's parameters, `others` instead, and `arguments`."""
        unweighted = bool((samples.weights == 1).all())
        parameters = self.get_params(deep=False)
        settings = settings_for(parameters, len(samples), self.network_, **(others or {}))
        settings["epochs"] = (settings["epochs"], self.fine_tuning_epochs)
        with value_errors(), torch.random.fork_rng(devices=()):
            return train(
                self.network_,
                samples.x,
                samples.y,
                engine=self.engine,
                sample_weight=None if unweighted else samples.weights,
                loss=self._loss,
                progress=bool(self.verbose),
                seed=seed,
                **settings,
                **arguments,
            )

    def _make_network(self, outputs: int) -> Network:
        sizes = self.hidden_layer_sizes
        sizes = sizes if isinstance(sizes, Sequence | np.ndarray) else [sizes]
        with value_errors(), torch.random.fork_rng(devices=()):  # leave torch's random numbers unchanged
            network = Network(
                self.n_features_in_, sizes, outputs, self.function, self.activation, dtype=DTYPES[self.dtype]
            )
        initialise(network, self._seed)
        return network

    # --- inputs ---

    def _input_dtype(self, *, new: bool) -> str:
        """What inputs of a new or a trained network are checked as.

        Before they are standardised, float32 might lose what distinguishes them.
        """
        standardises = self.standardise if new else self.scaler_ is not None
        return "float64" if standardises else self.dtype

    def _standardised(self, samples: Samples) -> Samples:
        return replace(samples, x=self._as_network_input(samples.x, self.dtype))

    def _as_network_input(self, x: Array, dtype: str) -> Array:
        """What the network sees of inputs, (samples, features), in its dtype."""
        return x if self.scaler_ is None else np.ascontiguousarray(self.scaler_.transform(x), dtype)

    # --- predicting ---

    def _outputs(self, X: Any) -> Tensor:
        """The network's outputs, (samples, outputs) float64. Raises `DataError` if any is not finite."""
        check_is_fitted(self, "network_")
        like = self.network_.output.weight
        dtype = next(name for name, dtype in DTYPES.items() if dtype == like.dtype)
        x = checked(self, X, reset=False, dtype=dtype if self.scaler_ is None else "float64")
        x = self._as_network_input(x, dtype)
        with torch.no_grad():
            pieces = [
                forward(self.network_, torch.tensor(x[n : n + _PIECE], device=like.device)).cpu()
                for n in range(0, len(x), _PIECE)
            ]
        return require_finite(
            torch.cat(pieces),
            f"this {type(self).__name__}",
            lambda: cause_in(self.network_, x),
        )
