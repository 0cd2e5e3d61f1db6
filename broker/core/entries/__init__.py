"""Entries, the orders that a queue keeps them in, and cursors and indexes over them."""
