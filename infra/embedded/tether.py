"""Become another program, tied to the life of the process that started it.

Run by path with a bare interpreter (`python -I -S tether.py SIGNAL PARENT UID GID argv...`), so
it imports the standard library only. It is a program of its own, not a `preexec_fn`: code between
fork and exec can deadlock when the parent has threads, which supervisors do.

The kernel sends SIGNAL when the *thread* that started this process ends, so engines are to be
started from a thread that lives as long as they should. Only Linux can do this; elsewhere the
reaping at the next start is all there is.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_ARGUMENTS_BEFORE_COMMAND = 5


def main(argv: list[str]) -> None:
    """Drop to the account, arm the parent-death signal, and exec the command."""
    death_signal, parent, uid, gid = (int(word) for word in argv[1:_ARGUMENTS_BEFORE_COMMAND])
    command = argv[_ARGUMENTS_BEFORE_COMMAND:]
    if uid >= 0:
        become(uid, gid)
    if sys.platform == "linux":
        # After setuid, which clears the signal; exec of a plain binary keeps it.
        _prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:
            sys.exit("the supervisor ended before this program began")
    os.execv(command[0], command)  # noqa: S606 - an exec without a shell is what this is for


def become(uid: int, gid: int) -> None:
    """Give up root for good; a parent-death signal that is armed stays armed."""
    armed = ctypes.c_int(0)
    if sys.platform == "linux":
        _prctl(_PR_GET_PDEATHSIG, ctypes.byref(armed))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if armed.value:
        _prctl(_PR_SET_PDEATHSIG, armed.value)


def _prctl(operation: int, argument: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(operation, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main(sys.argv)
