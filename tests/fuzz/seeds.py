"""What fuzzing begins with: the corpora of the tests, answers by hand, and what runs have found.

`found/ENTRY.jsonl` has one found input a line, its bytes as the characters of a JSON text.
"""

import json
from pathlib import Path
from typing import Final

from tests.security.ssrf.forms import forms

HERE: Final = Path(__file__).parent / "found"
_OK: Final = b"HTTP/1.1 200 OK\r\n"
_ANSWERS: Final = (
    _OK + b"Content-Length: 2\r\n\r\nok",
    _OK + b"\r\nuntil it closes",
    _OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Request-Id: t\r\n\r\n",
    _OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc",
    _OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    _OK + b"Content-Length: 18446744073709551616\r\n\r\n",
    _OK + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
    _OK + b"Server: a\r\n b\r\nDate: x\r\n\r\n",
    _OK + b"Server: \x00\x01\xff\r\nX-Request-Id: " + b"y" * 300 + b"\r\n\r\n",
    _OK + b"Tocsin-Completion: async\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + _OK + b"\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 Slow\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 503 Slow\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n",
    b"HTTP/1.1 503 Slow\r\nRetry-After: Wednesday, 21-Oct-26 07:28:00 GMT\r\n\r\n",
    b"HTTP/1.1 503 Slow\r\nRetry-After: Wed Oct 21 07:28:00 2026\r\n\r\n",
    b"HTTP/1.1 503 Slow\r\nRetry-After: -1\r\nRetry-After: 5\r\n\r\n",
    b"HTTP/1.1 503 Slow\r\nRetry-After: 99999999999999999999\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\n\nbare",
    b"http/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: no name\r\nno colon\r\n\r\n",
    b"ICY 200 OK\r\n\r\n",
    b"<html>",
    b"\x16\x03\x01\x00\x00",
    b"",
)


def injections() -> list[dict[str, str]]:
    """Return the headers that nobody may send, one a line: family, name, value."""
    file = Path(__file__).parents[1] / "security" / "injection" / "headers.jsonl"
    return [json.loads(line) for line in file.read_text("ascii").splitlines()]


def seeds(entry: str) -> list[bytes]:
    """Return all seeds of an entry."""
    if entry == "url":
        urls = [form.url for file in ("closed", "inside", "open") for form in forms(file)]
        begun = [url.encode("utf-8", "surrogatepass") for url in urls]
    elif entry == "headers":
        begun = [f"{one['name']}={one['value']}".encode() for one in injections()]
    else:
        begun = list(_ANSWERS)
    file = HERE / f"{entry}.jsonl"
    lines = file.read_text("ascii").splitlines() if file.is_file() else []
    return begun + [json.loads(line).encode("latin-1") for line in lines]
