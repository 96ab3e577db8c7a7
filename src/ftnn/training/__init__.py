"""Training: layer-wise, fine-tuned, resumable."""

from ftnn.training._checkpoint import CheckpointError as CheckpointError
from ftnn.training._fit import fit as fit
from ftnn.training._history import Epoch as Epoch
from ftnn.training._history import History as History
from ftnn.training._outcome import digest as digest
from ftnn.training._outcome import measure as measure
from ftnn.training._progress import Bars as Bars
from ftnn.training._progress import Lines as Lines
from ftnn.training._sequence import Pass as Pass
from ftnn.training._sequence import SequenceHistory as SequenceHistory
from ftnn.training._sequence import fit_sequence as fit_sequence
from ftnn.training._settings import Settings as Settings
from ftnn.training._streams import initialise as initialise
