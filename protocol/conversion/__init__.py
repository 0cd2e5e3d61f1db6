"""Contents of messages from one protocol to the other: pure, and nothing is raised whatever the bytes are.

What has no counterpart there, or does not decode, is left out, and all else is converted.
"""
