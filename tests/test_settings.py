"""Each setting of training is defined once, in `Settings`; signatures that spell it out agree with that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
import typer

from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.cli._train import train
from ftnn.estimators import Estimator
from ftnn.training import Settings, fit, fit_sequence
from ftnn.training._settings import DESCRIPTIONS

DEFAULTS: dict[str, Any] = {setting.name: setting.default for setting in fields(Settings)}

# What deliberately differs: another default, or NOT_THERE.
NOT_THERE = object()
ESTIMATORS: Mapping[str, Any] = {
    "gamma": -4,  # does well across data sets; the paper chooses for each function
    "epochs": 100,  # at most: a stage ends by n_iter_no_change; fine-tuning has fine_tuning_epochs
    "seed": NOT_THERE,  # scikit-learn calls it random_state
    "fine_tuning_shift": NOT_THERE,
    "threshold": NOT_THERE,
}
COMMAND: Mapping[str, Any] = {
    "gamma": 0.0,  # the paper's best for the command's default network on MNIST
    "epochs": 15,  # a number for each option: fine-tuning has --fine-tuning-epochs
    # Of these, the command takes the defaults:
    "clip": NOT_THERE,
    "momentum": NOT_THERE,
    "weight_decay": NOT_THERE,
    "fine_tuning_shift": NOT_THERE,
    "threshold": NOT_THERE,
}
SEQUENCES: Mapping[str, Any] = {
    "gamma": -4,  # the paper's, in its second experiment
    "epochs": 5000,  # of one stage, over one sequence
    **dict.fromkeys(
        # One pair at a time, in order, by plain SGD without stages:
        ("batch_size", "seed", "solver", "momentum", "weight_decay", "fine_tuning_shift", "threshold"),
        NOT_THERE,
    ),
}
SIGNATURES: list[tuple[Callable[..., Any], Mapping[str, Any]]] = [
    (fit, {}),
    (FTNNClassifier, ESTIMATORS),
    (FTNNRegressor, ESTIMATORS),
    (train, COMMAND),
    (fit_sequence, SEQUENCES),
]


@pytest.mark.parametrize(("function", "differences"), SIGNATURES)
def test_signatures_have_the_settings_names_and_defaults(
    function: Callable[..., Any], differences: Mapping[str, Any]
):
    parameters = inspect.signature(function).parameters
    spelled = {name: parameters[name].default if name in parameters else NOT_THERE for name in DEFAULTS}
    assert spelled == {**DEFAULTS, **differences}
    assert all(DEFAULTS[name] != value for name, value in differences.items())


def test_fine_tuning_epochs_of_their_own_have_the_same_default():
    for function in (FTNNClassifier, FTNNRegressor, train):
        assert inspect.signature(function).parameters["fine_tuning_epochs"].default == DEFAULTS["epochs"][1]


@pytest.mark.parametrize(("documented", "differences"), [(fit, {}), (Estimator, ESTIMATORS)])
def test_docstrings_have_the_settings_descriptions(documented: Any, differences: Mapping[str, Any]):
    text = " ".join((documented.__doc__ or "").split())
    for name, description in DESCRIPTIONS.items():
        if differences.get(name) is not NOT_THERE and not (name == "epochs" and differences):
            # It may go on: "The seed of all random numbers: the orders of samples and …".
            assert f"- `{name}`: {description.rstrip('.')}" in text


def test_options_have_the_settings_descriptions():
    hints = get_type_hints(train, include_extras=True)
    for name, description in DESCRIPTIONS.items():
        if name in hints and name != "epochs":
            (option,) = (part for part in get_args(hints[name]) if isinstance(part, typer.models.OptionInfo))
            assert option.help == description


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_defaults_pass_their_checks_unchanged(name: str, value: Any):
    kept = getattr(Settings(), name)
    assert (kept, type(kept)) == (value, type(value))
