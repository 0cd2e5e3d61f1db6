"""Policies as data: patterns of names, keys, and how several policies are merged."""
