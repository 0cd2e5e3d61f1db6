"""Remote queues: queues whose messages are in another broker."""
