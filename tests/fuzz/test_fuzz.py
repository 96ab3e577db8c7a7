"""A hundred random formulas against the oracle; `make fuzz` runs more."""

from __future__ import annotations

import pytest

from tests.fuzz.cases import case
from tests.fuzz.check import check, shrunk
from tests.fuzz.report import full

GROUP = 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, GROUP))
def test_random_formulas_match_the_oracle(first: int):
    compared = skipped = 0
    for seed in range(first, first + GROUP):
        outcome = check(case(seed))
        for failure in outcome.failures[:1]:
            pytest.fail(full(shrunk(failure, seconds=4)))
        compared += outcome.compared
        skipped += outcome.skipped
    assert skipped < 0.6 * compared
