"""What all tests share."""

from hypothesis import settings

# The same examples on every machine and every run, however slow; and nothing kept in the tree.
settings.register_profile("ftnn", derandomize=True, deadline=None, database=None)
settings.load_profile("ftnn")
