"""Serves a WSGI application of a module until it is ended: `wsgi_server.py MODULE PORT`."""

import importlib
import socketserver
import sys
from wsgiref.simple_server import WSGIServer, make_server


class ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each request."""

    daemon_threads = True


if __name__ == "__main__":
    found = importlib.import_module(sys.argv[1])
    make_server("127.0.0.1", int(sys.argv[2]), found.app, ThreadingServer).serve_forever()
