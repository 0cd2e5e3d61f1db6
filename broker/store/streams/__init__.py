"""The files of streams."""
