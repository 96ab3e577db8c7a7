"""Resumable training: direct, or layer-wise with fine-tuning."""

from typing import TYPE_CHECKING

from ftnn._lazy import attach

if TYPE_CHECKING:
    from ftnn.training._checkpoint import CheckpointError as CheckpointError
    from ftnn.training._fit import fit as fit
    from ftnn.training._history import Covariance as Covariance
    from ftnn.training._history import Epoch as Epoch
    from ftnn.training._history import History as History
    from ftnn.training._history import Pass as Pass
    from ftnn.training._history import SequenceHistory as SequenceHistory
    from ftnn.training._outcome import digest as digest
    from ftnn.training._outcome import measure as measure
    from ftnn.training._progress import Bars as Bars
    from ftnn.training._progress import Lines as Lines
    from ftnn.training._random import initialise as initialise
    from ftnn.training._rules import RULES as RULES
    from ftnn.training._rules import Rule as Rule
    from ftnn.training._sequence import fit_sequence as fit_sequence
    from ftnn.training._settings import Settings as Settings

__getattr__, __dir__ = attach(
    __name__,
    {
        "Bars": "_progress",
        "CheckpointError": "_checkpoint",
        "Covariance": "_history",
        "Epoch": "_history",
        "History": "_history",
        "Lines": "_progress",
        "Pass": "_history",
        "RULES": "_rules",
        "Rule": "_rules",
        "SequenceHistory": "_history",
        "Settings": "_settings",
        "digest": "_outcome",
        "fit": "_fit",
        "fit_sequence": "_sequence",
        "initialise": "_random",
        "measure": "_outcome",
    },
)
