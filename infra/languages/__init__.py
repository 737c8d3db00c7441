"""Cron schedules told in a reader's language, by `cron-descriptor`.

The library is given no text of a user's: only plain fields made of what our own parser read
(`plain`), and only those of which it says nothing false. What it lacks is told by
`domain.schedule.telling`, in English.
"""
