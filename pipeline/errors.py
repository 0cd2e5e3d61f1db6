"""Errors that the user can correct, shown as one line."""


class PipelineError(Exception):
    """The job cannot be done; the text names the missing or wrong value."""
