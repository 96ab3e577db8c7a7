from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftnn.data import pi_digits
from ftnn.data._pi import _digits
from ftnn.errors import DataError

FIFTY = "31415926535897932384626433832795028841971693993751"


def text(n: int) -> str:
    return "".join(map(str, pi_digits(n)))


def machin(n: int) -> str:
    """The first n digits by Machin's formula in integers: π = 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 10 ** (n + 20)

    def arctan_of_inverse(x: int) -> int:
        power = total = one // x
        k = 1
        while power:
            power //= -x * x
            k += 2
            total += power // k
        return total

    return str(16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239))[:n]


def test_the_first_fifty_digits_of_pi():
    digits = pi_digits(50)
    assert digits.dtype == np.int64
    assert digits.shape == (50,)
    assert "".join(map(str, digits)) == FIFTY


def test_one_digit_is_the_leading_three():
    assert pi_digits(1).tolist() == [3]


def test_the_feynman_point_is_at_decimal_762():
    assert pi_digits(800)[761:769].tolist() == [4, 9, 9, 9, 9, 9, 9, 8]


def test_the_digits_match_machins_formula():
    assert text(4000) == machin(4000)


def test_ten_thousand_decimals_end_correctly():
    assert text(10_001).endswith("5256375678")


@given(st.integers(1, 2000))
def test_fewer_digits_are_a_prefix_of_more(n: int):
    assert text(n) == text(2000)[:n]


@pytest.mark.parametrize("n", range(755, 775))
def test_the_last_digit_is_not_rounded(n: int):
    # One guard digit within the run of nines: rounding carries into the result, which must be detected.
    assert _digits(n, guard=1) == text(800)[:n]


def test_numpy_integers_are_accepted():
    assert pi_digits(np.int32(3)).tolist() == [3, 1, 4]


def test_the_global_mpmath_precision_is_unchanged():
    before = mpmath.mp.dps
    pi_digits(1000)
    assert mpmath.mp.dps == before


def test_each_call_of_pi_digits_returns_a_new_array():
    pi_digits(5)[:] = 0
    assert text(5) == "31415"


@pytest.mark.parametrize("n", [0, -1, 2.0, 3.5, "10", None, True, float("nan")])
def test_a_number_that_is_not_a_positive_integer_is_refused(n: Any):
    with pytest.raises(DataError, match="must be a positive integer") as caught:
        pi_digits(n)
    assert repr(n) in str(caught.value)
