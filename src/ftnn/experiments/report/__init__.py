"""One page of all that is in a store."""

from ftnn.experiments.report._page import Report as Report
from ftnn.experiments.report._page import collect as collect
from ftnn.experiments.report._page import page as page
from ftnn.experiments.report._page import write_report as write_report
