"""What operators and readers do to many messages: operations, stages and sinks."""
