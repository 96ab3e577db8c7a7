"""Files from earlier versions, written by `make.py`, are read with the same results."""

from __future__ import annotations

import csv
import io
import shutil
import sqlite3
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import ftnn
from ftnn.cli import app
from ftnn.experiments import Store
from tests.versions.make import MODULES, run, small_network, train

VERSIONS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "store.sqlite").exists())
RESULTS = {
    "0.1.0": {"lwt": 1, "ft": 2, "pi": 1, "conic": 1},
    "0.1-last": {"lwt": 2, "ft": 3, "pi": 1, "conic": 1},
}
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)


def command(*words: object) -> str:
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_there_are_files_from_each_version():
    assert {"0.1.0", "0.1-last"} <= {path.name for path in VERSIONS}


@each_version
@pytest.mark.parametrize("name", MODULES)
def test_models_from_earlier_versions_give_the_same_outputs(version: Path, name: str):
    module = ftnn.load(version / f"{name}.safetensors")
    expected = safetensors.torch.load_file(version / "expected.safetensors")[name]
    torch.testing.assert_close(run(module), expected, rtol=1e-12, atol=1e-14)


@each_version
@pytest.mark.parametrize("name", MODULES)
def test_models_from_earlier_versions_keep_their_tensor_names(version: Path, name: str):
    stored = safetensors.torch.load_file(version / f"{name}.safetensors")
    state = ftnn.load(version / f"{name}.safetensors").state_dict()
    assert state.keys() == stored.keys()
    assert all(torch.equal(state[key], stored[key]) for key in stored)


@each_version
def test_training_resumes_from_checkpoints_of_earlier_versions(version: Path, tmp_path: Path):
    path = tmp_path / "checkpoint.safetensors"
    shutil.copy(version / "checkpoint.safetensors", path)
    net = small_network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # version 1 does not store the optimizer, and warns
        train(net, path)
    expected = safetensors.torch.load_file(version / "expected.safetensors")
    for name, trained in net.state_dict().items():
        torch.testing.assert_close(trained, expected[f"trained.{name}"], rtol=1e-9, atol=1e-12)


@each_version
def test_a_resumed_run_does_not_start_over(version: Path, tmp_path: Path):
    path = tmp_path / "checkpoint.safetensors"
    epochs: list[object] = []
    shutil.copy(version / "checkpoint.safetensors", path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(small_network(), path, watch=epochs.append)
    assert len(epochs) == 9 - 3  # three for each of two layers and fine-tuning; interrupted in the fourth


@each_version
@pytest.mark.parametrize(("what", "now"), [("mnist", "other"), ("custom", "custom"), ("other", "other")])
def test_csv_files_from_earlier_versions_round_trip(version: Path, what: str, now: str, tmp_path: Path):
    store, out = tmp_path / "store.sqlite", tmp_path / "out.csv"
    command("store", "import", version / f"{what}.csv", "--store", store)
    command("store", "export", out, "--what", now, "--store", store)
    # Files of 0.1 do not state ranges of ±0.1, the version of their results, nor the CPU. Without the column
    # `data`, they are of all 60,000 images, which was the default.
    text = (version / f"{what}.csv").read_text()
    text = text.replace(
        "q*tanh(r*x) where q in [-1, 1]",
        "q*tanh(r*x) where p in [-0.1, 0.1] and q in [-1, 1] and r in [-0.1, 0.1]",
    )
    unstated = {"data": "mnist", "lwt_validation_accuracy": "", "validation_accuracy": "", "results": "2"}
    unstated |= {"cpu": ""}
    if now == "other":
        unstated |= {"lwt_epochs": "15", "ft_epochs": "15", "width": "128", "batch_size": "16"}
    expected = [unstated | line for line in csv.DictReader(io.StringIO(text))]
    assert expected
    assert list(csv.DictReader(io.StringIO(out.read_text()))) == expected


@each_version
def test_parquet_files_from_earlier_versions_are_imported(version: Path, tmp_path: Path):
    command("store", "import", version / "all.parquet", "--store", tmp_path / "store.sqlite")
    with sqlite3.connect(version / "store.sqlite") as db:
        digests = [digest for (digest,) in db.execute("SELECT digest FROM stages")]
    with Store(tmp_path / "store.sqlite") as store:
        rows, damaged = store.survey()
    assert not damaged
    assert sorted(row.digest for row in rows) == sorted(digests)
    assert {(row.task.kind, row.task.version) for row in rows} == {*RESULTS["0.1.0"].items()}


@each_version
def test_stores_from_earlier_versions_are_read_completely(version: Path, tmp_path: Path):
    path = tmp_path / "store.sqlite"
    shutil.copy(version / "store.sqlite", path)
    with sqlite3.connect(path) as db:
        stored = dict(db.execute("SELECT key, digest FROM stages"))
    with Store(path) as store:
        rows, damaged = store.survey()
        outdated = [row for row in rows if row.task.older is not None]
        assert not store.done(row.task.at(row.task.results).key for row in outdated)  # will be rerun
    assert not damaged
    assert {row.key: row.digest for row in rows} == stored
    assert {(row.task.kind, row.task.version) for row in rows} == {*RESULTS[version.name].items()}
