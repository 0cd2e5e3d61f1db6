"""The adapter of AMQP 0-9-1: its methods in terms of the core. [amqp-0-9-1]"""
