"""AMQP 1.0: what connections, sessions and links of it mean to the core. [amqp-1.0]"""
