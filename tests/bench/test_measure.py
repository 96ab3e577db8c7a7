"""Systems are measured in turns."""

import gc

import pytest
import torch

from ftnn.bench._data import Data, sparse
from ftnn.bench._measure import Burst, Effort, Timing, measure, threads


def test_each_round_measures_every_system_in_rotating_order():
    calls: list[tuple[str, int]] = []

    def burst(name: str) -> Burst:
        return lambda first, steps: calls.append((name, first))

    effort = Effort(rounds=3, least_rounds=3, burst_seconds=0.0, task_seconds=60)
    timings = measure({name: burst(name) for name in "abc"}, effort)
    assert [name for name, _ in calls[-9:]] == [*"abc", *"bca", *"cab"]
    assert [first for _, first in calls[-9:]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # the same data for all
    assert all(len(timing.ms) == 3 for timing in timings.values())


def test_measuring_stops_at_the_time_limit_after_a_minimum_of_rounds():
    effort = Effort(rounds=50, least_rounds=4, burst_seconds=0.0, task_seconds=0.0)
    assert len(measure({"a": lambda first, steps: None}, effort)["a"].ms) == 4


def test_a_burst_has_more_steps_if_they_are_short():
    asked: list[int] = []
    effort = Effort(rounds=1, least_rounds=1, burst_seconds=1.0, most_steps=50, task_seconds=60)
    measure({"a": lambda first, steps: asked.append(steps)}, effort)
    assert asked[-1] == 50


def test_garbage_collection_is_enabled_again_after_an_error():
    def fails(first: int, steps: int) -> None:
        if not gc.isenabled():
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        measure({"a": fails}, Effort(rounds=1))
    assert gc.isenabled()


def test_the_number_of_threads_is_restored_after_an_error():
    before = torch.get_num_threads()

    def fails() -> None:
        with threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fails()
    assert torch.get_num_threads() == before


def test_medians_and_quartiles_of_timings():
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0))
    assert timing.median == 3
    assert timing.quartiles == (2, 4)
    assert Timing((7.0,)).quartiles == (7, 7)
    assert timing.scaled(2).median == 6


@pytest.mark.parametrize("steps", [1, 3, 17])
def test_a_burst_stays_within_the_order_from_any_start(steps: int):
    data = sparse(0.5, inputs=3, count=70)
    for first in (0, 1, 1000, 123_456):
        start = data.start(first, steps, 4)
        assert 0 <= start <= len(data.order) - 4 * steps
    assert data.start(2, steps, 4) == 8


def test_an_order_consists_of_complete_permutations():
    data: Data = sparse(0.5, inputs=3, count=70)
    assert sorted(data.order[:70]) == sorted(data.order[70:140]) == list(range(70))
    assert list(data.order[:70]) != list(data.order[70:140])


def test_a_burst_longer_than_the_order_is_refused():
    data = sparse(0.5, inputs=3, count=70)
    with pytest.raises(ValueError, match="do not fit in an order"):
        data.start(0, len(data.order), 2)
