"""Sealed files as a lake: fewer and larger ones, their retention, and other formats."""
