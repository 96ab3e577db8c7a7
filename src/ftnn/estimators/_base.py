"""What the classifier and the regressor share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from ftnn.errors import FtnnError
from ftnn.estimators._samples import Array, Samples
from ftnn.estimators._stopping import Stopping
from ftnn.formula import Function, Mixed
from ftnn.nn import Activation, Network
from ftnn.training import Epoch, History, initialise
from ftnn.training import fit as train

AnyFunction = str | Function | Mixed

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "activation": ("logistic", "relu", "tanh"),
    "solver": ("layerwise", "joint"),
    "engine": ("auto", "compiled", "torch"),
    "dtype": tuple(_DTYPES),
}
_NUMBERS: dict[str, tuple[type, float | None, float | None, Literal["left", "right", "both", "neither"]]] = {
    "gamma": (Real, -1000, 1000, "both"),
    "epochs": (Integral, 1, None, "left"),
    "fine_tuning_epochs": (Integral, 0, None, "left"),
    "batch_size": (Integral, 1, None, "left"),
    "clip": (Real, 0, None, "neither"),
    "momentum": (Real, 0, 1, "left"),
    "weight_decay": (Real, 0, None, "left"),
    "validation_fraction": (Real, 0, 1, "neither"),
    "n_iter_no_change": (Integral, 1, None, "left"),
    "tol": (Real, 0, None, "left"),
}
_PIECE = 4096
"""Predictions are made for so many samples at once."""


class ParameterError(FtnnError, ValueError):
    """A parameter of an estimator that cannot be used."""


class Estimator(BaseEstimator):
    """A network of functions in the manner of scikit-learn: what does not depend on the task."""

    network_: Network
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
        function: AnyFunction | Sequence[AnyFunction] = "F07",
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: Activation = "logistic",
        gamma: float = 0,
        solver: Literal["layerwise", "joint"] = "layerwise",
        epochs: int = 15,
        fine_tuning_epochs: int = 15,
        batch_size: int = 16,
        clip: float | None = 1000.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        engine: Literal["auto", "compiled", "torch"] = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        dtype: Literal["float32", "float64"] = "float32",
    ):
        self.function = function
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation: Activation = activation
        self.gamma = gamma
        self.solver: Literal["layerwise", "joint"] = solver
        self.epochs = epochs
        self.fine_tuning_epochs = fine_tuning_epochs
        self.batch_size = batch_size
        self.clip = clip
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.engine: Literal["auto", "compiled", "torch"] = engine
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.dtype: Literal["float32", "float64"] = dtype

    # --- what the task says ---

    _loss: Literal["softmax", "squared"]

    def _validation_score(self, epoch: Epoch) -> float:
        """How good an epoch was on the samples kept for validation: the larger the better."""
        raise NotImplementedError

    # --- learning ---

    def _learn(self, samples: Samples, outputs: int) -> Self:
        """Train a new network on these samples."""
        seed = self._draw_seed()
        samples = samples.in_order()
        validation = None
        if self.early_stopping:
            samples, validation = samples.split(
                self.validation_fraction, seed, by_class=self._loss == "softmax"
            )
            validation = validation.expanded()
        self.network_ = self._make_network(outputs, seed)
        score = (lambda epoch: -epoch.loss) if validation is None else self._validation_score
        stopping = Stopping(score, self.tol, self.n_iter_no_change)
        self.history_ = self._train(
            samples.expanded(),
            seed,
            solver=self.solver,
            epochs=(int(self.epochs), int(self.fine_tuning_epochs)),
            test=None if validation is None else (validation.x, validation.y),
            callbacks=(stopping,),
        )
        self.validation_scores_ = self.best_validation_score_ = None
        if validation is not None:
            stopping.restore_best(self.network_)
            self.validation_scores_ = stopping.scores
            self.best_validation_score_ = max(stopping.scores, default=None)
        self._summarise()
        if self.history_.failed:
            self._warn(self.history_)
        return self

    def _learn_more(self, samples: Samples, outputs: int) -> Self:
        """One epoch of all layers together, from the present parameters; from new ones if there are none."""
        if not hasattr(self, "network_"):
            self._seed = self._draw_seed()
            self.network_ = self._make_network(outputs, self._seed)
            self.history_ = History()
            self.validation_scores_ = self.best_validation_score_ = None
        # Each call has its own order of samples.
        seed = int(np.random.SeedSequence([self._seed, len(self.history_.epochs)]).generate_state(1)[0])
        new = self._train(samples.in_order().expanded(), seed, solver="joint", epochs=(1, 0))
        number = len(self.history_.epochs) + 1
        self.history_.engine = new.engine
        self.history_.epochs += [replace(epoch, epoch=number) for epoch in new.epochs]
        diverged = not new.epochs  # one epoch is no reason to speak of chance
        self.history_.failed, self.history_.advice = (new.failed, new.advice) if diverged else (None, None)
        self._summarise()
        if diverged:
            self._warn(new)
        return self

    def _train(self, samples: Samples, seed: int, **settings: Any) -> History:
        alike = bool((samples.weights == 1).all())
        with _value_errors():
            return train(
                self.network_,
                samples.x,
                samples.y,
                gamma=float(self.gamma),
                batch_size=int(self.batch_size),
                engine=self.engine,
                seed=seed,
                clip=None if self.clip is None else float(self.clip),
                sample_weight=None if alike else samples.weights,
                loss=self._loss,
                momentum=float(self.momentum),
                weight_decay=float(self.weight_decay),
                progress=bool(self.verbose),
                **settings,
            )

    def _make_network(self, outputs: int, seed: int) -> Network:
        sizes = self.hidden_layer_sizes
        sizes = [sizes] if isinstance(sizes, Integral) else sizes
        with _value_errors(), torch.random.fork_rng(devices=()):  # torch's own random numbers stay as they are
            network = Network(
                self.n_features_in_, sizes, outputs, self.function, self.activation, dtype=_DTYPES[self.dtype]
            )
        initialise(network, seed)
        return network

    def _draw_seed(self) -> int:
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return self._seed

    def _summarise(self) -> None:
        kept = [epoch.loss for epoch in self.history_.epochs if not epoch.undone]
        self.n_iter_ = len(self.history_.epochs)
        self.loss_curve_ = kept
        self.loss_ = kept[-1] if kept else float("nan")

    def _warn(self, history: History) -> None:
        warnings.warn(
            f"{type(self).__name__}: {history.failed}. Try {history.advice}; and features of about unit size, by "
            "StandardScaler, say. Predictions are made with the last parameters that were finite.",
            ConvergenceWarning,
            stacklevel=4,
        )

    # --- predicting ---

    def _outputs(self, X: Any) -> Array:
        """What the network gives, (samples, outputs)."""
        check_is_fitted(self)
        like = self.network_.output.weight
        dtype = next(name for name, dtype in _DTYPES.items() if dtype == like.dtype)
        x = validate_data(self, X, reset=False, dtype=dtype, order="C")
        with torch.no_grad():
            pieces = [
                self.network_(torch.tensor(x[n : n + _PIECE], device=like.device)).cpu().numpy()
                for n in range(0, len(x), _PIECE)
            ]
        return np.concatenate(pieces)

    # --- checking ---

    def _check_parameters(self) -> None:
        """Refuses parameters that are not allowed, in scikit-learn's way: when fitting, not before."""
        for name, (kind, low, high, boundaries) in _NUMBERS.items():
            value = getattr(self, name)
            if name == "clip" and value is None:
                continue
            if isinstance(value, bool) or (isinstance(value, Real) and not np.isfinite(value)):
                raise ParameterError(f"{name}={value!r} is not allowed; it must be a finite number")
            check_scalar(value, name, kind, min_val=low, max_val=high, include_boundaries=boundaries)
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise ParameterError(f"{name}={value!r} is not known; allowed are {', '.join(allowed)}")


@contextmanager
def _value_errors() -> Iterator[None]:
    """What ftnn refuses is, for scikit-learn, a ValueError."""
    try:
        yield
    except FtnnError as error:
        if isinstance(error, ValueError | TypeError):
            raise
        raise ParameterError(str(error)) from error
