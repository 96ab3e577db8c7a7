"""What `ftnn bench` runs: ftnn beside plain torch, in one run, in turns."""

from ftnn.bench._command import bench as bench
from ftnn.bench._measure import Effort as Effort
from ftnn.bench._rows import Row as Row
from ftnn.bench._rows import as_json as as_json
from ftnn.bench._show import markdown as markdown
from ftnn.bench._systems import Systems as Systems
from ftnn.bench._workloads import WORKLOADS as WORKLOADS
from ftnn.bench._workloads import Choice as Choice
from ftnn.bench._workloads import run as run
