"""`python -m tests.fuzz`: compare ftnn with an oracle that shares no code with it.

python -m tests.fuzz --count 2000 --seed 0 --jobs 2    # 2,000 formulas
python -m tests.fuzz --time 3600 --seed 7              # for an hour
python -m tests.fuzz --case 7000123                    # rerun one case, with a script that reproduces it
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

CASES_PER_SEED = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=None, help="how many formulas (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the formulas")
    parser.add_argument("--time", type=float, default=None, help="stop after this many seconds")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--case", type=int, default=None, help="run only this case")
    parser.add_argument("--no-shrink", action="store_true", help="print failures without shrinking them")
    options = parser.parse_args()
    shrink = not options.no_shrink
    if options.case is not None:
        totals = Totals()
        totals.add(plain(check(case(options.case)), shrink=shrink))
        print(f"{totals.compared} entries compared, {totals.failures} failures")
        return int(bool(totals.failures))
    count = options.count if options.count is not None else 2000 if options.time is None else CASES_PER_SEED
    first = options.seed * CASES_PER_SEED
    until = time.monotonic() + (options.time if options.time is not None else float("inf"))
    with tempfile.TemporaryDirectory(prefix="ftnn-fuzz-") as folder:
        os.environ.setdefault("FTNN_CACHE", folder)  # thousands of kernels that are never needed again
        totals = run(iter(range(first, first + count)), options.jobs, shrink, until)
    share = totals.skipped / max(totals.compared, 1)
    print(f"\n{totals.formulas} formulas, {totals.compared} entries compared, {share:.1%} of them skipped:")
    print("rounding decides their result (a branch, a pole, an intermediate overflow)")
    for group, texts in sorted(totals.groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(texts):5d}  {', '.join(group)}")
    print(f"{totals.failures} failures in {len(totals.groups)} groups")
    return int(bool(totals.failures))


if __name__ == "__main__":
    sys.exit(main())
