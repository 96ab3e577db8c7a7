"""Each setting of training is defined once, in `Settings`; signatures that spell it out agree with that."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
import typer

from ftnn import FTNNClassifier, FTNNRegressor
from ftnn.cli._train import train
from ftnn.errors import FtnnError
from ftnn.estimators import Estimator
from ftnn.training import RULES, Settings, fit, fit_sequence
from ftnn.training._settings import DESCRIPTIONS

DEFAULTS: dict[str, Any] = {setting.name: setting.default for setting in fields(Settings)}

# What deliberately differs: another default, or NOT_THERE.
NOT_THERE = object()
ESTIMATORS: Mapping[str, Any] = {
    "seed": NOT_THERE,  # scikit-learn calls it random_state
    "fine_tuning_shift": NOT_THERE,
    "threshold": NOT_THERE,
}
COMMAND: Mapping[str, Any] = dict.fromkeys(
    # Of these, the command takes the defaults:
    ("clip", "momentum", "fine_tuning_shift", "threshold"),
    NOT_THERE,
)
SEQUENCES: Mapping[str, Any] = {
    "gamma": -4,  # the paper's, in its second experiment
    "epochs": 5000,  # of one stage, over one sequence
    **dict.fromkeys(
        # One pair at a time, in order, by plain SGD without stages:
        set(DEFAULTS) - {"gamma", "epochs", "clip"},
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


def test_sums_are_not_normalised_over_two_or_three_samples_by_default():
    """Over two samples, all normalised sums are ±1."""
    normalised = {size: Settings(batch_size=size).normalise for size in (None, 1, 2, 3, 4)}
    assert normalised == {None: True, 1: True, 2: False, 3: False, 4: True}
    assert Settings(batch_size=2, normalise=True).normalise


@pytest.mark.parametrize(("function", "differences"), SIGNATURES)
def test_signatures_have_the_settings_names_and_defaults(
    function: Callable[..., Any], differences: Mapping[str, Any]
):
    parameters = inspect.signature(function).parameters
    spelled = {name: parameters[name].default if name in parameters else NOT_THERE for name in DEFAULTS}
    assert spelled == {**DEFAULTS, **differences}
    assert all(DEFAULTS[name] != value for name, value in differences.items())


def test_the_estimators_fine_tuning_epochs_are_those_of_the_paper():
    for function in (FTNNClassifier, FTNNRegressor):
        assert inspect.signature(function).parameters["fine_tuning_epochs"].default == 15


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
        if name in hints and name not in ("epochs", "bounds"):  # which take other values
            (option,) = (part for part in get_args(hints[name]) if isinstance(part, typer.models.OptionInfo))
            assert (option.help or "").startswith(description)  # then perhaps its default


def test_the_papers_settings_are_chosen_by_gamma_and_the_direct_ones_without():
    papers, direct = Settings(gamma=-2), Settings()
    assert (papers.solver, papers.epochs, papers.batch_size) == ("layerwise", (15, 15), 16)
    assert papers.optimizer == RULES["sgd"]
    assert papers.schedule is None
    assert (papers.rate, papers.fine_tuning_rate) == (2**-2, 2**-6)
    assert (direct.solver, direct.epochs, direct.batch_size) == ("direct", (10, 10), 32)
    assert direct.optimizer == RULES["adamw"]
    assert direct.schedule == "one-cycle"
    assert (direct.learning_rate, direct.gamma) == (None, None)
    assert (papers.clip_norm, papers.normalise) == (None, False)
    assert (direct.clip_norm, direct.normalise) == (1.0, True)


def test_a_learning_rate_and_a_weight_decay_come_from_the_network_unless_they_are_set():
    def chosen() -> dict[str, float]:
        return {"learning_rate": 0.5, "weight_decay": 0.25}

    def completed(**settings: Any) -> tuple[float, float | None]:
        complete = Settings(**settings).completed(chosen)
        return complete.rate, complete.weight_decay

    assert completed() == (0.5, 0.25)
    assert completed(learning_rate=0.1) == (0.1, 0.25)
    assert completed(weight_decay=0.01) == (0.5, 0.01)
    assert completed(learning_rate=0.1, weight_decay=0) == (0.1, 0)
    assert completed(optimizer="adam") == completed(momentum=0.9) == (0.5, 0)  # their own choice: no decay
    assert completed(gamma=-1) == completed(gamma=-1, solver="joint") == (0.5, 0)
    assert completed(gamma=-1, solver="direct") == (0.5, 0.25)
    assert completed(learning_rate=0.1, solver="layerwise") == (0.1, 0)


def test_an_infinite_clip_norm_is_no_limit():
    assert Settings(clip_norm=0.5).largest_norm == 0.5
    assert Settings(clip_norm=math.inf).largest_norm is None
    assert "clip_norm" not in Settings(clip_norm=math.inf).describe()


def test_only_the_direct_solver_normalises():
    assert Settings().describe()["normalise"] is True
    assert "normalise" not in Settings(normalise=False).describe()
    assert "normalise" not in Settings(gamma=-2).describe()
    with pytest.raises(FtnnError, match="normalise=True is for the direct solver, not for solver='joint'"):
        Settings(solver="joint", normalise=True)
    with pytest.raises(FtnnError, match="normalise='yes' must be True or False"):
        Settings(normalise="yes")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "value"), [item for item in DEFAULTS.items() if item[1] is not None])
def test_defaults_pass_their_checks_unchanged(name: str, value: Any):
    checked = getattr(Settings(), name)
    assert (checked, type(checked)) == (value, type(value))
