"""The byte format of streams, the same on disk and for readers: no work is done for each row."""
