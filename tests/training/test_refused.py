# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Invalid arguments raise an `FtnnError` that quotes them, before anything is trained."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

import ftnn
from ftnn.errors import DataError, DTypeError, FtnnError, ShapeError
from ftnn.nn import Memory, MemoryNetwork, Network, Transfer
from ftnn.training import digest, fit_sequence, initialise
from tests.training.problems import blobs, fit, network

X, Y = blobs(samples=20)
MASKED = np.ma.masked_array(X, np.arange(100).reshape(20, 5) == 7)
NOT_WHOLE: list[Any] = [
    "15",
    "",
    b"1",
    1.5,
    2.0,
    None,
    True,
    -1,
    np.nan,
    np.inf,
    1j,
    [],
    {},
    object(),
    np.True_,
]
NOT_REAL: list[Any] = ["1", None, True, np.nan, 1j, [], {}, object(), np.ones(2), torch.ones(2), np.ma.masked]


def refusal(**arguments: Any) -> pytest.ExceptionInfo[FtnnError]:
    net = arguments.setdefault("net", network("F03", (3,), dtype=torch.float32))
    before = digest(net) if isinstance(net, nn.Module) else ""
    with pytest.raises(FtnnError) as caught:
        fit(**dict[str, Any]({"x": X, "y": Y, "epochs": (1, 1), **arguments}))
    assert len(str(caught.value)) < 400
    if isinstance(net, nn.Module):
        assert digest(net) == before
    return caught


@pytest.mark.parametrize("name", ["batch_size", "seed", "epochs"])
@pytest.mark.parametrize("value", NOT_WHOLE)
def test_settings_that_must_be_whole_numbers_refuse_other_values(name: str, value: Any):
    if value is None and name != "seed":  # the solver's default
        return
    assert f"{name}=" in str(refusal(**{name: value}).value)


@pytest.mark.parametrize(
    "value",
    [(1,), (1, 2, 3), "15", ("1", "5"), (1.5, 2), (True, 1), (1, None), (1, -1), [[1, 2], [3]],
     np.ones((2, 2), int), np.array(3), {1, 2}],
)  # fmt: skip
def test_epochs_that_are_not_one_or_two_whole_numbers_are_refused(value: Any):
    assert "epochs=" in str(refusal(epochs=value).value)


@pytest.mark.parametrize(
    "name", ["gamma", "momentum", "weight_decay", "fine_tuning_shift", "threshold", "clip"]
)
@pytest.mark.parametrize("value", NOT_REAL)
def test_settings_that_must_be_real_numbers_refuse_other_values(name: str, value: Any):
    if name not in ("clip", "gamma", "weight_decay") or value is not None:
        assert f"{name}=" in str(refusal(**{name: value}).value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 5000}, r"gamma=5000 gives a learning rate of 2\^5000, which is too large"),
        ({"gamma": -5000}, r"2\^-5000, which is too small"),
        ({"gamma": 10**400}, "gamma=1000.*must be a finite number"),
        ({"fine_tuning_shift": 5000}, r"fine_tuning_shift=5000\) gives a learning rate of 2\^-5002"),
        ({"weight_decay": np.inf}, "weight_decay=inf must be a finite number of 0 or more"),
        ({"loss": "hinge"}, "unknown loss 'hinge'; expected one of softmax, squared"),
        ({"solver": ["joint"]}, r"solver=\['joint'\] is unknown; expected one of direct, layerwise, joint"),
        ({"engine": np.ones(2)}, "engine=.* is unknown; expected one of auto, compiled, torch"),
        ({"callbacks": print}, "callbacks=.* must be a sequence of callables"),
        ({"callbacks": [5]}, r"callbacks=\[5\] must be a sequence of callables"),
        ({"checkpoint": 5}, "5 is not a path"),
        ({"progress": 5}, "progress=5 must be True, False"),
        ({"net": nn.Linear(5, 3)}, "expected a Network or Sequential, got Linear"),
        ({"net": None}, "got None"),
        ({"net": network().to("meta")}, "meta device"),
        ({"optimizer": 5}, "optimizer=5 is unknown; expected one of sgd, momentum"),
        ({"optimizer": optim.Adam, "gamma": None, "learning_rate": 0.1}, "learning_rate=0.1 has no effect"),
        ({"optimizer": optim.Adam, "weight_decay": 0.1}, "weight_decay=0.1 has no effect on a torch opt"),
        ({"optimizer": optim.SGD, "momentum": 0.9}, r"momentum=0.9 .*; set it where the optimizer is made"),
        ({"optimizer": lambda p: None}, "it returned None"),
        ({"optimizer": lambda p: 1 / 0}, "failed to make an optimizer: division by zero"),
        ({"optimizer": partial(optim.Adam, lr=-1)}, "failed to make an optimizer: Invalid learning rate"),
        ({"optimizer": optim.LBFGS}, "LBFGS evaluates the loss itself"),
        ({"optimizer": optim.SparseAdam}, "SparseAdam failed to make a step"),
        ({"optimizer": lambda p: optim.SGD([nn.Parameter(torch.ones(1))])}, "it did not receive"),
    ],
)  # fmt: skip
def test_errors_quote_the_argument_and_say_what_was_expected(arguments: dict[str, Any], message: str):
    if isinstance(arguments.get("net"), nn.Module):
        with pytest.raises(FtnnError, match=message):
            fit(x=X, y=Y, **arguments)
    else:
        refusal(**arguments).match(message)


@pytest.mark.parametrize(
    "settings", [{"gamma": None}, {"gamma": -2}, {"solver": "joint"}, {"solver": "lm", "gamma": None}]
)
def test_a_network_without_trainable_parameters_is_refused(settings: dict[str, Any]):
    net = network().requires_grad_(False)
    before = digest(net)
    with pytest.raises(FtnnError, match="all parameters are frozen, so there is nothing to train"):
        fit(net, X, Y, **settings)
    assert digest(net) == before


def test_a_bfloat16_network_is_refused():
    with pytest.raises(DTypeError, match=r"the network is torch\.bfloat16"):
        fit(network(dtype=torch.bfloat16), X, Y)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"test": (X[:0], Y[:0])}, DataError, "the test x has no samples"),
        ({"test": ([], [])}, ShapeError, "the test x has shape .*; expected .samples, 5"),
        ({"test": (X, Y[:0])}, ShapeError, "the test y has 0 rows for 20 samples"),
        ({"test": X}, DataError, r"must be a pair \(x, y\)"),
        ({"test": 5}, DataError, r"test=5 must be a pair \(x, y\)"),
        ({"test": (X,)}, DataError, r"must be a pair \(x, y\)"),
        ({"test": (MASKED, Y)}, DataError, "the test x has masked entries"),
        ({"x": MASKED}, DataError, r"x has masked entries \(1 of them\)"),
        ({"x": list(MASKED)}, DataError, "x has masked entries"),
        ({"y": np.ma.masked_array(Y, Y == 1)}, DataError, "y has masked entries"),
        ({"sample_weight": np.ma.masked_array(np.ones(20), Y == 1)}, DataError, "sample_weight has masked"),
        ({"x": [[1, 2], [3]]}, DataError, "x cannot be converted to an array of numbers"),
        ({"x": torch.ones(20, 5).to_sparse()}, DataError, "x cannot be converted to an array of numbers"),
        ({"x": torch.ones(20, 5, device="meta")}, DataError, "x cannot be converted to an array of numbers"),
        ({"x": torch.ones(20, 5).to_mkldnn()}, DataError, "x cannot be converted to an array of numbers"),
        ({"x": X * 1e39}, DataError, r"x has -?[0-9.e+]+ \(too large for float32\) in row 0"),
        (
            {"y": Y.astype(float)},
            ShapeError,
            r"y has shape \(20,\); expected \(20, 3\) for 3 outputs; class labels must be integers",
        ),
        ({"y": 5}, ShapeError, "y is a single number; expected one for each sample"),
        (
            {"y": np.linspace(-0.5, 3, 60).reshape(20, 3), "loss": "logistic"},
            DataError,
            "y has targets from -0.5 to 3; expected 0 to 1 for the loss 'logistic'",
        ),
        (
            {"y": np.eye(20)[:, :3], "loss": "logistic", "test": (X, 2 * np.ones((20, 3)))},
            DataError,
            "the test y has targets from 2 to 2; expected 0 to 1",
        ),
        ({"y": np.ones((20, 3, 1))}, ShapeError, r"y has shape \(20, 3, 1\)"),
        (
            {"sample_weight": np.ones(19)},
            ShapeError,
            r"sample_weight has shape \(19,\); expected",
        ),
        ({"sample_weight": -np.ones(20)}, DataError, "sample_weight has -1"),
        ({"sample_weight": np.full(20, 1e39)}, DataError, "sample_weight has 1e"),
        ({"sample_weight": np.zeros(20)}, DataError, "sample_weight is zero for all samples"),
        ({"sample_weight": np.full(20, 1e-60)}, DataError, "sample_weight is zero for all samples"),
    ],
)
def test_unusable_data_are_refused(arguments: dict[str, Any], error: type[FtnnError], message: str):
    caught = refusal(**arguments)
    caught.match(message)
    assert isinstance(caught.value, error)


SIZES: dict[str, tuple[list[nn.Module], str]] = {
    "layers": ([Transfer(5, 8, "F12"), nn.Linear(7, 3)], "a layer with 8 outputs feeds one with 7 inputs"),
    "below functions": (
        [nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), Transfer(9, 4, "F12"), nn.Linear(4, 3)],
        "a layer with 8 outputs feeds one with 9 inputs",
    ),
    "nested": (
        [nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8)), Network(7, [4], 3)],
        "a layer with 8 outputs feeds one with 7 inputs",
    ),
    "normalisation": (
        [nn.Linear(5, 6), nn.BatchNorm1d(7), nn.Linear(6, 3)],
        r"nn\.BatchNorm1d\(7\) follows a layer with 6 outputs",
    ),
}


@pytest.mark.parametrize(
    "settings",
    [{"gamma": None}, {"calibrate": False}, {"engine": "torch"}, {"solver": "joint"}, {"solver": "lm"},
     {"solver": "lbfgs"}],
)  # fmt: skip
@pytest.mark.parametrize("name", SIZES)
def test_layers_of_different_sizes_in_a_row_are_refused(name: str, settings: dict[str, Any]):
    modules, message = SIZES[name]
    with pytest.raises(ShapeError, match=message):
        ftnn.training.fit(nn.Sequential(*modules), X, Y, epochs=1, **settings)


@pytest.mark.parametrize("settings", [{}, {"engine": "torch"}, {"solver": "lm"}, {"solver": "joint"}])
@pytest.mark.parametrize("state", [Memory(5, 8), nn.Sequential(nn.Linear(5, 5), Memory(5, 8))])
def test_a_memory_in_a_sequential_is_refused(state: nn.Module, settings: dict[str, Any]):
    with pytest.raises(
        FtnnError, match=r"cannot train a Memory.*pass an ftnn\.nn\.MemoryNetwork to .*fit_seq"
    ):
        ftnn.training.fit(nn.Sequential(state, nn.Tanh(), nn.Linear(8, 3)), X, Y, epochs=1, **settings)


def test_modules_of_unknown_sizes_may_come_between_layers():
    net = nn.Sequential(nn.Linear(5, 8), nn.GLU(), nn.Linear(4, 3))
    assert ftnn.training.fit(net, X.astype(np.float32), Y, epochs=1).epochs


def test_numpy_numbers_short_floats_and_unmasked_arrays_are_accepted():
    one, two = network("F03", (3,)), network("F03", (3,))
    fit(one, X.astype(np.float16), Y, gamma=-2, epochs=(1, 1), batch_size=4, seed=1)
    half = torch.from_numpy(X.astype(np.float16)).requires_grad_()
    settings: dict[str, Any] = {
        "gamma": np.float32(-2),
        "epochs": np.array([1, 1]),
        "batch_size": np.int32(4),
    }
    fit(two, np.ma.masked_array(half.detach().numpy()), Y, seed=np.uint8(1), **settings)  # pyright: ignore[reportArgumentType]
    assert digest(one) == digest(two)
    assert fit(network(), half.detach().bfloat16(), Y, epochs=1).epochs


def test_a_reporter_need_not_be_a_context_manager():
    class Counter:
        def __init__(self) -> None:
            self.ends = 0

        def begin(self, *args: object) -> None: ...
        def advance(self, *args: object) -> None: ...
        def end(self, epoch: object) -> None:
            self.ends += 1

    counter: Any = Counter()
    fit(network(), X, Y, epochs=(2, 1), progress=counter)
    assert counter.ends == 3


@pytest.mark.parametrize(
    "arguments",
    [{name: value} for name in ("window", "epochs", "done") for value in NOT_WHOLE]
    + [{"gamma": value} for value in (*NOT_REAL, 5000, -5000)]
    + [{"clip": 0}, {"clip": "1"}, {"engine": 5}, {"callbacks": 5}, {"net": network()}, {"loss": "hinge"},
       {"x": MASKED}, {"y": 5}],
)  # fmt: skip
def test_fit_sequence_refuses_invalid_arguments(arguments: dict[str, Any]):
    valid: dict[str, Any] = {"net": MemoryNetwork(5, 3, 3), "x": X, "y": Y, "epochs": 1}
    with pytest.raises(FtnnError):
        fit_sequence(**valid | arguments)


@pytest.mark.parametrize("seed", NOT_WHOLE)
def test_initialise_refuses_invalid_arguments(seed: Any):
    with pytest.raises(FtnnError, match="seed="):
        initialise(network(), seed)
    wrong: Any = nn.Linear(2, 2)
    with pytest.raises(FtnnError, match="got Linear"):
        initialise(wrong, 0)


def test_counting_connections_refuses_masked_data():
    with pytest.raises(DataError, match="masked entries"):
        ftnn.inspect.connections(Network(5, [3], 2), MASKED)
