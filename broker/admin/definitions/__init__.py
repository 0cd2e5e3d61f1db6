"""Definitions as RabbitMQ keeps them in a file: everything but messages, as JSON. [RabbitMQ definitions]"""
