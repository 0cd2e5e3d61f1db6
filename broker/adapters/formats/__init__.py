"""What stored messages of either protocol say, and how one becomes the other."""
