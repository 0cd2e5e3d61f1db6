"""The durable log: what was appended, synced and confirmed survives."""
