"""The data pipeline on Spark: jobs over journals, and queues that Spark reads and publishes to."""
