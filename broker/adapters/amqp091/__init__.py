"""AMQP 0-9-1: what its methods mean to the core. [amqp-0-9-1]"""
