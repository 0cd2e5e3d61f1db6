"""Sealed files as a data lake: compaction, retention, and other formats."""
