"""Partitioned queues: their mapping of keys to members, the order of each key, and their consumers."""
