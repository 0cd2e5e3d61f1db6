"""Dispatchers: queues that call a URL or start a command, instead of waiting for consumers."""
