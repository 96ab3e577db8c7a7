"""Saving and loading model files."""

import builtins
import copy
import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ftnn
from ftnn.errors import ModelFileError
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer, _connections
from ftnn.nn._activations import _read
from ftnn.nn._connections import Connections
from ftnn.nn._files import FORMAT_VERSION
from ftnn.nn._safetensors import digest as _digest
from tests.nn.models import WAVE, bits, each_module, metadata_of, parts, rewrite, run


@pytest.mark.parametrize("activation", ["tanh", "x*logistic(x)"])
def test_a_network_is_loaded_by_a_process_that_has_not_used_its_activation(activation: str, tmp_path: Path):
    ftnn.save(Network(3, [4], 2, "F12", activation), tmp_path / "model")
    _read.cache_clear()
    loaded = ftnn.load(tmp_path / "model")
    assert {tensor.device.type for tensor in loaded.parameters()} == {"cpu"}


@each_module
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_kind_of_module_round_trips_bit_by_bit(
    make: Callable[[], nn.Module], dtype: torch.dtype, tmp_path: Path
):
    module = make().to(dtype)
    ftnn.save(module, tmp_path / "model")
    other = ftnn.load(tmp_path / "model")
    assert repr(other) == repr(module)
    saved, loaded = module.state_dict(), other.state_dict()
    assert list(loaded) == list(saved)
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype
        assert tensor.dtype == dtype or not tensor.is_floating_point()
        assert loaded[name].shape == tensor.shape
        assert bits(loaded[name]) == bits(tensor)
        assert loaded[name].device.type == "cpu"
    torch.testing.assert_close(run(other), run(module), rtol=0, atol=0)
    assert [p.requires_grad for p in other.parameters()] == [True] * len(list(module.parameters()))


@each_module
def test_resetting_a_loaded_module_draws_the_same_values(make: Callable[[], Any], tmp_path: Path):
    module = make()
    ftnn.save(module, tmp_path / "model")
    other: Any = ftnn.load(tmp_path / "model")
    for one in (module, other):
        generator = torch.Generator().manual_seed(1)
        for part in one.modules():
            if isinstance(part, Transfer | Memory):
                part.reset_parameters(generator)
    for part, same in zip(module.modules(), other.modules(), strict=True):
        if isinstance(part, Transfer | Memory):
            assert [kind.formula for kind in same.kinds] == [kind.formula for kind in part.kinds]
            assert same.kinds == part.kinds  # with their ranges
            assert same.backend == part.backend
            assert all(torch.equal(a, b) for a, b in zip(same.matrices(), part.matrices(), strict=True))


def layers_of(module: nn.Module) -> list[Connections]:
    return [part for part in module.modules() if isinstance(part, Connections)]


CALIBRATED: dict[str, Callable[[], nn.Module]] = {
    "transfer": lambda: Transfer(3, 2, "p*sin(q*x + r)"),
    "partial": lambda: Partial(3, 2, "p*tanh(q*x)", [(0, 1), (1, 2)]),
    "mixed": lambda: Transfer(3, 2, ftnn.Mixed(["p*sin(q*x)", "F03"])),
    "network": lambda: Network(3, [4, 5], 2, "p*sin(q*x + r)"),
}


@pytest.mark.parametrize("make", CALIBRATED.values(), ids=CALIBRATED)
def test_a_loaded_module_draws_from_the_ranges_it_was_calibrated_to(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = make()
    chosen = [layer.ranges for layer in layers_of(module)]
    module.calibrate(5 * torch.rand(50, 3))
    ranges = [layer.ranges for layer in layers_of(module)]
    assert ranges != chosen
    ftnn.save(module, tmp_path / "model")
    monkeypatch.setattr(_connections, "balanced", _refuse)
    loaded = ftnn.load(tmp_path / "model")
    others: list[Any] = [loaded, copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    for other in others:
        assert [layer.ranges for layer in layers_of(other)] == ranges
        for one in (module, other):
            one.reset_parameters(torch.Generator().manual_seed(1))
        assert all(map(torch.equal, module.state_dict().values(), other.state_dict().values()))


def _refuse(*_: Any) -> None:
    raise AssertionError("ranges are in the file, but were chosen again")


def test_a_memory_layer_is_loaded_with_its_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in (Memory(3, 2), MemoryNetwork(3, 2, 2, "p*x + q*C")):
        (layer,) = layers_of(module)
        ftnn.save(module, tmp_path / "model")
        with monkeypatch.context() as patch:
            patch.setattr(_connections, "balanced", _refuse)
            (loaded,) = layers_of(ftnn.load(tmp_path / "model"))
            assert loaded.ranges == layer.ranges


@pytest.mark.parametrize("function", ["p*sin(q*x + r)", "F12"])
def test_a_file_without_ranges_is_loaded_without_choosing_them(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    net = Network(3, [4, 5], 2, function)
    ftnn.save(net, tmp_path / "model")
    described = json.loads(metadata_of(tmp_path / "model")["model"])
    del described["ranges"]
    rewrite(tmp_path / "model", described)
    with monkeypatch.context() as patch:
        patch.setattr(_connections, "balanced", _refuse)
        loaded = ftnn.load(tmp_path / "model")
    assert [layer.ranges for layer in layers_of(loaded)] == [layer.ranges for layer in layers_of(net)]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"": [{"p": [0, 1]}]}, "'ranges' of 'p.sin.q.x.' should be of p, q, not {'p'"),
        ({"": [{"p": [0, 1], "q": [1, 0]}]}, "range of 'q' must be"),
        ({"": [[0, 1]]}, "'ranges' of 'p.sin.q.x.' should be of p, q, not"),
        ({"": []}, "one entry for each kind of a layer, not ''"),
        ({"a": [{"p": [0, 1], "q": [0, 1]}]}, "one entry for each kind of a layer, not 'a'"),
        ([], "'ranges' should be of type dict"),
    ],
)
def test_wrong_ranges_in_a_file_are_refused(ranges: Any, message: str, tmp_path: Path):
    ftnn.save(Transfer(3, 2, "p*sin(q*x)"), tmp_path / "model")
    described = json.loads(metadata_of(tmp_path / "model")["model"])
    described["ranges"] = ranges
    rewrite(tmp_path / "model", described)
    with pytest.raises(ModelFileError, match=message):
        ftnn.load(tmp_path / "model")


def test_nan_and_infinities_round_trip(tmp_path: Path):
    layer = Transfer(2, 2, "p*x", bias=False)
    values = torch.tensor([[math.nan, math.inf], [-math.inf, -0.0]])
    with torch.no_grad():
        layer.matrix("p").copy_(values)
    ftnn.save(layer, tmp_path / "model")
    assert bits(ftnn.load(tmp_path / "model").state_dict()["theta.p"].T) == bits(values)


def test_non_contiguous_tensors_round_trip(tmp_path: Path):
    layer = Transfer(3, 2, "F12")
    layer.theta.p = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    assert not layer.theta["p"].is_contiguous()
    ftnn.save(layer, tmp_path / "model")
    assert torch.equal(ftnn.load(tmp_path / "model").state_dict()["theta.p"], layer.theta["p"])


def test_the_digest_covers_names_dtypes_shapes_values_and_the_description():
    tensors = {"a": torch.tensor(1.0), "b": torch.zeros(2, 0), "c": torch.arange(6.0).reshape(2, 3)}
    digest = _digest("text", tensors)
    assert digest == _digest("text", dict(reversed(tensors.items())))
    assert digest == _digest("text", tensors | {"c": torch.arange(6.0).reshape(2, 3).T.contiguous().T})
    others = [
        _digest("other", tensors),
        _digest("text", tensors | {"a": torch.tensor(2.0)}),
        _digest("text", tensors | {"a": torch.tensor([1.0])}),
        _digest("text", tensors | {"b": torch.zeros(0, 2)}),
        _digest("text", tensors | {"b": torch.zeros(2, 0).double()}),
        _digest("text", tensors | {"c": torch.arange(6.0).reshape(3, 2)}),
        _digest("text", tensors | {"d": torch.zeros(0)}),
    ]
    assert len({digest, *others}) == 8


def test_loading_draws_no_random_numbers_and_training_continues(model: Path):
    state = torch.get_rng_state()
    layer = ftnn.load(model)
    assert torch.equal(torch.get_rng_state(), state)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.state_dict()["theta.a"].clone()
    layer(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(layer.state_dict()["theta.a"], before)


def test_a_loaded_model_is_independent_of_its_file(model: Path):
    layer = ftnn.load(model)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with open(model, "r+b") as file:  # in place, like a careless program
        file.write(bytes(model.stat().st_size))
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_the_file_is_readable_by_safetensors(model: Path):
    metadata, tensors = parts(model)
    assert metadata["format"] == "ftnn"
    assert metadata["version"] == str(FORMAT_VERSION)
    assert json.loads(metadata["model"])["function"]["formula"] == WAVE.formula
    assert set(tensors) == {"theta.a", "theta.b", "theta.c", "constants.v", "bias"}


def test_loading_runs_no_code_and_unpickles_nothing(model: Path, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("loading must not run code")

    with monkeypatch.context() as patch:
        for module, name in (
            (pickle, "load"),
            (pickle, "loads"),
            (pickle, "Unpickler"),
            (torch, "load"),
            (builtins, "eval"),
            (builtins, "exec"),
        ):
            patch.setattr(module, name, never)
        layer = ftnn.load(model)
    assert isinstance(layer, Transfer)


# ---- modules that cannot be saved


class Subclass(Transfer):
    """A subclass, whose behaviour a file cannot hold."""


def shared() -> nn.Module:
    layer = Transfer(3, 3, "F12")
    return nn.Sequential(layer, nn.Tanh(), layer)


def tied() -> nn.Module:
    first, second = Transfer(3, 3, "F12"), Transfer(3, 3, "F12")
    second.theta.p = first.theta["p"]
    return nn.Sequential(first, second)


def parametrised() -> nn.Module:
    layer = Transfer(3, 3, "F12")
    nn.utils.parametrize.register_parametrization(layer.theta, "p", nn.Tanh(), unsafe=True)
    return nn.Sequential(layer)


def altered() -> nn.Module:
    net = Network(3, [4], 2)
    net.output = nn.Linear(4, 7)
    return net


def long() -> nn.Module:
    formula = " + ".join(f"p{n}*exp(q{n}*x)" for n in range(45))
    return Transfer(3, 2, ftnn.Function(formula).grounded())  # beyond the limits for a formula in a file


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Conv2d(1, 1, 1),
            r"cannot hold modules of type Conv2d; expected one of .*module\.state_dict\(\)",
        ),
        (lambda: nn.Sequential(Subclass(3, 2, "F12")), "cannot hold modules of type Subclass"),
        (shared, "shares a parameter"),
        (tied, "shares a parameter"),
        (parametrised, "remove_parametrizations"),
        (altered, r"cannot be saved: output\.bias has shape \(7,\), but the description says \(2,\)"),
        (long, "cannot be saved: the formula has .* the limit is 400"),
        (lambda: Transfer(3, 2, "F12", device="meta"), "on the meta device"),
        (lambda: nn.Linear(3, 2, dtype=torch.complex64), "is torch.complex64; expected one of"),
    ],
)
def test_modules_that_could_not_be_loaded_are_not_saved(
    make: Callable[[], nn.Module], message: str, model: Path
):
    before = model.read_bytes()
    with pytest.raises(ModelFileError, match=message):
        ftnn.save(make(), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]
