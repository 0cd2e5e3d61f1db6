"""`format("amqp")`: Spark reads from brokers and publishes to them."""
