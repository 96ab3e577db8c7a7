"""Formulas: text, symbols, derivatives and plans. Knows no torch."""

from ftnn.formula._catalogue import as_function as as_function
from ftnn.formula._catalogue import catalogue as catalogue
from ftnn.formula._catalogue import name_of as name_of
from ftnn.formula._function import Function as Function
from ftnn.formula._mixed import Mixed as Mixed
from ftnn.formula._plan import Plan as Plan
