"""A target that answers nobody until it is told: `python -m bench.slow_sink`, on every 127.x.y.z.

Requests of `/slow` are held, others are answered at once. `held` on its standard input is answered
with how many are held, `answer` lets all of them go.
"""

import resource
import select
import socket
import sys
from typing import Final

BACKLOG: Final = 4_096
HEAD_END: Final = b"\r\n\r\n"
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def main() -> int:
    """Serve until standard input ends; the first line printed is the port."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.create_server(("0.0.0.0", 0), backlog=BACKLOG)  # noqa: S104 - each loopback address
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    epoll.register(sys.stdin, select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    held: list[int] = []
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                epoll.register(connection, select.EPOLLIN)
            elif descriptor == sys.stdin.fileno():
                match sys.stdin.readline().strip():
                    case "held":
                        print(len(held), flush=True)
                    case "answer":
                        for waiting in held:
                            connections[waiting].sendall(_OK)
                        held.clear()
                    case _:
                        return 0
            else:
                _serve(connections, held, descriptor)


def _serve(connections: dict[int, socket.socket], held: list[int], descriptor: int) -> None:
    """Take one request, which comes in one piece: it is small, and the caller is ours."""
    data = connections[descriptor].recv(65_536)
    if not data:
        connections.pop(descriptor).close()
        return
    assert HEAD_END in data, data
    if b" /slow " in data:
        held.append(descriptor)
    else:
        connections[descriptor].sendall(_OK)


if __name__ == "__main__":
    sys.exit(main())
