"""Settings and options for all tests."""

from collections import defaultdict

import pytest
from hypothesis import settings

# The same examples on every machine and every run, however slow; and nothing kept in the tree.
settings.register_profile("ftnn", derandomize=True, deadline=None, database=None)
settings.load_profile("ftnn")

QUICK_CASES = 1
"""How many cases of a parametrised test `--quick` runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out slow tests, and run only one case of each parametrised test",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    chosen = {item.nodeid for test in cases.values() for item in spread(test)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def spread(cases: list[pytest.Item]) -> list[pytest.Item]:
    """At most `QUICK_CASES` of the cases: the first, the last, and evenly spaced ones between them."""
    if len(cases) <= QUICK_CASES:
        return cases
    step = (len(cases) - 1) / max(QUICK_CASES - 1, 1)
    return [cases[round(number * step)] for number in range(QUICK_CASES)]
