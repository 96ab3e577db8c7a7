"""Networks in which every connection is a trainable function instead of a weight."""

from typing import TYPE_CHECKING, Any

from ftnn import data as data
from ftnn import nn as nn
from ftnn import training as training
from ftnn.errors import FtnnError as FtnnError
from ftnn.formula import Function as Function
from ftnn.formula import Mixed as Mixed
from ftnn.formula import catalogue as catalogue
from ftnn.nn import load as load
from ftnn.nn import save as save

if TYPE_CHECKING:
    from ftnn import estimators as estimators
    from ftnn.estimators import FTNNClassifier as FTNNClassifier
    from ftnn.estimators import FTNNRegressor as FTNNRegressor

__version__ = "0.1.0"

_ESTIMATORS = ("FTNNClassifier", "FTNNRegressor")  # loaded when first asked for: they need scikit-learn


def __getattr__(name: str) -> Any:
    if name != "estimators" and name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    estimators = importlib.import_module("ftnn.estimators")
    return estimators if name == "estimators" else getattr(estimators, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ESTIMATORS, "estimators"})
