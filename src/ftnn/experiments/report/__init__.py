"""Everything in a store, next to the paper's results: an HTML page, or Markdown.

Only the names imported here are public.
"""

from ftnn.experiments.report.as_html import page as page
from ftnn.experiments.report.as_markdown import markdown as markdown
from ftnn.experiments.report.contents import Report as Report
from ftnn.experiments.report.contents import collect as collect
from ftnn.experiments.report.write import write_report as write_report
