"""AMQP 1.0: values, composites and frames as bytes; no I/O."""
