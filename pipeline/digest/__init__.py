"""Digests: the rows that an audit needs of a journal, made in one pass where its files are read.

Most messages enter and leave their queue within one file, without a fault: they are counted, and their events
are left out. So Spark gets few rows for many events.
"""
