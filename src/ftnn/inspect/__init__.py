"""Inspection of networks: dead and sleeping connections, pruning, plots, and formulas."""

from ftnn.inspect._arrays import numpy as numpy
from ftnn.inspect._census import Census as Census
from ftnn.inspect._census import Counts as Counts
from ftnn.inspect._census import connections as connections
from ftnn.inspect._expressions import latex as latex
from ftnn.inspect._expressions import sympy as sympy
from ftnn.inspect._plot import plot as plot
from ftnn.inspect._prune import prune as prune
