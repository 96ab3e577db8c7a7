"""Formulas, without torch. The pipeline, file by file:

1. text → expression: `_parse` (and back: `_text`), using the table of operations `_ops`. An expression is a
   graph (`_expr`) whose constant parts are computed when it is built (`_numbers`).
2. expression → derivatives: `_derive`.
3. expression → plan: `_split` multiplies it out into `_terms`; `_plan` groups these into matrix products,
   unless multiplying out loses digits.
4. `_function` ties this together for one formula (`_where` reads ranges in the text, `_ranges` checks its
   arguments, and `_elsewhere` knows what functions are called elsewhere). `_catalogue` has the
   paper's functions; `_mixed` combines several in one matrix; `_amplitudes` finds the parameters that scale a
   function.
5. function → explanation: `_explain` reports what `_measure` finds by evaluating with `_numpy`; `_sympy`
   prints derivatives.
"""

from ftnn.formula._catalogue import as_function as as_function
from ftnn.formula._catalogue import catalogue as catalogue
from ftnn.formula._catalogue import name_of as name_of
from ftnn.formula._function import Function as Function
from ftnn.formula._mixed import Mixed as Mixed
from ftnn.formula._plan import Plan as Plan
