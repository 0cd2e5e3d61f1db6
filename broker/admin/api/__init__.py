"""The HTTP API: RabbitMQ's paths and fields. [RabbitMQ management HTTP API]"""
