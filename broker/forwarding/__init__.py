"""Forwarding: messages go from a queue or exchange to another, here or elsewhere. [RabbitMQ shovel]"""
