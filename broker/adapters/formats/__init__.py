"""The stored messages of both protocols: views of their properties, and conversions."""
