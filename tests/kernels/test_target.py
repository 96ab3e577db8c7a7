"""Arguments are packed and read by name."""

from __future__ import annotations

import pytest

from ftnn.kernels.codegen.target import Args, Target


class Some(Args):
    samples: int
    stride: int
    out: int


def test_numbers_stand_in_the_order_of_the_names_however_they_are_given():
    assert Some(out=3, samples=1, stride=2) == (1, 2, 3)
    assert Some.names == ("samples", "stride", "out")


def test_each_place_has_its_name():
    places = Some.places()
    assert (places.samples, places.stride, places.out) == (0, 1, 2)
    assert Some(samples=7, stride=8, out=9)[places.stride] == 8


def test_an_order_cannot_be_given():
    with pytest.raises(TypeError):
        Some(1, 2, 3)  # pyright: ignore[reportCallIssue]


def test_a_name_that_is_missing_or_wrong_is_refused():
    with pytest.raises(TypeError, match="takes samples, stride, out; got samples, stride"):
        Some(samples=1, stride=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="takes samples, stride, out; got samples, stride, count"):
        Some(samples=1, stride=2, count=3)  # pyright: ignore[reportCallIssue]


def test_a_target_knows_how_many_vectors_hold_some_numbers():
    target = Target("float64", 4)
    assert (target.size, target.vectors(9), target.filled(9), target.filled(8)) == (8, 3, 12, 8)
