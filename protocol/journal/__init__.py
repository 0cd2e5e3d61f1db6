"""The journal's files: what stands in them, and how it is written and read."""
