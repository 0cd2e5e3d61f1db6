"""Convert the contents of messages between the protocols. No error is raised, whatever the bytes are.

A value that has no counterpart in the other protocol, or that does not decode, is left out.
"""
