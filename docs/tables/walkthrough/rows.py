"""A line of the walkthrough's table, and how much work the tasks do."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Effort:
    """How much is computed: all of it for the table, little for a test."""

    splits: int = 5
    """Of tables, which vary more than seeds of networks on larger data."""
    seeds: int = 3
    share: float = 1.0
    """Of the samples and epochs."""

    def of(self, whole: int, least: int = 1) -> int:
        return max(least, round(whole * self.share))


@dataclass(frozen=True)
class Row:
    """What was done, what came out, what the others reach, and ftnn's difference to the best of them."""

    what: str
    ftnn: str
    others: str = ""
    difference: str = ""


def compared(what: str, scores: dict[str, list[float]]) -> Row:
    """Scores in percent, one for each seed, ftnn's first. "!": below by more than two standard errors."""
    (_, ours), *others = scores.items()
    best = max((values for _, values in others), key=np.mean)
    differences = np.array(ours) - np.array(best)
    mean, error = differences.mean(), differences.std(ddof=1) / len(differences) ** 0.5
    mark = " !" if mean < -2 * error else ""
    rivals = ", ".join(f"{name} {np.mean(values):.1f}" for name, values in others)
    return Row(what, f"{np.mean(ours):.1f}", rivals, f"{mean:+.1f} ± {error:.1f}{mark}")
