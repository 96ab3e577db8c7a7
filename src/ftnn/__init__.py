"""Networks in which every connection is a trainable function instead of a weight."""

from typing import TYPE_CHECKING

from ftnn import _process as _process  # before any kernel; see its docstring
from ftnn._lazy import attach
from ftnn.errors import FormulaError as FormulaError
from ftnn.errors import FtnnError as FtnnError
from ftnn.errors import ShapeError as ShapeError
from ftnn.formula import Function as Function
from ftnn.formula import Mixed as Mixed
from ftnn.formula import catalogue as catalogue

if TYPE_CHECKING:
    from ftnn import data as data
    from ftnn import estimators as estimators
    from ftnn import experiments as experiments
    from ftnn import inspect as inspect
    from ftnn import nn as nn
    from ftnn import training as training
    from ftnn._models import load as load
    from ftnn._models import save as save
    from ftnn.estimators import FTNNClassifier as FTNNClassifier
    from ftnn.estimators import FTNNRegressor as FTNNRegressor

__version__ = "0.2.0"

_PACKAGES = ("data", "estimators", "experiments", "inspect", "nn", "training")
__getattr__, __dir__ = attach(
    __name__,
    {
        **{name: name for name in _PACKAGES},
        "FTNNClassifier": "estimators",
        "FTNNRegressor": "estimators",
        "load": "_models",
        "save": "_models",
    },
)
