"""Data pipeline on Spark: journals that are read by jobs, and queues that Spark reads and writes."""
