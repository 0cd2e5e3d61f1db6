"""The adapter of AMQP 1.0: its connections, sessions and links in terms of the core. [amqp-1.0]"""
