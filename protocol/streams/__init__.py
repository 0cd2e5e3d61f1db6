"""The byte format of streams, as it is on disk and as readers fetch it: nothing is done per row."""
