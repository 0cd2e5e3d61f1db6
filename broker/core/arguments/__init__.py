"""The arguments of queues, exchanges and consumers: rules, names and how they are read."""
