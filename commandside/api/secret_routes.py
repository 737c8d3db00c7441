"""The routes of a tenant's secrets: what its calls are signed with, and what its targets name."""

from typing import Any, Final

import msgspec
from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from commandside.api.answers import answer
from commandside.api.requests import (
    JSON,
    HttpRequest,
    body_of,
    expect,
    idempotency_key,
    optional_object,
)
from commandside.api.schema import SECRET, SIGNING_KEY
from commandside.command_port import BodyDiffers
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions.reading import read_object, strange
from commandside.secret_port import SCHEMES, NamedSecret, SigningKey
from domain.instant import DAY, SECOND, rfc3339
from domain.problem import Problem, invalid
from domain.refusal import Refused
from domain.target import is_header_value, is_secret_name
from domain.tenant import KEYS_ADMIN

OVERLAP_S: Final = 86_400
OVERLAP_S_MAX: Final = 30 * DAY // SECOND

_SCHEME_NAMES: Final = {number: name for name, number in SCHEMES.items()}
_ONE: Final = "/v1/secrets/{name:str}"


class SigningKeyItem(msgspec.Struct):
    """A key that signs the tenant's calls; a receiver verifies with `secret` or `public_key`."""

    key_id: int
    scheme: str
    created_at: str
    expires_at: str | None
    secret: str | None = None
    public_key: str | None = None


class SigningKeys(msgspec.Struct):
    """The keys that sign, the newest first."""

    items: list[SigningKeyItem]
    next_cursor: None = None
    prev_cursor: None = None


class SecretItem(msgspec.Struct):
    """A secret: its value is shown to nobody."""

    name: str
    version: int
    updated_at: str


class SecretItems(msgspec.Struct):
    """All secrets, by name."""

    items: list[SecretItem]
    next_cursor: None = None
    prev_cursor: None = None


class Removed(msgspec.Struct):
    """A secret that is gone."""

    name: str


def secret_handlers(keeper: SecretKeeper) -> list[HTTPRouteHandler]:
    """Return the handlers."""
    return [*_signing(keeper), *_named(keeper)]


def _opt(summary: str, answer: type, **more: Any) -> dict[str, Any]:
    return {
        "scope": KEYS_ADMIN,
        "query": {},
        "summary": summary,
        "answers": {200: answer},
        **more,
    }


def _signing(keeper: SecretKeeper) -> list[HTTPRouteHandler]:
    @get(
        "/v1/signing-keys",
        opt=_opt("List the keys that sign your calls, with what verifies them", SigningKeys),
    )
    async def signing_keys(request: HttpRequest) -> ASGIResponse:
        keys = await keeper.ask(keeper.store.signing_keys, request.user.tenant_id)
        return answer(SigningKeys([_key_item(key) for key in keys]))

    @post(
        "/v1/signing-keys",
        opt=_opt(
            "Make a new signing key; the one before signs beside it for a while",
            SigningKeyItem,
            answers={201: SigningKeyItem, 200: SigningKeyItem},
            media=JSON,
            body=SIGNING_KEY,
            keyed=True,
            optional=True,
        ),
    )
    async def add_signing_key(request: HttpRequest) -> ASGIResponse:
        command = idempotency_key(request)
        _, body = await optional_object(request)
        scheme, overlap_s = _asked_key(body)
        outcome = await keeper.ask(
            keeper.store.add_signing_key,
            request.user.tenant_id,
            scheme,
            overlap_s * SECOND,
            f"request {command}" if command else "",
        )
        if isinstance(outcome, BodyDiffers):
            raise Problem("body_differs", "send the body of the first request, or another key")
        key, made = outcome
        return answer(_key_item(key), 201 if made else 200)

    return [signing_keys, add_signing_key]


def _asked_key(body: dict[str, Any]) -> tuple[int, int]:
    wrong = strange(body, ("scheme", "overlap_s"))
    scheme, overlap_s = body.get("scheme", "v1"), body.get("overlap_s", OVERLAP_S)
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        wrong.append(Refused("/scheme", "v1 (HMAC-SHA256) or v1a (Ed25519)"))
    whole = isinstance(overlap_s, int) and not isinstance(overlap_s, bool)
    if not whole or not 0 <= overlap_s <= OVERLAP_S_MAX:
        wrong.append(Refused("/overlap_s", f"whole seconds from 0 to {OVERLAP_S_MAX}"))
    if wrong:
        raise invalid(wrong)
    return SCHEMES[scheme], overlap_s


def _named(keeper: SecretKeeper) -> list[HTTPRouteHandler]:
    @get("/v1/secrets", opt=_opt("List your secrets; their values are never shown", SecretItems))
    async def secrets(request: HttpRequest) -> ASGIResponse:
        kept = await keeper.ask(keeper.store.secrets, request.user.tenant_id)
        return answer(SecretItems([_secret_item(secret) for secret in kept]))

    @put(
        _ONE,
        opt=_opt(
            "Set a secret that headers of targets may name; every attempt takes its newest value",
            SecretItem,
            answers={201: SecretItem, 200: SecretItem},
            media=JSON,
            body=SECRET,
        ),
    )
    async def put_secret(request: HttpRequest, name: FromPath[str]) -> ASGIResponse:
        expect(request, JSON)
        body = read_object(await body_of(request))
        wrong = strange(body, ("value",))
        value = body.get("value")
        if not is_secret_name(name):
            detail = "1 to 64 letters, digits, hyphens, dots and underscores"
            raise Problem("invalid", f"a secret cannot have this name: {detail}")
        if not isinstance(value, str) or not is_header_value(value):
            # The value is a secret: it is not repeated.
            detail = "1 to 1024 printable ASCII characters without blanks at the ends"
            wrong.append(Refused("/value", detail))
        if wrong or not isinstance(value, str):
            raise invalid(wrong)
        tenant_id = request.user.tenant_id
        kept, new = await keeper.ask(keeper.store.put_secret, tenant_id, name, value.encode())
        return answer(_secret_item(kept), 201 if new else 200)

    @delete(
        _ONE,
        status_code=200,
        opt=_opt("Forget a secret: attempts whose target names it fail until it is set", Removed),
    )
    async def remove_secret(request: HttpRequest, name: FromPath[str]) -> ASGIResponse:
        if not await keeper.ask(keeper.store.remove_secret, request.user.tenant_id, name):
            raise Problem("absent", "there is no such secret")
        return answer(Removed(name))

    return [secrets, put_secret, remove_secret]


def _key_item(key: SigningKey) -> SigningKeyItem:
    shared = key.text.startswith("whsec_")
    return SigningKeyItem(
        key.key_id,
        _SCHEME_NAMES[key.scheme],
        rfc3339(key.created_at),
        rfc3339(key.expires_at) if key.expires_at else None,
        secret=key.text if shared else None,
        public_key=None if shared else key.text,
    )


def _secret_item(secret: NamedSecret) -> SecretItem:
    return SecretItem(secret.name, secret.version, rfc3339(secret.changed_at))
