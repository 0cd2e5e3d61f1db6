"""Recovery: from the files of a log to a broker that continues."""
