"""The byte format of streams, the same on disk and for readers: reading needs no work for each row."""
