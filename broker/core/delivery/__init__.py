"""Connections, sessions and targets that pull messages in turns."""
