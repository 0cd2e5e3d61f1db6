"""Selectors: conditions on messages in the SQL-92 of JMS. [JMS 1.1, 3.8.1]

`selector.Selector` is the entry point. `lexer` makes tokens of its text, and `parser` an expression of the
tokens.
`expression` and `condition` evaluate expressions, and `like` the patterns of LIKE.
"""
