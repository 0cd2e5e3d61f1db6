"""Digests: the rows that an audit needs of a journal, made in one pass where its files are read.

Most lives of messages begin and end within one file, as they should: they are counted, and their events are
left out. So Spark gets few rows of many events.
"""
