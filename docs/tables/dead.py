"""The table of dead connections in docs/reproduction.md: python docs/tables/dead.py STORE

The store must have the parameters: ftnn reproduce mnist --functions F06,F07,F08 --layers 1,5,10 --store STORE
"""

from __future__ import annotations

import sys

from ftnn.data import mnist
from ftnn.experiments import Store
from ftnn.experiments.grid.rows import rows_of
from ftnn.experiments.paper.mnist.cells import FineTuning
from ftnn.experiments.paper.mnist.training import network_of
from ftnn.experiments.paper.running import load_arrays
from ftnn.inspect import connections

print("| layers | function | activation | γ | FT | connections | dead | of these, revivable | sleeping |")
print("|---:|---|---|---:|---:|---:|---:|---:|---:|")
with Store(sys.argv[1], must_exist=True) as store:
    rows = sorted(
        rows_of(FineTuning, store.rows()),
        key=lambda pair: (pair[0].hidden_layers, str(pair[0]), pair[0].seed),
    )
    for cell, row in rows:
        arrays = store.parameters(row.task)
        if arrays is None or row.failed or cell.function not in ("F06", "F07", "F08"):
            continue
        net = network_of(cell)
        load_arrays(net, arrays)
        census = connections(net, mnist().test_images)
        total = sum(layer.connections for layer in census)
        share = {
            name: f"{100 * count / total:.1f} %"
            for name, count in (
                ("dead", census.dead),
                ("revivable", census.revivable),
                ("sleeping", census.sleeping or 0),
            )
        }
        print(
            f"| {cell.hidden_layers} | {cell.function} | {cell.activation} | {cell.gamma:g} "
            f"| {row.ft_accuracy:.2f} | {total:,} | {share['dead']} | {share['revivable']} "
            f"| {share['sleeping']} |"
        )
