"""Work of operators and readers on many messages: operations, stages and sinks."""
