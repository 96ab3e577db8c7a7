"""`python -m tests.fuzz`: ftnn against an oracle that shares no code with it.

python -m tests.fuzz --count 2000 --seed 0 --jobs 2    # formulas
python -m tests.fuzz --time 3600 --seed 7              # for an hour
python -m tests.fuzz --case 7000123                    # one again, with a script that shows it
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

from tests.fuzz.cases import case
from tests.fuzz.check import check
from tests.fuzz.workers import Totals, plain, run

A_SEED = 1_000_000
"""So many cases belong to one seed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=None, help="how many formulas (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--time", type=float, default=None, help="stop after so many seconds")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--case", type=int, default=None, help="run this case alone")
    parser.add_argument("--no-shrink", action="store_true", help="show failures as they were found")
    given = parser.parse_args()
    shrink = not given.no_shrink
    if given.case is not None:
        totals = Totals()
        totals.add(plain(check(case(given.case)), shrink=shrink))
        print(f"{totals.compared} entries compared, {totals.failures} failures")
        return int(bool(totals.failures))
    count = given.count if given.count is not None else 2000 if given.time is None else A_SEED
    first = given.seed * A_SEED
    until = time.monotonic() + (given.time if given.time is not None else float("inf"))
    with tempfile.TemporaryDirectory(prefix="ftnn-fuzz-") as folder:
        os.environ.setdefault("FTNN_CACHE", folder)  # thousands of kernels that nobody wants again
        totals = run(iter(range(first, first + count)), given.jobs, shrink, until)
    share = totals.skipped / max(totals.compared, 1)
    print(f"\n{totals.formulas} formulas, {totals.compared} entries compared, {share:.1%} of them skipped:")
    print("there rounding decides (a branch, a pole, an overflow on the way)")
    for group, texts in sorted(totals.groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(texts):5d}  {', '.join(group)}")
    print(f"{totals.failures} failures in {len(totals.groups)} groups")
    return int(bool(totals.failures))


if __name__ == "__main__":
    sys.exit(main())
