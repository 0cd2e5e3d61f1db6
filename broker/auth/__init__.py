"""Users, passwords, permissions, and log-ins."""
