"""Virtual hosts: what clients declare, policies in force, and definitions."""
