"""What JSON says of a job or a calendar: read, judged and sealed, before any decision."""
