"""The filters of AMQP 1.0 sources."""
