"""The journal: what became of every message, on disk, and what reads it."""
