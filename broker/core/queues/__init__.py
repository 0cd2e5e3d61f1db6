"""Queues, their consumers, and the features of queues."""
