"""Convert the contents of messages between the protocols: pure, and without errors whatever the bytes are.

A value that has no counterpart in the other protocol, or that does not decode, is left out.
"""
