"""Selectors: conditions on messages in the SQL-92 of JMS. [JMS 1.1, 3.8.1]

`selector.Selector` is the way in: `lexer` makes tokens of its text, `parser` an expression of the tokens,
`expression` and `condition` have what expressions mean, `like` the patterns of LIKE.
"""
