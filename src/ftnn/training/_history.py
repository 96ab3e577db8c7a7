"""The record of a run, as plain data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ftnn.training._json import from_json

Array = np.ndarray[Any, np.dtype[Any]]
StageName = Literal["lwt", "ft", "joint", "direct", "lm", "lbfgs"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch. Accuracies are in percent, and None if there is nothing to measure them on."""

    stage: StageName
    layer: int
    """The hidden layer that layer-wise training is at, from 1; 0 if all are trained."""
    epoch: int
    """From 1, in its stage and layer."""
    rate: float
    loss: float
    """The mean of the mini-batches' mean losses."""
    train_accuracy: float | None
    """The accuracy of the epoch's own predictions, each before its update."""
    test_accuracy: float | None
    test_loss: float | None
    seconds: float
    undone: bool = False
    """Whether fine-tuning undid this epoch: the loss grew, or never fell below its starting point."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the sequence. The accuracy is in percent."""

    epoch: int
    loss: float
    accuracy: float | None
    """The accuracy of the pass's own predictions, each before its update; None for squared errors."""
    seconds: float


@dataclass(frozen=True)
class Covariance:
    """The covariance of the trained parameters, as estimated from the residuals.

    It assumes independent residuals of equal variance (after weighting), a network that is nearly linear
    within the errors, and a minimum. `notes` says what is known to be wrong.
    """

    matrix: Array
    """(parameters, parameters), in the order of `names`. A parameter that the data do not determine has an
    infinite variance; one at a bound has NaN, as have entries that a connection of a mixed layer does not
    use."""
    names: tuple[str, ...]
    """Each parameter's name in `state_dict`, with its index: `"0.theta.p[0, 0]"`."""
    shapes: dict[str, tuple[int, ...]]
    """The shape of each tensor of parameters, by name, in order."""
    deviation: float
    """The standard deviation of the residuals, with one degree of freedom less for each parameter."""
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> dict[str, Array]:
        """The standard error of every parameter, by name, in the tensors' own shapes."""
        deviations = np.sqrt(np.diag(self.matrix))
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = np.split(deviations, ends[:-1])
        return {name: p.reshape(s) for (name, s), p in zip(self.shapes.items(), parts, strict=True)}

    def as_notes(self) -> dict[str, Any]:
        """The standard errors as JSON, for [`ftnn.save`][]'s `notes`, so that `ftnn inspect` shows them.

        None stands for no error, as at a bound, and "infinite" for a parameter that is not determined.
        """
        errors: list[Any] = []
        for variance in np.diag(self.matrix).tolist():
            known = None if math.isnan(variance) else math.sqrt(variance)
            errors.append("infinite" if known == math.inf else known)
        entries = dict(zip(self.names, errors, strict=True))
        return {
            "standard_errors": {"errors": entries, "deviation": self.deviation, "notes": list(self.notes)}
        }

    @property
    def correlation(self) -> Array:
        """(parameters, parameters), from -1 to 1."""
        deviations = np.sqrt(np.diag(self.matrix))
        with np.errstate(all="ignore"):
            return self.matrix / np.outer(deviations, deviations)


@dataclass
class History:
    """The epochs of a run, and how it ended."""

    epochs: list[Epoch] = field(default_factory=list)
    failed: str | None = None
    """Why the run failed; None if it did not."""
    advice: str | None = None
    """What to try instead."""
    engine: str = ""
    converged: bool | None = None
    """Whether a second-order solver reached a minimum; None for other solvers."""
    notes: list[str] = field(default_factory=list[str])
    """Cautions about the result."""
    covariance: Covariance | None = field(default=None, compare=False)
    """The covariance of the parameters, from `solver="lm"` with squared errors; not a part of the JSON."""

    @property
    def lwt_accuracy(self) -> float | None:
        """The test accuracy after the last epoch of layer-wise (or joint) training."""
        return self._last("lwt", "joint")

    @property
    def ft_accuracy(self) -> float | None:
        """The network's final test accuracy: after the last epoch that fine-tuning did not undo."""
        return self._last("lwt", "joint", "ft")

    def _last(self, *stages: str) -> float | None:
        accuracies = [e.test_accuracy for e in self.epochs if e.stage in stages and not e.undone]
        return accuracies[-1] if accuracies else None

    @property
    def accuracy(self) -> float | None:
        """The network's final test accuracy, however it was trained."""
        return self._last("lwt", "joint", "ft", "direct", "lm", "lbfgs")

    @property
    def loss(self) -> float | None:
        """The training loss of the last epoch that was not undone."""
        losses = [epoch.loss for epoch in self.epochs if not epoch.undone]
        return losses[-1] if losses else None

    @property
    def seconds(self) -> float:
        """The total time of all epochs."""
        return sum(epoch.seconds for epoch in self.epochs)

    def to_json(self) -> str:
        """The history as JSON, which `from_json` reads."""
        # Only what is there: histories of other solvers have neither of these.
        optional = {"converged": self.converged, "notes": self.notes}
        empty = [name for name, value in optional.items() if value in (None, [])]
        entries = asdict(replace(self, covariance=None))
        kept = {name: value for name, value in entries.items() if name not in ("covariance", *empty)}
        return json.dumps(kept, allow_nan=True)

    @classmethod
    def from_json(cls, text: str) -> History:
        """Read the output of `to_json`. Raises `DataError` for anything else."""
        return from_json(cls, text, "the history")


@dataclass
class SequenceHistory:
    """The passes of a run, and how it ended."""

    passes: list[Pass] = field(default_factory=list)
    failed: str | None = None
    advice: str | None = None
    engine: str = ""

    @property
    def accuracies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(passes,), in percent."""
        return np.array([p.accuracy for p in self.passes], dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
