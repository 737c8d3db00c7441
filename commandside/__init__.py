"""The write side: commands of tenants and the roles that make jobs fire.

Each role is `start / run_one_batch(now) / drain` over ports that this ring declares. No body
sleeps or reads a clock, so that the same code runs in production and in virtual time.

`definitions` reads what JSON says of a job, `commands` decides and answers what tenants ask for,
`firing` has the roles that make jobs fire, `api` speaks HTTP; the ports stand beside them.
"""
