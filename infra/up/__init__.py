"""`tocsin up`: one machine, every role, embedded engines, looked after until told to stop.

The supervisor owns a data folder (one `up` each, by a lock that the kernel releases). Engines come
first and go last; every process it starts dies with it, or is reaped by the next start. A process
that ends without being asked is started again, with a growing pause, and one line says so.

    engines (Postgres, broker, history) -> migrate -> demo tenant -> roles -> all ready -> watch
    SIGTERM or Ctrl-C: roles drain -> engines stop; a second one hurries both
"""
