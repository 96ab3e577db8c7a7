"""The measurements of `ftnn bench`: ftnn and plain torch, in turns."""

from ftnn.bench._measure import Effort as Effort
from ftnn.bench._rows import Row as Row
from ftnn.bench._show import by_workload as by_workload
from ftnn.bench._show import chart as chart
from ftnn.bench._show import machine as machine
from ftnn.bench._show import markdown as markdown
from ftnn.bench._show import remarks as remarks
from ftnn.bench._show import table as table
from ftnn.bench._systems import Systems as Systems
from ftnn.bench._workloads import WORKLOADS as WORKLOADS
from ftnn.bench._workloads import Choice as Choice
from ftnn.bench._workloads import choose as choose
from ftnn.bench._workloads import run as run
