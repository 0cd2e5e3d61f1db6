"""Virtual hosts: declarations, policies and definitions."""
