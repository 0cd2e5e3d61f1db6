"""`format("amqp")`: Spark reads from brokers and writes to them."""
