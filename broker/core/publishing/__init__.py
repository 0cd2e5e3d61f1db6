"""Messages on their way into queues: publishes, dead letters, receipts and delays."""
