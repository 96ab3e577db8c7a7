"""Damaged and forged model files are refused with a reason."""

import errno
import json
import math
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import ftnn
from ftnn import Mixed
from ftnn.errors import FtnnError, ModelFileError
from ftnn.nn import Network, Transfer
from ftnn.nn._safetensors import MAX_TENSORS
from ftnn.nn._safetensors import digest as _digest
from tests.nn.models import WAVE, broken_by, metadata_of, parts, refused, rewrite


def test_a_truncated_file_is_refused(model: Path):
    content = model.read_bytes()
    places = {*range(0, len(content), 7), *range(20), *range(len(content) - 20, len(content))}
    for place in sorted(places):
        model.write_bytes(content[:place])
        refused(model)


def test_a_file_with_trailing_bytes_is_refused(model: Path):
    model.write_bytes(model.read_bytes() + b"\0")
    refused(model)


def test_a_file_with_a_flipped_bit_is_refused(model: Path):
    content = model.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        model.write_bytes(changed)
        refused(model)


@dataclass(frozen=True)
class Material:
    """Material for the fuzz tests: a layer's file, and a network's description and tensors."""

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
    net = nn.Sequential(Network(3, [2, 2], 2, ["F08", mixed]), nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.extend([nn.LayerNorm(2), nn.GELU(), nn.Dropout(0.1), Transfer(2, 2, "F03", scale=True)])
    ftnn.save(net, path)
    return Material(path, content, layer.state_dict(), metadata_of(path)["model"], net.state_dict())


@given(data=st.data())
def test_a_file_with_arbitrary_changes_is_refused_or_loads_unchanged(data: st.DataObject, material: Material):
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
def test_a_file_with_an_arbitrary_description_is_refused_or_loads(data: st.DataObject, material: Material):
    # With a matching digest, so that the description itself is checked.
    described = json.loads(material.description)
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = data.draw(st.sampled_from(list(places(described)) or [({"type": None}, "type")]))
        container, key = place
        if data.draw(st.booleans()):
            container[key] = data.draw(JSON)
        else:
            container.pop(key)
    text = json.dumps(described)
    metadata = {"format": "ftnn", "version": "1", "model": text, "digest": _digest(text, material.tensors)}
    try:
        loaded = material.load(safetensors.torch.save(material.tensors, metadata))
    except ModelFileError:
        return
    assert set(loaded.state_dict()) == set(material.tensors)


def places(value: Any) -> Any:
    """(container, key) of every nested value."""
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


def test_files_that_are_not_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
        refused(tmp_path / name, "is not a valid model file")
    torch.save(Transfer(3, 2, "F12").state_dict(), tmp_path / "torch")
    refused(tmp_path / "torch", "is not a valid model file")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken_by(PermissionError(errno.EACCES, "Permission denied")))
        refused(tmp_path / "text", "cannot read", "Permission denied")
    with pytest.raises(ModelFileError, match="null byte"):
        ftnn.load("a\0b")


def test_a_safetensors_file_without_a_model_is_refused(tmp_path: Path):
    path = tmp_path / "other"
    for metadata in (None, {"format": "pt"}, {"format": "ftnn"}, {"format": "ftnn", "version": "one"}):
        path.write_bytes(safetensors.torch.save({"a": torch.zeros(2)}, metadata))
        refused(path, "not a model that ftnn.save wrote")


@pytest.mark.parametrize("version", ["2", "10", "999999999"])
def test_a_newer_format_version_is_refused(model: Path, version: str):
    rewrite(model, version=version)
    refused(model, f"has format version {version}, from a newer ftnn", "up to 1")


@pytest.mark.parametrize("version", ["0", "-1", "1.0", "", "¹", "9" * 5000])
def test_an_invalid_format_version_is_refused(model: Path, version: str):
    rewrite(model, version=version)
    refused(model, "not a model that ftnn.save wrote")


def test_a_changed_formula_is_refused(model: Path):
    metadata, tensors = parts(model)
    changed = metadata["model"].replace("sin", "cos")
    assert changed != metadata["model"]
    model.write_bytes(safetensors.torch.save(tensors, {**metadata, "model": changed}))
    refused(model, "is damaged: its digest does not match")


def test_changed_ranges_and_tensors_are_refused(model: Path):
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
        refused(model, "is damaged: its digest does not match")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("p*x" + " " * 3998, "4001 characters; the limit is 4000"),
        (" + ".join(["a*sin(b*x) + c*x*v"] * 40), "nodes; the limit is 400"),
        ("9**9**9**9*x*a*b*c*v", "too large"),
        ("__import__('os').system('true')", "only a function can be called, by its name"),
        ("x.__class__", "attribute access"),
        ("(lambda: x)()", "only a function can be called, by its name"),
        ("a*x)", "not a formula"),
        ("", "empty"),
        ("(" * 3000, "not a formula"),
        ("a*b*c*v", "does not use x"),
        ("a*x*C + b*c*v", "use ftnn.nn.Memory"),
    ],
)
def test_an_invalid_formula_is_refused_even_with_a_matching_digest(model: Path, formula: str, message: str):
    described = json.loads(metadata_of(model)["model"])
    described["function"]["formula"] = formula
    rewrite(model, described)
    refused(model, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_features": 4}, "constants.v has shape (3, 2), but the description says (4, 2)"),
        ({"in_features": 10**9, "out_features": 10**9}, "has shape"),  # takes no memory
        ({"in_features": 10**30}, ""),
        ({"in_features": -1}, "in_features must be a positive integer"),
        ({"in_features": "3"}, "'in_features' should be of type int"),
        ({"in_features": True}, "in_features must be a positive integer"),
        ({"out_features": None}, "'out_features' should be of type int"),
        ({"bias": False}, "bias is not in the description"),
        ({"bias": "yes"}, "'bias' should be of type bool"),
        ({"backend": "gpu"}, "unknown backend 'gpu'"),
        ({"type": "Conv2d"}, "unknown type 'Conv2d'; expected one of Transfer, Memory"),
        ({"type": ["Transfer"]}, "'type' should be of type str"),
        ({"type": "Memory", "through_time": True}, "has no C"),
        ({"function": []}, "'function' should be of type dict"),
        ({"function": {"formula": "p*x", "init": {}, "constants": {}}}, "'ranges' of 'p*x' should be of p"),
        ({"function": {"formula": "p*x", "init": {}, "constants": {}}, "ranges": {}}, "not in the descr"),
        ({"function": {"formula": 5, "init": {}, "constants": {}}}, "'formula' should be of type str"),
        ({"function": {"formula": "a*x", "init": [], "constants": {}}}, "'init' should be of type dict"),
        ({"function": {"formula": "a*x", "init": {"a": 5}, "constants": {}}}, "must be (low, high)"),
        (
            {"function": {"formula": "a*x", "init": {"a": [math.nan, 1]}, "constants": {}}},
            "finite and low ≤ high",
        ),
        ({"function": {"formula": "a*x", "init": {"a": [0, 10**400]}, "constants": {}}}, ""),
        ({"function": {"formula": "a*x", "init": {}, "constants": {"a": [1]}}}, "no parameter"),
        ({"mixed": "F12"}, "'mixed' should be of type list"),
        ({"mixed": []}, "Mixed needs at least one function"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[9]]}, "kinds 9 to 9"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[0], [0, 1]]}, ""),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2, "assign": [[0, 1]]}, "(out, in)"),
        ({"mixed": [{"formula": "p*x", "init": {}, "constants": {}}] * 2}, "integer array"),
    ],
)
def test_an_inconsistent_description_is_refused(model: Path, change: dict[str, Any], message: str):
    rewrite(model, json.loads(metadata_of(model)["model"]) | change)
    refused(model, "has no model that this version can build", message)


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
        '{"type": "BatchNorm1d"}',
        '{"type": "LayerNorm", "normalized_shape": 3}',
        '{"type": "Dropout"}',
        '{"type": "GELU"}',
        '{"type": "Activate", "activation": ["tanh"]}',
        '{"type": "Activate", "activation": "p*x"}',
        '{"type": "Activate", "activation": "9**9**9**9*x"}',
        '{"type": "LeakyReLU", "negative_slope": NaN}',
        '{"type": "ELU", "alpha": 1e999}',
        '{"type": "ELU", "alpha": true}',
        '{"type": "Network", "in_features": 3, "hidden": 5, "out_features": 2}',
        "1" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_an_invalid_description_is_refused(model: Path, text: str):
    rewrite(model, text)
    refused(model, "has no model that this version can build")


def test_the_backends_of_a_network_are_checked(tmp_path: Path):
    path = tmp_path / "net"
    ftnn.save(Network(3, [2], 2), path)
    described = json.loads(metadata_of(path)["model"])
    rewrite(path, described | {"backends": [["auto"]]})
    refused(path, "unknown backend ['auto']; expected one of auto, reference, cpu")
    rewrite(path, described | {"backends": []})
    refused(path)


NORM = nn.Sequential(nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Dropout(0.1), nn.GELU())


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, {"num_features": 4}, "has shape (3,), but the description says (4,)"),
        (0, {"num_features": 10**12}, "has shape"),  # takes no memory
        (0, {"num_features": True}, "num_features must be a positive integer"),
        (0, {"eps": math.nan}, "'eps' should be a finite number, at least 0"),
        (0, {"eps": -1}, "'eps' should be a finite number, at least 0"),
        (0, {"eps": "1"}, "'eps' should be a finite number"),
        (0, {"momentum": 1e400}, "'momentum' should be a finite number, at least 0 and at most 1"),
        (0, {"affine": 1}, "'affine' should be of type bool"),
        (0, {"affine": False}, "is not in the description"),
        (0, {"track_running_stats": False}, "is not in the description"),
        (1, {"normalized_shape": []}, "'normalized_shape' should have at least one size"),
        (1, {"normalized_shape": [3, 1]}, "has shape (3,), but the description says (3, 1)"),
        (1, {"normalized_shape": [3.5]}, "normalized_shape must be a positive integer, not 3.5"),
        (1, {"normalized_shape": [1] * 10_000}, ""),
        (1, {"bias": None}, "'bias' should be of type bool"),
        (1, {"eps": None}, "'eps' should be a finite number"),
        (2, {"p": 1.5}, "'p' should be a finite number, at least 0 and at most 1"),
        (2, {"p": math.nan}, "'p' should be a finite number"),
        (3, {"approximate": "exact"}, "'approximate' should be 'none' or 'tanh', not 'exact'"),
    ],
)
def test_an_inconsistent_normalisation_is_refused(
    tmp_path: Path, place: int, change: dict[str, Any], message: str
):
    path = tmp_path / "model"
    ftnn.save(NORM, path)
    described = json.loads(metadata_of(path)["model"])
    described["modules"][place][1] |= change
    rewrite(path, described)
    refused(path, "has no model that this version can build", message)


def test_the_scales_of_layers_are_checked(tmp_path: Path):
    path = tmp_path / "net"
    ftnn.save(Network(3, [2], 2), path)
    described = json.loads(metadata_of(path)["model"])
    for scales, message in (
        ([True], "hidden.0.scale is missing"),
        ([1], "'scales' should hold true or false, not 1"),
        ([False, False], ""),
        (5, ""),
    ):
        rewrite(path, described | {"scales": scales})
        refused(path, message)
    ftnn.save(Transfer(3, 2, "F12", scale=True), path)
    described = json.loads(metadata_of(path)["model"])
    for scale, message in (
        (False, "scale is not in the description"),
        ("yes", "'scale' should be of type bool"),
    ):
        rewrite(path, described | {"scale": scale})
        refused(path, message)


def test_buffers_of_the_wrong_dtype_are_refused(tmp_path: Path):
    path = tmp_path / "model"
    ftnn.save(NORM, path)
    _, tensors = parts(path)
    rewrite(path, tensors=tensors | {"0.num_batches_tracked": torch.tensor(1.0)})
    refused(path, "0.num_batches_tracked is torch.float32, but should be torch.int64")
    rewrite(path, tensors=tensors | {"0.running_var": torch.ones(3).double()})
    refused(path, "0 has tensors of different dtypes")


def test_files_without_scales_are_described_as_before(tmp_path: Path):
    for module in (Transfer(3, 2, "F12"), Network(3, [2], 2)):
        ftnn.save(module, tmp_path / "model")
        assert "scale" not in metadata_of(tmp_path / "model")["model"]


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_tensors_of_unsupported_dtypes_are_refused(model: Path, dtype: torch.dtype):
    _, tensors = parts(model)
    for name in tensors:
        rewrite(model, tensors=tensors | {name: tensors[name].to(dtype)})
        refused(model, name, "; expected one of torch.bfloat16, torch.float16")


def test_tensors_of_different_dtypes_in_one_layer_are_refused(model: Path):
    _, tensors = parts(model)
    rewrite(model, tensors=tensors | {"theta.b": tensors["theta.b"].double()})
    refused(model, "tensors of different dtypes")


def test_tensors_of_the_wrong_shape_are_refused(model: Path):
    _, tensors = parts(model)
    for wrong in (torch.zeros(2, 3), torch.zeros(3, 2, 1), torch.zeros(()), torch.zeros(0, 2)):
        rewrite(model, tensors=tensors | {"theta.b": wrong})
        refused(model, "theta.b has shape")


def test_a_model_file_error_is_an_ftnn_error_and_a_value_error():
    assert issubclass(ModelFileError, FtnnError)
    assert issubclass(ModelFileError, ValueError)


def test_too_many_tensors_are_refused_before_any_is_read(model: Path, monkeypatch: pytest.MonkeyPatch):
    content = model.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    header |= {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(MAX_TENSORS)}
    written = json.dumps(header).encode()
    hidden = written.replace(b'"data_offsets"', b'"data\\u005foffsets"')  # the same to a parser
    parsed: list[int] = []
    loads = json.loads

    def counted(text: bytes) -> Any:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr(safetensors.torch, "load", broken_by(KeyboardInterrupt("the tensors were read")))
    monkeypatch.setattr(json, "loads", counted)
    for text, times in ((written, 0), (hidden, 1)):
        parsed.clear()
        model.write_bytes(len(text).to_bytes(8, "little") + text + data)
        refused(model, f"it has {len(header) - 1} tensors; the limit is {MAX_TENSORS}")
        assert len(parsed) == times


def test_a_module_with_too_many_tensors_to_load_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ftnn.nn._files.MAX_TENSORS", 4)
    ftnn.save(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), tmp_path / "m")
    with pytest.raises(ModelFileError, match="cannot be saved: it has 5 tensors; the limit is 4"):
        ftnn.save(
            nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1, bias=False)), tmp_path / "m"
        )


@pytest.mark.parametrize("path", [None, 5, 1.5, [], {}, object(), torch.zeros(2)])
def test_an_invalid_path_is_refused(path: Any):
    with pytest.raises(ModelFileError, match="is not a path"):
        ftnn.load(path)


def test_loading_a_pipe_is_refused_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a file" in refused(tmp_path / "pipe")


@pytest.mark.parametrize("notes", [{"a": object()}, [1, 2], 5, {1: {2, 3}}])
def test_notes_that_json_cannot_hold_are_refused(tmp_path: Path, notes: Any):
    with pytest.raises(ModelFileError, match=r"notes=.* must be a mapping that JSON can hold"):
        ftnn.save(Transfer(3, 2, "F12"), tmp_path / "m", notes)
