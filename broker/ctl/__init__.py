"""`amqpctl`: administration of a running broker, through its HTTP API and nothing else."""
