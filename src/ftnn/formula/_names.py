"""Names with a meaning in formulas that are not on connections."""

PARAMETER, GRADIENT = "p", "g"
"""In update rules: a parameter and its gradient, a mean over the mini-batch."""
OUTPUT, TARGET = "y", "t"
"""In losses: an output and what it should be."""
