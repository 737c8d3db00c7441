"""What every deliverer keeps: the port's promises, seen from its caller and from the targets."""

import gzip
from typing import Any, Final, Literal, Protocol

import msgspec
import pytest

from commandside.deliverer_port import (
    ERRORS,
    KEPT_BODY_BYTES,
    RESPONSE_BYTES_MAX,
    Answer,
    Call,
    Deliverer,
)

End = Literal["whole", "stalled", "silent", "cut", "garbage"]


class Behaviour(msgspec.Struct, frozen=True):
    """What a target does with every request for one path.

    `whole` answers; `stalled` sends headers and a part of the body and then nothing; `silent`
    sends nothing; `cut` closes without a word; `garbage` is not HTTP.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"
    end: End = "whole"


class World(Protocol):
    """A deliverer with a target around it, and a clock that passes while answers are waited for."""

    @property
    def deliverer(self) -> Deliverer[Any]:
        """Return the deliverer that is tested."""
        ...

    def call(self, token: int) -> Any:
        """Return a call of the target, with time to spare; the target takes it."""
        ...

    def hush(self) -> None:
        """Have the target take what is sent, and say nothing."""
        ...

    def answers(self, count: int) -> list[Answer]:
        """Wait until so many calls have ended."""
        ...

    def arrived(self) -> int:
        """Return how many calls have reached the target."""
        ...


class HttpWorld(World, Protocol):
    """Targets over HTTP, which say what a test wants of them."""

    @property
    def deliverer(self) -> Deliverer[Call]:
        """Return the deliverer that is tested."""
        ...

    def call(self, token: int, path: str = "/") -> Call:
        """Return a call of the target, with time to spare."""
        ...

    def behave(self, path: str, behaviour: Behaviour) -> None:
        """Have the target do this for a path; others are answered 200."""
        ...

    def resolve(self, name: str, *addresses: str) -> None:
        """Let a name have these addresses; others have none."""
        ...

    def closed_port(self) -> int:
        """Return a port at which nobody listens."""
        ...

    def paths(self) -> list[str]:
        """Return the paths that the target was asked for."""
        ...


PRIVATE: Final = "10.1.2.3"
"""An address that no world allows; `127.0.0.1` is allowed by the operator."""


class DelivererContract:
    """Runs on every adapter of every kind; a subclass brings the fixture `world`."""

    def one(self, world: World, call: Any) -> Answer:
        world.deliverer.submit([call])
        (answer,) = world.answers(1)
        assert answer.error == "" or answer.error in ERRORS
        return answer

    def test_every_call_is_answered_once_and_by_its_token(self, world: World) -> None:
        world.deliverer.submit([world.call(token) for token in range(50)])
        answers = world.answers(50)
        assert sorted(answer.token for answer in answers) == list(range(50))
        assert {(answer.error, answer.sent) for answer in answers} == {("", True)}
        assert world.deliverer.poll() == []
        assert world.arrived() == 50

    def test_room_is_what_is_not_in_flight(self, world: World) -> None:
        room = world.deliverer.room
        world.deliverer.submit([world.call(1), world.call(2)])
        assert (world.deliverer.in_flight, world.deliverer.room) == (2, room - 2)
        world.answers(2)
        assert (world.deliverer.in_flight, world.deliverer.room) == (0, room)

    def test_more_calls_than_room_are_a_bug_of_the_caller(self, world: World) -> None:
        with pytest.raises(AssertionError):
            world.deliverer.submit([world.call(n) for n in range(world.deliverer.room + 1)])

    def test_a_silent_target_times_out(self, world: World) -> None:
        self.one(world, world.call(1))
        world.hush()
        answer = self.one(world, msgspec.structs.replace(world.call(2), timeout_ms=200))
        assert (answer.status, answer.error, answer.sent) == (0, "timeout", True)
        assert answer.elapsed_us >= 200_000

    def test_a_call_past_its_send_deadline_is_never_started(self, world: World) -> None:
        call = world.call(1)
        late = msgspec.structs.replace(call, not_after_us=call.not_after_us - 60_000_001)
        world.deliverer.submit([late, world.call(2)])
        answers = {answer.token: answer for answer in world.answers(2)}
        refused = answers[1]
        assert (refused.status, refused.error, refused.sent) == (0, "send_deadline", False)
        assert answers[2].error == ""
        assert world.arrived() == 1

    def test_what_is_in_flight_when_it_closes_is_never_answered(self, world: World) -> None:
        world.hush()
        world.deliverer.submit([world.call(1)])
        world.deliverer.close()


class HttpContract(DelivererContract):
    """Runs on every adapter that calls over HTTP."""

    @pytest.mark.parametrize("status", [200, 202, 204, 301, 302, 307, 400, 404, 410, 429, 500, 599])
    def test_a_status_is_answered_as_it_came_and_a_redirect_is_not_followed(
        self, world: HttpWorld, status: int
    ) -> None:
        """URL-05."""
        moved = (("Location", "/elsewhere"),) if 300 <= status < 400 else ()
        body = b"" if status == 204 else b"so it is"
        world.behave("/hook", Behaviour(status, moved, body))
        answer = self.one(world, world.call(7, "/hook"))
        assert (answer.status, answer.error, answer.sent) == (status, "", True)
        assert answer.body == body
        assert world.paths() == ["/hook"]

    def test_only_the_allowed_headers_are_kept(self, world: HttpWorld) -> None:
        headers = (("Set-Cookie", "a=b"), ("X-Request-Id", "r-1"), ("Content-Type", "text/plain"))
        world.behave("/", Behaviour(headers=headers))
        kept = dict(self.one(world, world.call(1)).headers)
        assert kept["x-request-id"] == "r-1"
        assert kept["content-type"] == "text/plain"
        assert "set-cookie" not in kept

    def test_a_wish_to_retry_later_is_handed_on(self, world: HttpWorld) -> None:
        world.behave("/", Behaviour(503, (("Retry-After", "120"),)))
        answer = self.one(world, world.call(1))
        assert (answer.status, answer.retry_after) == (503, "120")

    def test_of_the_body_the_beginning_is_kept(self, world: HttpWorld) -> None:
        world.behave("/", Behaviour(body=b"x" * 5000))
        answer = self.one(world, world.call(1))
        assert (answer.body, answer.error) == (b"x" * KEPT_BODY_BYTES, "")

    def test_an_endless_body_is_cut_and_the_status_holds(self, world: HttpWorld) -> None:
        """RSP-01, with those that follow."""
        world.behave("/", Behaviour(body=b"x" * (RESPONSE_BYTES_MAX + 1)))
        answer = self.one(world, world.call(1))
        assert (answer.status, answer.error, answer.sent) == (200, "response_too_large", True)
        assert len(answer.body) == KEPT_BODY_BYTES

    def test_a_packed_body_is_not_unpacked(self, world: HttpWorld) -> None:
        """RSP-03."""
        packed = gzip.compress(bytes(10_000_000))
        assert len(packed) < RESPONSE_BYTES_MAX
        world.behave("/", Behaviour(headers=(("Content-Encoding", "gzip"),), body=packed))
        answer = self.one(world, world.call(1))
        assert (answer.status, answer.error) == (200, "")
        assert answer.body == packed[:KEPT_BODY_BYTES]

    def test_a_body_that_stalls_times_out_beside_its_status(self, world: HttpWorld) -> None:
        world.behave("/", Behaviour(200, end="stalled"))
        answer = self.one(world, msgspec.structs.replace(world.call(1), timeout_ms=200))
        assert (answer.status, answer.error, answer.sent) == (200, "timeout", True)

    def test_a_connection_that_closes_without_a_word_is_a_reset(self, world: HttpWorld) -> None:
        world.behave("/", Behaviour(end="cut"))
        answer = self.one(world, world.call(1))
        assert (answer.status, answer.error, answer.sent) == (0, "reset", True)
        assert world.paths() == ["/"]

    def test_what_is_not_http_is_a_bad_response(self, world: HttpWorld) -> None:
        world.behave("/", Behaviour(end="garbage"))
        answer = self.one(world, world.call(1))
        assert (answer.status, answer.error, answer.sent) == (0, "bad_response", True)

    def test_a_port_at_which_nobody_listens_is_a_failed_connect(self, world: HttpWorld) -> None:
        call = msgspec.structs.replace(world.call(1), port=world.closed_port())
        answer = self.one(world, call)
        assert (answer.status, answer.error, answer.sent) == (0, "connect", False)

    @pytest.mark.parametrize("line", [b"X: y\r\nForged: z", b"X: y\nZ: w", b"X: y\r", b"X: \0"])
    def test_a_header_that_would_be_two_is_never_sent_and_its_neighbours_are(
        self, world: HttpWorld, line: bytes
    ) -> None:
        forged = msgspec.structs.replace(world.call(1, "/forged"), headers=[b"A: b", line])
        world.deliverer.submit([forged, world.call(2, "/plain")])
        answers = {answer.token: answer for answer in world.answers(2)}
        assert (answers[1].status, answers[1].error, answers[1].sent) == (0, "unsendable", False)
        assert answers[2].status == 200
        assert world.paths() == ["/plain"]

    @pytest.mark.parametrize(
        "host", [PRIVATE, "169.254.169.254", "0.1.2.3", "::1", "fd00:ec2::254"]
    )
    def test_a_private_address_is_refused_unless_it_is_allowed(
        self, world: HttpWorld, host: str
    ) -> None:
        answer = self.one(world, msgspec.structs.replace(world.call(1), host=host))
        assert (answer.status, answer.error, answer.sent) == (0, "blocked_address", False)
        assert world.paths() == []

    def test_a_name_is_called_at_its_address(self, world: HttpWorld) -> None:
        world.resolve("hook.example.com", "127.0.0.1")
        answer = self.one(world, msgspec.structs.replace(world.call(1), host="hook.example.com"))
        assert (answer.status, answer.error) == (200, "")

    def test_a_name_that_has_no_address_is_a_failed_lookup(self, world: HttpWorld) -> None:
        answer = self.one(world, msgspec.structs.replace(world.call(1), host="no.example.com"))
        assert (answer.status, answer.error, answer.sent) == (0, "dns", False)

    @pytest.mark.parametrize("addresses", [(PRIVATE,), ("127.0.0.1", PRIVATE)])
    def test_one_forbidden_address_condemns_the_name(
        self, world: HttpWorld, addresses: tuple[str, ...]
    ) -> None:
        """URL-04, with the name that turns private while a connection is open."""
        world.resolve("inside.example.com", *addresses)
        answer = self.one(world, msgspec.structs.replace(world.call(1), host="inside.example.com"))
        assert (answer.status, answer.error, answer.sent) == (0, "blocked_address", False)
        assert world.paths() == []

    def test_a_slow_target_does_not_hold_up_the_others(self, world: HttpWorld) -> None:
        world.behave("/slow", Behaviour(end="silent"))
        world.deliverer.submit([world.call(1, "/slow"), world.call(2, "/quick")])
        assert [answer.token for answer in world.answers(1)] == [2]
        assert world.deliverer.in_flight == 1
