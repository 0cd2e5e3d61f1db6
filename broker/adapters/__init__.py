"""The adapters: protocol engines on one side, the queue core on the other."""
