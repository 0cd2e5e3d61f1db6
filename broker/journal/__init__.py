"""The journal: events of every message on disk, and its readers."""
