"""The audit as an HTML page."""
