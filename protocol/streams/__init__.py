"""The byte format of streams, the same on disk and for readers: rows are never converted one by one."""
