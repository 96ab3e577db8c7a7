"""Planted faults: each one breaks a copy of the source, and a test must catch it.

    python -m tests.faults              # all of them
    python -m tests.faults --list       # names, places and tests
    python -m tests.faults --only NAME

A fault that no test catches means that a mistake like it would go unnoticed. A test that also fails without
the fault does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
SECONDS = 900
"""How long the tests of one fault may take."""

Verdict = Literal["caught", "MISSED", "NOT FOUND", "BROKEN"]


@dataclass(frozen=True)
class Fault:
    """A one-line change that a test must notice."""

    name: str
    package: str
    """The folder in `src/ftnn` (or file) in which `old` occurs exactly once."""
    old: str
    new: str
    tests: str
    """Test files that must fail, separated by spaces, relative to `tests`."""


FAULTS = (
    # --- formulas ---
    Fault("cos-slope-sign", "formula", '"cos", "-sin(a)"', '"cos", "sin(a)"', "formula/test_ops.py"),
    Fault("quotient-slope-sign", "formula", '"-a/b**2"', '"a/b**2"', "formula/test_ops.py"),
    Fault("relu-slope-at-zero", "formula", '"where(a <= 0, 0, 1)"', '"where(a < 0, 0, 1)"',
          "formula/test_derive.py"),
    Fault("no-surrogate-slope", "formula", 'by_parameter=("1",)', "by_parameter=None",
          "formula/test_derive.py"),
    Fault("catalogue-range", "formula", '{"p": (0.0, 0.2)}', '{"p": (0.0, 2.0)}',
          "formula/test_catalogue.py"),
    Fault("parser-takes-keywords", "formula", "if node.keywords:", "if False:", "formula/test_parse.py"),
    Fault("parser-without-limit", "formula", "count > MAX_NODES", "count > 99 * MAX_NODES",
          "formula/test_parse.py"),
    Fault("expands-and-cancels", "formula", "rank(rows) == len(powers)", "True", "formula/test_plan.py"),
    Fault("degrees-of-sums-unchecked", "formula", "equations.append(_combined(first, second, -1))", "pass",
          "formula/test_amplitudes.py"),
    # --- kernels ---
    Fault("tile-one-short", "kernels", "Tile(first, stop - first,", "Tile(first, max(1, stop - first - 1),",
          "kernels/test_cpu.py"),
    Fault("factor-dropped", "kernels", "total if part is ONE else v.mul(total, factor)", "total",
          "kernels/test_cpu.py"),
    Fault("no-error-from-later-steps", "kernels", "v.mul(error, values[count]) if through_time else zero",
          "zero", "kernels/test_through_time.py"),
    Fault("float64-power-rounded", "kernels", "v.select(v.eq(y, product), rest, v.const(0.0))",
          "v.const(0.0)", "kernels/test_power.py"),
    Fault("block-overwrites-sum", "kernels", "part += _summed(value, axes)",
          "part.copy_(_summed(value, axes))",
          "kernels/test_reference.py"),
    Fault("constant-term-dropped", "kernels", "out += gs[-1].sum(0)", "pass",
          "kernels/test_gemm.py"),
    Fault("norm-of-unclipped-gradients", "kernels", "v.clamp(k.load(array, k.times(vec, v.lanes)), clip)",
          "k.load(array, k.times(vec, v.lanes))", "training/compiled/test_network.py"),
    Fault("cache-digest-unchecked", "kernels", "hmac.compare_digest(digest,", "bool(",
          "kernels/test_cache.py"),
    Fault("cache-group-writable", "kernels", "(stat.S_IWGRP | stat.S_IWOTH)", "stat.S_IWOTH",
          "kernels/test_cache.py"),
    # --- layers ---
    Fault("memory-bias-forgotten", "nn", "out = out + self.bias", "pass", "nn/test_memory.py"),
    Fault("memory-not-detached", "kernels", "cell if through_time else cell.detach()", "cell",
          "kernels/test_through_time.py"),
    Fault("model-digest-unchecked", "nn", 'metadata.get("notes", ""), tensors)',
          'metadata.get("notes", ""), tensors) and False', "nn/test_damaged_files.py"),
    Fault("kinds-transposed", "nn", "[self.outputs.long(), self.inputs.long()])\n",
          "[self.inputs.long(), self.outputs.long()])\n", "nn/test_partial.py"),
    Fault("negative-scale-folded", "nn", "if takes_negative(function, exponents):", "if True:",
          "nn/test_folding.py"),
    Fault("old-bias-not-scaled", "nn", "layer.bias.double() * scale + shift", "layer.bias.double() + shift",
          "nn/test_folding.py"),
    # --- training ---
    Fault("rate-quartered", "training", "rate /= 2", "rate /= 4", "training/test_fit.py"),
    Fault("worse-epoch-kept", "training", "if gain < 0:", "if gain < -1e9:", "training/test_fit.py"),
    Fault("flush-dropped", "training", "if now or time.monotonic()", "if time.monotonic()",
          "training/test_checkpoints.py training/test_resume.py"),
    Fault("checkpoint-digest-unchecked", "training", "has_digest = int(version) > 1 or",
          "has_digest = False and",
          "training/test_damaged_checkpoints.py"),
    # --- data ---
    Fault("pixels-out-of-range", "data", "np.float32(255)", "np.float32(256)", "data/test_mnist.py"),
    Fault("trailing-bytes-ignored", "data", "expected + 1 - len(data)", "expected - len(data)",
          "data/test_idx.py"),
    Fault("labels-lose-zeros", "data", "and _is_plain(cell) for cell in column.cells",
          "for cell in column.cells", "data/test_tables.py"),
    Fault("targets-stay-standardised", "data",
          "outputs * np.array(self.targets.scale) + np.array(self.targets.mean)", "outputs",
          "cli/test_tables.py"),
    Fault("scaling-sees-test-rows", "data", "_with_scaled_inputs(preparation, path, raw[train])",
          "_with_scaled_inputs(preparation, path, raw)", "cli/test_train.py"),
    # --- inspect ---
    Fault("bounds-swapped", "inspect", "Bounds(-a.hi, -a.lo, a.sure)", "Bounds(-a.lo, -a.hi, a.sure)",
          "inspect/test_bounds.py"),
    Fault("dead-values-lost", "inspect", "old_bias + offsets", "old_bias", "inspect/test_prune.py"),
    Fault("dead-values-unscaled", "inspect", "else sums * layer.scale.double().cpu().numpy()", "else sums",
          "inspect/test_prune.py"),
    # --- estimators ---
    Fault("decision-sign", "estimators", "outputs[:, 1] - outputs[:, 0]", "outputs[:, 0] - outputs[:, 1]",
          "estimators/test_estimators.py"),
    Fault("tolerance-sign", "estimators", "_best_of_stage + self._tol", "_best_of_stage - self._tol",
          "estimators/test_stopping.py"),
    # --- experiments ---
    Fault("claim-not-released", "experiments", "self._store.release(self._owner)", "pass",
          "experiments/grid/test_claims.py"),
    Fault("expired-claims-hold", "experiments", "AND until >= ?", "AND ? > 0",
          "experiments/grid/test_store.py"),
    Fault("seconds-of-last-stage", "experiments", "outcome.seconds + sum(", "outcome.seconds + 0 * sum(",
          "experiments/paper/test_mnist.py experiments/grid/test_store.py"),
    # --- command line ---
    Fault("list-splits-brackets", "cli", r'r",(?![^\[\(]*[\]\)])"', 'r","',
          "cli/test_app.py experiments/test_command.py"),
    Fault("accuracy-not-in-percent", "cli", "100 * float(np.mean(", "float(np.mean(", "cli/test_train.py"),
)  # fmt: skip


def places(fault: Fault, source: Path) -> list[Path]:
    """The files with the fault's old text, once for each time that it occurs."""
    package = source / "ftnn" / fault.package
    files = [package] if package.is_file() else sorted(package.rglob("*.py"))
    return [file for file in files for _ in range(file.read_text("utf-8").count(fault.old))]


def plant(fault: Fault, source: Path) -> bool:
    """Patch the copy of the source in `source`; False if the old text does not occur exactly once."""
    files = places(fault, source)
    if len(files) != 1:
        return False
    files[0].write_text(files[0].read_text("utf-8").replace(fault.old, fault.new), "utf-8")
    return True


def run_tests(source: Path, tests: Sequence[str], *, without: Sequence[str] = ()) -> tuple[int, str]:
    """Run tests up to the first failure: pytest's exit code, and the test that failed or its last line."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="ftnn-cache-") as cache:
        options = ["-x", "-q", "-p", "no:xdist", "-o", f"cache_dir={cache}"]
        options += [f"--deselect={test}" for test in without]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        failures = Path(cache) / "v" / "cache" / "lastfailed"
        if done.returncode == 1 and failures.exists():
            return 1, next(iter(json.loads(failures.read_text("utf-8"))))
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    return done.returncode, lines[-1]


def verdict(fault: Fault) -> tuple[Verdict, str]:
    """Whether a fault's tests catch it, and which test did."""
    with tempfile.TemporaryDirectory(prefix="ftnn-fault-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if not plant(fault, source):
            return "NOT FOUND", f"{fault.old!r} is not in src/ftnn/{fault.package} exactly once: update it"
        tests = [f"tests/{name}" for name in fault.tests.split()]
        unrelated: list[str] = []
        try:
            while True:
                code, result = run_tests(source, tests, without=unrelated)
                if code < 0:
                    return "caught", f"the test process died of signal {-code}"
                if code != 1:  # 0: all passed. Others, such as an error while collecting: the patch is wrong.
                    return "BROKEN" if code else "MISSED", result
                if run_tests(ROOT / "src", [result])[0] == 0:
                    return "caught", result
                unrelated.append(result)  # it fails without the fault too
        except subprocess.TimeoutExpired:
            return "BROKEN", f"the tests took more than {SECONDS} seconds"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--list", action="store_true", help="list the faults and stop")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this fault; can be repeated")
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=2, help="faults to run at a time (default: 2)"
    )
    options = parser.parse_args(arguments)
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in options.only or () if name not in known]:
        parser.error(f"unknown fault {unknown[0]!r}; expected one of {', '.join(known)}")
    faults = [known[name] for name in options.only or known]
    if options.list:
        for fault in faults:
            print(f"{fault.name:<28} {fault.package:<12} {fault.tests}")
        return 0
    missed: list[str] = []
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        for fault, (result, reason) in zip(faults, pool.map(verdict, faults), strict=True):
            print(f"{result:<10} {fault.name:<28} {reason}", flush=True)
            if result != "caught":
                missed.append(fault.name)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught" + (": see above" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
