"""Model files: what is saved comes back bit by bit, and nothing else comes back at all."""

import builtins
import errno
import json
import math
import os
import pickle
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor, nn

import ftnn
from ftnn import Mixed
from ftnn.errors import FtnnError, ModelFileError
from ftnn.nn import Memory, MemoryNetwork, Network, Transfer
from ftnn.nn._files import FORMAT_VERSION, _digest

WAVE = ftnn.Function("a*sin(b*x) + c*x*v", init={"b": (0.1, 2 / 3)}, constants={"v": (-1, 0.1)})
MAP = np.array([[0, 1, 1], [1, 0, 1]])

MODULES: dict[str, Callable[[], nn.Module]] = {
    "a catalogue name": lambda: Transfer(3, 2, "F08"),
    "a formula without bias": lambda: Transfer(3, 2, "p*x + q", bias=False, backend="reference"),
    "a function with ranges": lambda: Transfer(3, 2, WAVE),
    "a grounded function": lambda: Transfer(3, 2, ftnn.catalogue["F11"].grounded()),
    "one connection": lambda: Transfer(1, 1, "F12"),
    "mixed at random": lambda: Transfer(3, 2, Mixed(["F12", "F08", WAVE])),
    "mixed by rows": lambda: Transfer(3, 2, Mixed(["F12", "F03"], "rows")),
    "mixed by a map": lambda: Transfer(3, 2, Mixed(["F12", "F08"], MAP)),
    "one kind mixed": lambda: Transfer(3, 2, Mixed(["F08"])),
    "memory": lambda: Memory(3, 2, through_time=True),
    "mixed memory": lambda: Memory(3, 2, Mixed(["memory", "p*x + C*u**2"]), bias=False),
    "a memory network": lambda: MemoryNetwork(3, 4, 2, "tanh(p*x + C)", "tanh", through_time=True),
    "a network": lambda: Network(3, [4, 5], 2, ["F08", Mixed(["F12", WAVE])], "relu"),
    "a network without hidden layers": lambda: Network(3, [], 2),
    "a sequence": lambda: nn.Sequential(
        nn.Flatten(-1), Transfer(3, 4, "F12"), nn.Sigmoid(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Tanh()
    ),
    "a sequence of sequences with names": lambda: nn.Sequential(
        OrderedDict(
            first=nn.Sequential(Transfer(3, 3, "F07")), then=nn.Identity(), last=Network(3, [2], 1, "F01")
        )
    ),
}
each_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())


def run(module: nn.Module) -> Any:
    first = next(module.parameters())
    x = torch.linspace(-1, 1, 12, dtype=first.dtype).reshape(2, 2, 3)[
        ..., : getattr(module, "in_features", 3)
    ]
    return module(x)


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file that may be damaged."""
    ftnn.save(Transfer(3, 2, WAVE), tmp_path / "model.ftnn")
    return tmp_path / "model.ftnn"


def parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    return metadata_of(path), safetensors.torch.load(path.read_bytes())


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(str(path), framework="pt") as file:
        return dict(file.metadata())


def rewrite(
    path: Path, description: Any = None, tensors: dict[str, Tensor] | None = None, **metadata: str
) -> None:
    """Write the file again with other content and a digest that fits, as one who knows the format can."""
    old, kept = parts(path)
    tensors = kept if tensors is None else tensors
    text = old["model"] if description is None else description
    text = text if isinstance(text, str) else json.dumps(text)
    new = {**old, "model": text, "digest": _digest(text + old.get("notes", ""), tensors), **metadata}
    path.write_bytes(safetensors.torch.save(tensors, new))


def refused(path: Path, *words: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        ftnn.load(path)
    message = str(caught.value)
    for word in (str(path), *words):
        assert word in message, message
    return message


# ---- what is saved comes back


@each_module
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_kind_of_module_comes_back_bit_by_bit(
    make: Callable[[], nn.Module], dtype: torch.dtype, tmp_path: Path
):
    module = make().to(dtype)
    ftnn.save(module, tmp_path / "model")
    other = ftnn.load(tmp_path / "model")
    assert repr(other) == repr(module)
    saved, loaded = module.state_dict(), other.state_dict()
    assert list(loaded) == list(saved)
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype == dtype
        assert loaded[name].shape == tensor.shape
        assert bits(loaded[name]) == bits(tensor)
        assert loaded[name].device.type == "cpu"
    torch.testing.assert_close(run(other), run(module), rtol=0, atol=0)
    assert [p.requires_grad for p in other.parameters()] == [True] * len(list(module.parameters()))


@each_module
def test_a_loaded_module_is_drawn_anew_as_the_saved_one_would_be(make: Callable[[], Any], tmp_path: Path):
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


def test_values_that_are_no_numbers_come_back_too(tmp_path: Path):
    layer = Transfer(2, 2, "p*x", bias=False)
    values = torch.tensor([[math.nan, math.inf], [-math.inf, -0.0]])
    with torch.no_grad():
        layer.matrix("p").copy_(values)
    ftnn.save(layer, tmp_path / "model")
    assert bits(ftnn.load(tmp_path / "model").state_dict()["theta.p"].T) == bits(values)


def test_tensors_in_another_memory_order_are_saved_as_they_are(tmp_path: Path):
    layer = Transfer(3, 2, "F12")
    layer.theta.p = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    assert not layer.theta["p"].is_contiguous()
    ftnn.save(layer, tmp_path / "model")
    assert torch.equal(ftnn.load(tmp_path / "model").state_dict()["theta.p"], layer.theta["p"])


def test_a_digest_is_of_names_dtypes_shapes_values_and_the_description():
    tensors = {"a": torch.tensor(1.0), "b": torch.zeros(2, 0), "c": torch.arange(6.0).reshape(2, 3)}
    found = _digest("text", tensors)
    assert found == _digest("text", dict(reversed(tensors.items())))
    assert found == _digest("text", tensors | {"c": torch.arange(6.0).reshape(2, 3).T.contiguous().T})
    others = [
        _digest("other", tensors),
        _digest("text", tensors | {"a": torch.tensor(2.0)}),
        _digest("text", tensors | {"a": torch.tensor([1.0])}),
        _digest("text", tensors | {"b": torch.zeros(0, 2)}),
        _digest("text", tensors | {"b": torch.zeros(2, 0).double()}),
        _digest("text", tensors | {"c": torch.arange(6.0).reshape(3, 2)}),
        _digest("text", tensors | {"d": torch.zeros(0)}),
    ]
    assert len({found, *others}) == 8


def test_loading_draws_no_random_number_and_training_goes_on(model: Path):
    state = torch.get_rng_state()
    layer = ftnn.load(model)
    assert torch.equal(torch.get_rng_state(), state)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.state_dict()["theta.a"].clone()
    layer(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(layer.state_dict()["theta.a"], before)


def test_a_loaded_model_does_not_change_with_its_file(model: Path):
    layer = ftnn.load(model)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with open(model, "r+b") as file:  # in place, as a careless program would
        file.write(bytes(model.stat().st_size))
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_the_file_is_safetensors_that_others_can_read(model: Path):
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


# ---- what cannot be saved


class Own(Transfer):
    """A subclass, whose own behaviour a file could not hold."""


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
    return Transfer(3, 2, ftnn.Function(formula).grounded())  # longer than what a file may say


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(1, 1, 1), r"cannot hold a Conv2d; it can hold Transfer, .*module\.state_dict\(\)"),
        (lambda: nn.Sequential(Own(3, 2, "F12")), "cannot hold a Own"),
        (shared, "parameter in two places"),
        (tied, "parameter in two places"),
        (parametrised, "remove_parametrizations"),
        (altered, r"cannot be saved: output\.bias has the shape \(7,\), but the description says \(2,\)"),
        (long, "cannot be saved: the formula has .* at most 400 are allowed"),
        (lambda: Transfer(3, 2, "F12", device="meta"), "on the device meta"),
        (lambda: nn.Linear(3, 2, dtype=torch.complex64), "no floating-point dtype"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(
    make: Callable[[], nn.Module], message: str, model: Path
):
    before = model.read_bytes()
    with pytest.raises(ModelFileError, match=message):
        ftnn.save(make(), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


# ---- a save that fails


def broken_by(error: OSError | KeyboardInterrupt) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["fsync", "replace"])
@pytest.mark.parametrize("before", [True, False], ids=["over a file", "a new file"])
def test_a_failed_save_leaves_the_old_file_whole_and_nothing_else(
    place: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "model"
    if before:
        ftnn.save(Transfer(3, 2, "F12"), path)
    content = path.read_bytes() if before else None
    with monkeypatch.context() as patch:
        patch.setattr(os, place, broken_by(FULL))
        with pytest.raises(ModelFileError, match=r"cannot write .*model: No space left on device"):
            ftnn.save(Transfer(5, 4, "F03"), path)
    assert os.listdir(tmp_path) == (["model"] if before else [])
    assert (path.read_bytes() if before else None) == content


def test_a_full_disk_in_the_middle_of_writing_leaves_the_old_file_whole(
    model: Path, monkeypatch: pytest.MonkeyPatch
):
    before = model.read_bytes()
    original = open

    def half(*arguments: Any, **options: Any) -> Any:
        file: Any = original(*arguments, **options)
        write = file.write

        def fail(content: bytes) -> None:
            write(content[: len(content) // 2])
            raise FULL

        class Full:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            write = staticmethod(fail)

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", half)
        with pytest.raises(ModelFileError, match="No space left"):
            ftnn.save(Transfer(5, 4, "F03"), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


def test_an_interrupted_save_leaves_the_old_file_whole(model: Path, monkeypatch: pytest.MonkeyPatch):
    before = model.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken_by(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ftnn.save(Transfer(5, 4, "F03"), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


def test_places_that_cannot_be_written_are_named(tmp_path: Path):
    layer = Transfer(3, 2, "F12")
    for path, reason in (
        (tmp_path / "nowhere" / "model", "No such file or directory"),
        (tmp_path, "directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "a\0b", "null byte"),
    ):
        with pytest.raises(ModelFileError, match=reason):
            ftnn.save(layer, path)
    assert os.listdir(tmp_path) == []


def test_a_save_without_permission_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", broken_by(PermissionError(errno.EACCES, "Permission denied")))
        with pytest.raises(ModelFileError, match=r"cannot write .*Permission denied"):
            ftnn.save(Transfer(3, 2, "F12"), model)
    assert os.listdir(model.parent) == [model.name]


def test_a_save_keeps_the_permissions_of_the_file_and_follows_a_link(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / "link"
    ftnn.save(Transfer(3, 2, "F12"), real)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~umask  # as for any new file
    real.chmod(0o600)
    link.symlink_to(real)
    ftnn.save(Transfer(3, 2, "F03"), link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert "function=F03" in repr(ftnn.load(real))


def test_saves_at_the_same_time_leave_one_whole_file(tmp_path: Path):
    path = tmp_path / "model"
    layers = [Transfer(20, 10, name) for name in ("F01", "F03", "F12")]

    def save_often(layer: Transfer) -> None:
        for _ in range(10):
            ftnn.save(layer, path)

    threads = [threading.Thread(target=save_often, args=(layer,)) for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["model"]
    assert isinstance(ftnn.load(path), Transfer)


# ---- files that are not what was saved


def test_a_file_cut_short_anywhere_is_refused(model: Path):
    content = model.read_bytes()
    places = {*range(0, len(content), 7), *range(20), *range(len(content) - 20, len(content))}
    for place in sorted(places):
        model.write_bytes(content[:place])
        refused(model)


def test_a_file_with_bytes_behind_it_is_refused(model: Path):
    model.write_bytes(model.read_bytes() + b"\0")
    refused(model)


def test_a_flipped_bit_anywhere_is_refused(model: Path):
    content = model.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        model.write_bytes(changed)
        refused(model)


@dataclass(frozen=True)
class Material:
    """What the fuzz tests change: a layer's file, and a network's description and tensors."""

    path: Path
    content: bytes
    state: dict[str, Tensor]
    description: str
    tensors: dict[str, Tensor]

    def load(self, content: bytes) -> nn.Module:
        self.path.write_bytes(content)
        return ftnn.load(self.path)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    path = tmp_path_factory.mktemp("fuzz") / "model"
    layer = Transfer(3, 2, WAVE)
    ftnn.save(layer, path)
    content = path.read_bytes()
    mixed = Mixed(["F12", "F03"], np.zeros((2, 2), int))
    net = nn.Sequential(Network(3, [2, 2], 2, ["F08", mixed]), nn.Linear(2, 2))
    ftnn.save(net, path)
    return Material(path, content, layer.state_dict(), metadata_of(path)["model"], net.state_dict())


@given(data=st.data())
def test_whatever_is_done_to_its_bytes_a_file_is_refused_or_loads_whole(
    data: st.DataObject, material: Material
):
    content = bytearray(material.content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        removed = data.draw(st.integers(0, 12))
        content[place : place + removed] = data.draw(st.binary(max_size=12) | st.sampled_from(TOKENS))
    try:
        loaded = material.load(bytes(content))
    except ModelFileError:
        return
    assert isinstance(loaded, Transfer)
    assert loaded.function == WAVE
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in material.state.items())


@given(data=st.data())
def test_whatever_a_description_says_a_file_is_refused_or_loads(data: st.DataObject, material: Material):
    # With a digest that fits, so that the description itself must stand the test.
    described = json.loads(material.description)
    for _ in range(data.draw(st.integers(1, 3))):
        found: Any = data.draw(st.sampled_from(list(places(described)) or [({"type": None}, "type")]))
        holder, key = found
        if data.draw(st.booleans()):
            holder[key] = data.draw(JSON)
        else:
            holder.pop(key)
    text = json.dumps(described)
    metadata = {"format": "ftnn", "version": "1", "model": text, "digest": _digest(text, material.tensors)}
    try:
        loaded = material.load(safetensors.torch.save(material.tensors, metadata))
    except ModelFileError:
        return
    assert set(loaded.state_dict()) == set(material.tensors)


def places(value: Any) -> Any:
    """(holder, key) of everything inside."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


TOKENS = [
    b"\xff" * 8,
    b"{}",
    b"[]",
    b'"',
    b"null",
    b"NaN",
    b"1e999",
    b"-1",
    b"F32",
    b"I64",
    b"F64",
    b"\0" * 8,
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Sequential", "F12", "p*x", "p*x + C", "rows", "relu", "auto", "9**9**9**9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def test_missing_files_directories_and_other_kinds_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "there is no file" in refused(tmp_path / "nowhere")
    assert "Is a directory" in refused(tmp_path)
    for name, content in (
        ("empty", b""),
        ("zeros", bytes(1000)),
        ("text", b"p*sin(q*x + r)\n" * 100),
        ("huge header", (2**62).to_bytes(8, "little") + b"{}"),
        ("pickle", pickle.dumps({"theta.p": 1})),
    ):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "is not a whole model file")
    torch.save(Transfer(3, 2, "F12").state_dict(), tmp_path / "torch")
    refused(tmp_path / "torch", "is not a whole model file")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken_by(PermissionError(errno.EACCES, "Permission denied")))
        refused(tmp_path / "text", "cannot read", "Permission denied")
    with pytest.raises(ModelFileError, match="null byte"):
        ftnn.load("a\0b")


def test_a_safetensors_file_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "other"
    for metadata in (None, {"format": "pt"}, {"format": "ftnn"}, {"format": "ftnn", "version": "one"}):
        path.write_bytes(safetensors.torch.save({"a": torch.zeros(2)}, metadata))
        refused(path, "not a model that ftnn.save wrote")


@pytest.mark.parametrize("version", ["2", "10", "999999999"])
def test_a_newer_version_is_refused_with_both_numbers(model: Path, version: str):
    rewrite(model, version=version)
    refused(model, f"the format version {version}, from a newer ftnn", "up to 1")


@pytest.mark.parametrize("version", ["0", "-1", "1.0", "", "¹", "9" * 5000])
def test_a_version_that_is_none_is_refused(model: Path, version: str):
    rewrite(model, version=version)
    refused(model, "not a model that ftnn.save wrote")


def test_a_changed_formula_is_refused(model: Path):
    metadata, tensors = parts(model)
    changed = metadata["model"].replace("sin", "cos")
    assert changed != metadata["model"]
    model.write_bytes(safetensors.torch.save(tensors, {**metadata, "model": changed}))
    refused(model, "was changed after it was saved")


def test_a_changed_range_or_parameter_is_refused(model: Path):
    metadata, tensors = parts(model)
    for content in (
        safetensors.torch.save(tensors, {**metadata, "model": metadata["model"].replace("0.1", "0.2")}),
        safetensors.torch.save({**tensors, "bias": tensors["bias"] + 1}, metadata),
        safetensors.torch.save({**tensors, "more": torch.zeros(1)}, metadata),
        safetensors.torch.save({k: v for k, v in tensors.items() if k != "bias"}, metadata),
        safetensors.torch.save(tensors, {k: v for k, v in metadata.items() if k != "digest"}),
        safetensors.torch.save(tensors, {k: v for k, v in metadata.items() if k != "model"}),
    ):
        model.write_bytes(content)
        refused(model, "was changed after it was saved")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("p*x" + " " * 3998, "4001 characters; at most 4000"),
        (" + ".join(["a*sin(b*x) + c*x*v"] * 40), "nodes; at most 400"),
        ("9**9**9**9*x*a*b*c*v", "too large"),
        ("__import__('os').system('true')", "only a named function can be called"),
        ("x.__class__", "attribute access"),
        ("(lambda: x)()", "only a named function can be called"),
        ("a*x)", "not a formula"),
        ("", "empty"),
        ("(" * 3000, "not a formula"),
        ("a*b*c*v", "no x"),
        ("a*x*C + b*c*v", "use ftnn.nn.Memory"),
    ],
)
def test_a_malicious_formula_is_refused_even_with_a_digest_that_fits(model: Path, formula: str, message: str):
    described = json.loads(metadata_of(model)["model"])
    described["function"]["formula"] = formula
    rewrite(model, described)
    refused(model, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_features": 4}, "constants.v has the shape (3, 2), but the description says (4, 2)"),
        ({"in_features": 10**9, "out_features": 10**9}, "has the shape"),  # and no memory is taken for it
        ({"in_features": 10**30}, ""),
        ({"in_features": -1}, "in_features must be a whole number"),
        ({"in_features": "3"}, "'in_features' should be of type int"),
        ({"in_features": True}, "in_features must be a whole number"),
        ({"out_features": None}, "'out_features' should be of type int"),
        ({"bias": False}, "bias belongs to nothing in the description"),
        ({"bias": "yes"}, "'bias' should be of type bool"),
        ({"backend": "gpu"}, "backend='gpu' is not known"),
        ({"type": "Conv2d"}, "the type 'Conv2d' is not known; known are Transfer, Memory"),
        ({"type": ["Transfer"]}, "'type' should be of type str"),
        ({"type": "Memory", "through_time": True}, "has no C"),
        ({"function": []}, "'function' should be of type dict"),
        ({"function": {"formula": "p*x", "init": {}, "constants": {}}}, "belongs to nothing"),
        ({"function": {"formula": 5, "init": {}, "constants": {}}}, "'formula' should be of type str"),
        ({"function": {"formula": "a*x", "init": [], "constants": {}}}, "'init' should be of type dict"),
        ({"function": {"formula": "a*x", "init": {"a": 5}, "constants": {}}}, "must be (low, high)"),
        ({"function": {"formula": "a*x", "init": {"a": [math.nan, 1]}, "constants": {}}}, "must be finite"),
        ({"function": {"formula": "a*x", "init": {"a": [0, 10**400]}, "constants": {}}}, ""),
        ({"function": {"formula": "a*x", "init": {}, "constants": {"a": [1]}}}, "no parameter"),
        ({"mixed": "F12"}, "'mixed' should be of type list"),
        ({"mixed": []}, "Mixed needs one function"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[9]]}, "kinds 9 to 9"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[0], [0, 1]]}, ""),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[0, 1]]}, "(out, in)"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2}, "integer array"),
    ],
)
def test_a_description_that_says_something_else_is_refused(model: Path, change: dict[str, Any], message: str):
    rewrite(model, json.loads(metadata_of(model)["model"]) | change)
    refused(model, "holds no model that this version can build", message)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        '"Transfer"',
        "NaN",
        "{}",
        "[" * 100_000 + "]" * 100_000,
        '{"type": "Sequential", "modules": [["a", ' * 3000 + "{}" + "]]}" * 3000,
        '{"type": "Sequential", "modules": {"a": 1}}',
        '{"type": "Sequential", "modules": [["a.b", {"type": "Tanh"}]]}',
        '{"type": "Sequential", "modules": [[5, {"type": "Tanh"}]]}',
        '{"type": "Sequential", "modules": ["ab"]}',
        '{"type": "Linear", "in_features": -3, "out_features": 2, "bias": true}',
        '{"type": "Flatten", "start_dim": "a", "end_dim": 1}',
        '{"type": "Network", "in_features": 3, "hidden": 5, "out_features": 2}',
        "1" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_a_description_that_is_none_is_refused(model: Path, text: str):
    rewrite(model, text)
    refused(model, "holds no model that this version can build")


def test_the_backends_of_a_network_are_checked(tmp_path: Path):
    path = tmp_path / "net"
    ftnn.save(Network(3, [2], 2), path)
    described = json.loads(metadata_of(path)["model"])
    rewrite(path, described | {"backends": [["auto"]]})
    refused(path, "the backend ['auto'] is not known; known are auto, reference, cpu")
    rewrite(path, described | {"backends": []})
    refused(path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_tensors_that_are_no_floating_point_numbers_are_refused(model: Path, dtype: torch.dtype):
    _, tensors = parts(model)
    for name in tensors:
        rewrite(model, tensors=tensors | {name: tensors[name].to(dtype)})
        refused(model, name, "which is no floating-point dtype")


def test_tensors_of_different_dtypes_in_one_layer_are_refused(model: Path):
    _, tensors = parts(model)
    rewrite(model, tensors=tensors | {"theta.b": tensors["theta.b"].double()})
    refused(model, "tensors of different dtypes")


def test_tensors_of_another_shape_are_refused(model: Path):
    _, tensors = parts(model)
    for wrong in (torch.zeros(2, 3), torch.zeros(3, 2, 1), torch.zeros(()), torch.zeros(0, 2)):
        rewrite(model, tensors=tensors | {"theta.b": wrong})
        refused(model, "theta.b has the shape")


def test_every_refusal_is_an_ftnn_error_and_a_value_error():
    assert issubclass(ModelFileError, FtnnError)
    assert issubclass(ModelFileError, ValueError)
