"""Kernel arguments are packed and read by name; targets compute sizes in vectors."""

from __future__ import annotations

import pytest

from ftnn.kernels.codegen.target import Args, Target


class Some(Args):
    samples: int
    stride: int
    out: int


def test_args_are_packed_in_the_order_of_their_names():
    assert Some(out=3, samples=1, stride=2) == (1, 2, 3)
    assert Some.names == ("samples", "stride", "out")


def test_places_gives_the_index_of_each_name():
    places = Some.places()
    assert (places.samples, places.stride, places.out) == (0, 1, 2)
    assert Some(samples=7, stride=8, out=9)[places.stride] == 8


def test_args_are_keyword_only():
    with pytest.raises(TypeError):
        Some(1, 2, 3)  # pyright: ignore[reportCallIssue]


def test_missing_and_unknown_names_raise():
    with pytest.raises(TypeError, match="takes samples, stride, out; got samples, stride"):
        Some(samples=1, stride=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="takes samples, stride, out; got samples, stride, count"):
        Some(samples=1, stride=2, count=3)  # pyright: ignore[reportCallIssue]


def test_target_computes_sizes_in_vectors():
    target = Target("float64", 4)
    assert (target.size, target.vectors(9), target.filled(9), target.filled(8)) == (8, 3, 12, 8)
