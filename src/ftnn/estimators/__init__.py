"""Networks of functions as scikit-learn estimators."""

from ftnn.estimators._base import Estimator as Estimator
from ftnn.estimators._classifier import FTNNClassifier as FTNNClassifier
from ftnn.estimators._parameters import ParameterError as ParameterError
from ftnn.estimators._regressor import FTNNRegressor as FTNNRegressor
