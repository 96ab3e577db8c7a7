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
    from ftnn import inspect as inspect
    from ftnn.estimators import FTNNClassifier as FTNNClassifier
    from ftnn.estimators import FTNNRegressor as FTNNRegressor

__version__ = "0.1.0"

_ESTIMATORS = ("FTNNClassifier", "FTNNRegressor")
_LATER = ("estimators", "inspect", *_ESTIMATORS)  # loaded when first asked for: not all need them


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name in _ESTIMATORS:
        return getattr(importlib.import_module("ftnn.estimators"), name)
    return importlib.import_module(f"ftnn.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
