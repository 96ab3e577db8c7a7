"""All that is in a store, beside the paper: one page, or Markdown.

Private but for the names here.
"""

from ftnn.experiments.report.as_html import page as page
from ftnn.experiments.report.as_markdown import markdown as markdown
from ftnn.experiments.report.contents import Report as Report
from ftnn.experiments.report.contents import collect as collect
from ftnn.experiments.report.write import write_report as write_report
