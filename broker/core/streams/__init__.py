"""Streams: rows on disk as a queue."""
