"""The format of the journal's files, with an encoder and readers."""
