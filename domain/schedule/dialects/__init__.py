"""The dialects of cron texts, each asked for by its name and never guessed.

A dialect is a value (`grammar.Grammar`) that says which fields there are, how their numbers
count, and which marks (`L`, `W`, `#`, `?`) are known; one reader reads them all into
`domain.schedule.fields.Fields`. systemd's calendar events have a form of their own and a parser of
their own. What a dialect's documentation leaves open is refused here, with what would be right.
"""
