# pyright: reportUnknownLambdaType=false
"""Training on a DataLoader or any other iterable of mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ftnn.errors import FtnnError
from ftnn.training import digest, fit
from tests.training.problems import blobs, network

X, Y = blobs(samples=150)
DATA = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def batches(size: int = 16) -> list[tuple[Any, Any]]:
    return [(X[n : n + size], Y[n : n + size]) for n in range(0, 150, size)]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_mini_batches_train_like_arrays_in_the_same_order(engine: Any, monkeypatch: pytest.MonkeyPatch):
    # The first statistics of normalised sums are those of all arrays, but only of the first mini-batch.
    monkeypatch.setattr("ftnn.training._normalised._spread", lambda x: x[:16])
    streamed, whole = network("F12"), network("F12")
    one = fit(streamed, batches(), epochs=3, engine=engine, learning_rate=0.01)
    monkeypatch.setattr("ftnn.training._run.order", lambda *_: np.arange(150))
    other = fit(whole, X, Y, epochs=3, batch_size=16, engine=engine, learning_rate=0.01)
    assert [e.loss for e in one.epochs] == pytest.approx([e.loss for e in other.epochs], rel=1e-12)
    assert [e.train_accuracy for e in one.epochs] == [e.train_accuracy for e in other.epochs]
    for actual, expected in zip(streamed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_data_loader_is_iterated_once_per_epoch(engine: Any):
    loader = DataLoader(DATA, batch_size=20, shuffle=True, generator=torch.Generator().manual_seed(0))
    net = network()
    history = fit(net, loader, epochs=10, engine=engine, learning_rate=0.02, test=(X, Y))
    assert history.engine == engine
    assert len(history.epochs) == 10
    assert history.accuracy is not None
    assert history.accuracy > 90


def test_images_are_flattened():
    images = [(torch.randn(8, 1, 5), torch.randint(3, (8,))) for _ in range(3)]
    assert len(fit(network(), images, epochs=2).epochs) == 2


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_mini_batches_may_have_weights(engine: Any, monkeypatch: pytest.MonkeyPatch):
    weights = np.random.default_rng(0).integers(0, 3, 150).astype(float)
    weights[16:32] = 0  # a whole mini-batch
    weighted = [(x, y, weights[16 * n : 16 * n + 16]) for n, (x, y) in enumerate(batches())]
    streamed, whole = network("F12"), network("F12")
    settings: Any = {"engine": engine, "learning_rate": 0.01, "normalise": False, "epochs": 3}
    one = fit(streamed, weighted, calibrate=False, **settings)
    monkeypatch.setattr("ftnn.training._run.order", lambda *_: np.arange(150))
    other = fit(whole, X, Y, sample_weight=weights, batch_size=16, calibrate=False, **settings)
    assert [e.loss for e in one.epochs] == pytest.approx([e.loss for e in other.epochs], rel=1e-12)
    for actual, expected in zip(streamed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


class Unsized:
    """An iterable without a length."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(batches())


def test_an_iterable_without_a_length_trains_with_a_constant_rate():
    assert len(fit(network(), Unsized(), epochs=2, schedule="constant").epochs) == 2
    with pytest.raises(FtnnError, match="needs to know how many mini-batches there are"):
        fit(network(), Unsized(), epochs=2, schedule="one-cycle")


class Samples(IterableDataset[Any]):
    """A dataset without a length: the loader's own `len` raises an error, and it has no other truth value."""

    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


def test_a_data_loader_without_a_length_trains_with_a_constant_rate():
    loader = DataLoader(Samples(), batch_size=20)
    assert len(fit(network(), loader, epochs=2, schedule="constant").epochs) == 2


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([], {}, "has no mini-batches"),
        (5, {}, "must be an iterable of mini-batches"),
        ([1, 2], {}, r"expected mini-batches \(x, y\) or \(x, y, weights\)"),
        (batches(), {"batch_size": 8}, "batch_size cannot be used with an iterable"),
        (batches(), {"checkpoint": "c"}, "checkpoint cannot be used with an iterable"),
        (batches(), {"gamma": -2}, "layerwise.* cannot be used with an iterable"),
        (
            batches(),
            {"sample_weight": np.ones(150)},
            "sample_weight .* pass mini-batches",
        ),
        (list(reversed(batches())), {}, "mini-batch 1, counted from 0: 16 samples; expected at most 6"),
        ([(X[:9], Y[:8])], {}, "8 rows for 9 samples"),
        (
            [*batches()[:3], (X[:9] * [[np.nan]], Y[:9])],
            {},
            "mini-batch 3, counted from 0: x has nan in row 0",
        ),
        ([*batches()[:1], (X[:9], Y[:8])], {}, "mini-batch 1, counted from 0: y has 8 rows for 9 samples"),
        ([*batches()[:1], 5], {}, "mini-batch 1, counted from 0: expected mini-batches"),
        (
            [(X, Y, np.ones(150)), (X, Y)],
            {},
            "counted from 0: no weights, unlike the first",
        ),
        (
            [(X, Y), (X, Y, np.ones(150))],
            {},
            "counted from 0: weights, unlike the first",
        ),
        ([(X, Y, np.ones(9))], {}, "sample_weight has shape"),
        ([(X[:9, :3], Y[:9])], {}, r"has shape \(9, 3\); expected \(samples, 5\)"),
    ],
)
def test_unusable_mini_batches_and_settings_are_refused(data: Any, settings: dict[str, Any], message: str):
    with pytest.raises(FtnnError, match=message):
        fit(network(), data, epochs=1, **settings)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("epochs", [1, 2])
def test_an_iterator_is_refused_before_it_loses_its_first_mini_batch(count: int, epochs: int):
    for iterator in (iter(batches()[:count]), (batch for batch in batches()[:count])):
        with pytest.raises(FtnnError, match="is an iterator, which can be used only once; pass a DataLoader"):
            fit(network(), iterator, epochs=epochs, schedule="constant")
        assert len(list(iterator)) == count


class Restarting:
    """A loader that is its own iterator, and starts again each time."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.rest = batches()
        return self

    def __next__(self) -> tuple[Any, Any]:
        if not self.rest:
            raise StopIteration
        return self.rest.pop(0)

    def __len__(self) -> int:
        return len(batches())


def test_a_loader_that_is_its_own_iterator_may_start_again_for_each_epoch():
    nets = network(), network()
    for net, data in zip(nets, (Restarting(), batches()), strict=True):
        fit(net, data, epochs=2)
    assert digest(nets[0]) == digest(nets[1])


def test_an_iterable_that_ends_early_is_refused():
    class Once(Restarting):
        rest = batches()[:1]

        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            return self

    data = Once()
    with pytest.raises(FtnnError, match="no mini-batches in epoch 1"):
        fit(network(), data, epochs=1)


def test_a_length_that_is_too_small_does_not_take_a_schedule_beyond_its_end():
    class Short(list[Any]):
        def __len__(self) -> int:
            return 3

    seen: list[float] = []

    def falling(done: float) -> float:
        seen.append(done)
        return 1 - done

    fit(network(), Short(batches()), epochs=2, schedule=falling)
    assert max(seen) == 1
