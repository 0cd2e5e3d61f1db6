"""Metrics for Prometheus, under the names of amqpd and of RabbitMQ's plugin."""
