"""Policies as data: patterns of names, keys, and what several policies come to together."""
