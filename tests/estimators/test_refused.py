# scikit-learn has no types, and what stubs there are refuse what it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportUnknownLambdaType=false
"""Invalid input."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.errors import DataError, FtnnError
from tests.estimators.quick import classifier, ignore_chance, parameters_of, regressor

X = np.random.default_rng(0).normal(size=(20, 3))
Y = (X[:, 0] > 0).astype(int)
NAN = np.where(np.arange(3) == 1, np.nan, X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": "F99"}, "'F99' is neither a catalogue name"),
        ({"function": "p*foo(x)"}, "foo"),
        ({"function": 3}, "function=3 must be a catalogue name"),
        ({"function": ["F01", None]}, r"function=\['F01', None\] must be"),
        (
            {"function": ["F01", "F02"]},
            "function has length 2; expected one function, or a sequence of length 1",
        ),
        ({"function": "memory"}, "Memory"),
        ({"hidden_layer_sizes": 0}, "hidden_layer_sizes=0 must be the width of each hidden layer"),
        ({"hidden_layer_sizes": (10, -1)}, r"hidden_layer_sizes=\(10, -1\)"),
        ({"hidden_layer_sizes": "10"}, "hidden_layer_sizes='10'"),
        ({"hidden_layer_sizes": 2.5}, "hidden_layer_sizes=2.5"),
        ({"hidden_layer_sizes": True}, "hidden_layer_sizes=True"),
        ({"activation": "gelu"}, "unknown activation 'gelu'; expected one of logistic, relu, tanh"),
        ({"activation": None}, "expected an activation, such as .* got None"),
        ({"solver": "adam"}, "solver='adam' is unknown; expected one of direct, layerwise, joint"),
        ({"engine": "gpu"}, "engine='gpu'"),
        ({"optimizer": "lion"}, "optimizer='lion' is unknown; expected one of sgd, momentum"),
        ({"loss": "cubic"}, "unknown loss 'cubic'; expected one of"),
        ({"loss": "(y - s)**2"}, "a loss is a formula in y and t; 's' is unknown"),
        ({"loss": "logistic"}, "loss='logistic' is for"),
        ({"loss": 3}, "expected a loss, such as"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"gamma": float("nan")}, "gamma=nan"),
        ({"gamma": 1e9}, "gamma=1000000000.0 gives a learning rate .* too large"),
        ({"gamma": "auto"}, "gamma='auto' must be a finite number"),
        ({"epochs": 0}, "epochs=0 must be a whole number of 1 or more"),
        ({"epochs": 2.5}, "epochs=2.5 must be a whole number"),
        ({"epochs": True}, "epochs=True"),
        ({"fine_tuning_epochs": -1}, "fine_tuning_epochs=-1 must be a whole number of 0 or more"),
        ({"batch_size": 0}, "batch_size=0 must be a whole number of 1 or more"),
        ({"clip": 0}, "clip=0 must be a number above 0"),
        ({"momentum": 1}, "momentum=1 must be a number of 0 or more and below 1"),
        ({"weight_decay": -1}, "weight_decay=-1 must be a finite number of 0 or more"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 must be a number above 0 and below 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0"),
        ({"tol": -1}, "tol=-1"),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
    ],
)
def test_invalid_parameters_are_refused_by_name_when_fitting(settings: Any, message: str):
    for model in (FTNNClassifier(**settings), FTNNRegressor(**settings)):
        assert model.get_params()[next(iter(settings))] is next(iter(settings.values()))  # and not before
        for learn in (
            model.fit,
            lambda x, y, model=model: model.partial_fit(x, y, **CLASSES.get(type(model), {})),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                learn(X, Y)


def test_losses_that_do_not_suit_the_targets_are_refused():
    with pytest.raises(
        ValueError, match="loss='huber' is for numbers, but the targets are classes: expected"
    ):
        FTNNClassifier(loss="huber").fit(X, Y)
    with pytest.raises(ValueError, match="loss='softmax' is for classes, but the targets are standardised"):
        FTNNRegressor(loss="softmax").fit(X, X[:, 0])


CLASSES: dict[Any, Any] = {FTNNClassifier: {"classes": [0, 1]}}


def test_parameter_errors_are_ftnn_errors_and_value_errors():
    with pytest.raises(FtnnError) as error:
        FTNNClassifier(solver="adam").fit(X, Y)
    assert isinstance(error.value, ValueError)


@ignore_chance  # in so few steps
def test_parameters_may_be_numpy_numbers():
    settings = {
        "hidden_layer_sizes": np.array([4, 3]),
        "epochs": np.int64(2),
        "gamma": np.float32(-2),
        "clip": None,
    }
    model = FTNNClassifier(**settings, batch_size=np.int32(7), random_state=np.int64(3)).fit(X, Y)
    assert [layer.out_features for layer in model.network_.layers] == [4, 3]
    assert classifier(hidden_layer_sizes=5).fit(X, Y).network_.layers[0].out_features == 5


@pytest.mark.parametrize(
    ("x", "y", "weights", "message"),
    [
        (NAN, Y, None, "Input X contains NaN"),
        (X * np.inf, Y, None, "Input X contains"),
        (X * 1e160, Y, None, "numbers as large as .* cannot be standardised"),
        (X, np.where(Y, np.nan, 0), None, "Input y contains NaN"),
        (X, Y[:-1], None, "inconsistent numbers of samples"),
        (X[:0], Y[:0], None, r"0 sample\(s\)"),
        (X[:, :0], Y, None, r"0 feature\(s\)"),
        (X[:, 0], Y, None, "Expected 2D array"),
        ([["a", "b"]] * 20, Y, None, "could not convert string to float"),
        (X, Y, np.ones(19), "sample_weight has 19 numbers for 20 samples"),
        (X, Y, np.ones((20, 2)), r"sample_weight must have one number per sample; its shape is \(20, 2\)"),
        (X, Y, -np.ones(20), "sample_weight must be 0 or more; got -1"),
        (X, Y, np.zeros(20), "sample_weight is zero for all samples"),
        (X, Y, np.full(20, np.nan), "Input sample_weight contains NaN"),
    ],
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_invalid_data_are_refused_by_name(make: Any, x: Any, y: Any, weights: Any, message: str):
    with pytest.raises(ValueError, match=message):
        make().fit(x, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), r"only one class, .*0\.0.*needs at least 2 classes"),
        (["a"] * 20, "only one class, .*'a'"),
        (np.linspace(0, 1, 20), "Unknown label type: continuous"),
        (np.eye(2)[Y], "y should be a 1d array"),
        ([1, "a"] * 10, "label"),
    ],
)
def test_invalid_labels_are_refused(y: Any, message: str):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, np.array(y, dtype=object) if isinstance(y, list) else y)


def test_invalid_targets_are_refused():
    with pytest.raises(ValueError, match="could not convert string to float"):
        regressor().fit(X, ["a"] * 20)
    model = regressor().partial_fit(X, np.ones((20, 2)))
    with pytest.raises(ValueError, match="y has 1 targets per sample, but had 2 before"):
        model.partial_fit(X, Y)


def test_invalid_calls_of_partial_fit_are_refused():
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        classifier().partial_fit(X, Y)
    with pytest.raises(ValueError, match="only one class"):
        classifier().partial_fit(X, Y * 0, classes=[0])
    model = classifier().partial_fit(X, Y, classes=[0, 1])
    before = parameters_of(model)
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2\] differ from those of the first call, \[0 1\]"):
        model.partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"unseen labels: \[.*2"):
        model.partial_fit(X, Y * 2)
    with pytest.raises(ValueError, match="X has 2 features, but FTNNClassifier is expecting 3"):
        model.partial_fit(X[:, :2], Y)
    assert all(map(np.array_equal, before, parameters_of(model)))


def test_predicting_requires_the_features_of_training():
    for model in (classifier(), regressor()):
        with pytest.raises(NotFittedError):
            model.predict(X)
        model.fit(X, Y)
        with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features as input"):
            model.predict(X[:, :2])
        with pytest.raises(ValueError, match="Input X contains NaN"):
            model.predict(NAN)
        with pytest.raises(ValueError, match="Found array with 0 sample"):
            model.predict(X[:0])
    model = classifier()
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, Y * 0)
    with pytest.raises(NotFittedError):  # though the number of features is known
        model.predict(X)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_masked_entries_are_refused(make: Any):
    masked = np.ma.masked_array(X, X > 1)
    for x, y, weights in (
        (masked, Y, None),
        (X, np.ma.masked_array(Y, Y == 1), None),
        (X, Y, np.ma.masked_array(np.ones(20), Y == 1)),
    ):
        with pytest.raises(DataError, match="has masked entries"):
            make().fit(x, y, sample_weight=weights)
    with pytest.raises(DataError, match="X has masked entries"):
        make().fit(X, Y).predict(masked)
    make().fit(np.ma.masked_array(X), Y)  # nothing is masked


@pytest.mark.parametrize("make", [classifier, regressor])
def test_tensors_are_converted_or_refused(make: Any):
    model = make().fit(torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y))
    assert all(map(np.array_equal, parameters_of(model), parameters_of(make().fit(X, Y))))
    for x in (torch.ones(20, 3).to_sparse(), torch.ones(20, 3, device="meta"), torch.ones(20, 3).to_mkldnn()):
        with pytest.raises(DataError, match="X cannot be converted to an array of numbers"):
            make().fit(x, Y)


@pytest.mark.parametrize("value", ["no", None, np.ones(2), torch.ones(2), 0.5])
@pytest.mark.parametrize("name", ["early_stopping", "standardise", "verbose"])
def test_flags_must_be_true_or_false(name: str, value: Any):
    with pytest.raises(FtnnError, match=f"{name}=.* must be True or False"):
        FTNNClassifier(**{name: value}).fit(X, Y)
