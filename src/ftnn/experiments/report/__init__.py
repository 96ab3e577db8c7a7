"""All that is in a store, beside the paper: one page, or Markdown."""

from ftnn.experiments.report._collect import Report as Report
from ftnn.experiments.report._collect import collect as collect
from ftnn.experiments.report._markdown import markdown as markdown
from ftnn.experiments.report._page import page as page
from ftnn.experiments.report._write import write_report as write_report
