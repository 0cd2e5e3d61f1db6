"""Errors that a person can put right, told in one line."""


class PipelineError(Exception):
    """The job cannot be done; the text says what is missing or wrong, and its value."""
