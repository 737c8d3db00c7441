"""A merge patch (RFC 7396) over what a job says now, as JSON, before anything is judged."""

from collections.abc import Mapping
from typing import Any, Final

from commandside.definitions.when import KINDS, RECURRING, SPAN
from domain.callback import NAMES

PAYLOADS: Final = {
    "payload": "application/json",
    "payload_text": "text/plain; charset=utf-8",
    "payload_base64": "application/octet-stream",
}


def lifted(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body with a Content-Type header of the target where `content_type` belongs.

    Credentials of the target are a header then.
    """
    body = with_credentials(body)
    target = body.get("target")
    headers = target.get("headers") if isinstance(target, dict) else None
    if not isinstance(target, dict) or not isinstance(headers, dict) or "content_type" in body:
        return body
    for name in headers:
        if name.lower() == "content-type":
            rest = {other: value for other, value in headers.items() if other != name}
            moved = {"content_type": headers[name], "target": {**target, "headers": rest}}
            return {**body, **moved}
    return body


def with_credentials(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body with `credentials` of its targets as the header that HTTP sends them in.

    What cannot be moved stays, and is refused by name when the target is read.
    """
    for member in ("target", *NAMES):
        target = body.get(member)
        if isinstance(target, dict) and "credentials" in target:
            body = {**body, member: _moved(target)}
    return body


def _moved(target: dict[str, Any]) -> dict[str, Any]:
    headers, given = target.get("headers", {}), target["credentials"]
    if target.get("kind", "http") != "http" or not isinstance(headers, dict):
        return target
    named = isinstance(given, dict) and given.keys() == {"secret"}
    if not (named or given is None) or any(name.lower() == "authorization" for name in headers):
        return target
    value = given if given is None else {**given, "scheme": "Basic"}
    rest = {name: field for name, field in target.items() if name != "credentials"}
    return {**rest, "headers": {**headers, "Authorization": value}}


def over(base: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` under `patch`, without what another choice in the patch makes void."""
    gone: set[str] = set()
    if patch.get("type", base["type"]) != base["type"]:
        gone.update(("run_at", "exclude", *SPAN, *RECURRING))
    if any(patch.get(kind) is not None for kind in KINDS if kind not in base):
        gone.update(field for field in RECURRING if field != "timezone")
    if "allow_overlap" in patch:
        gone.add("overlap")
    if patch.get("overlap", base["overlap"]) != base["overlap"] or "allow_overlap" in patch:
        gone.add("overlap_limit")
    if patch.get("misfire", base["misfire"]) != base["misfire"]:
        gone.add("catch_up_window_s")
    if "exact" in patch:
        gone.update(("jitter_s", "placement"))
    usual = base.get("content_type") in PAYLOADS.values()
    if removes_payload(patch) or (usual and any(name in patch for name in PAYLOADS)):
        gone.add("content_type")
    retry = patch.get("retry")
    backoff = retry.get("backoff") if isinstance(retry, dict) else None
    if backoff is not None and backoff != base["retry"]["backoff"]:
        base = {**base, "retry": _without(base["retry"], ("delays_s", "base_s", "max_s"))}
    for member in ("target", *NAMES):
        base = _retargeted(base, patch, member)
    return _merged(_without(base, gone), patch, "payload")


def _retargeted(base: dict[str, Any], patch: Mapping[str, Any], member: str) -> dict[str, Any]:
    """Return `base` without what a patch of one of its targets makes void."""
    target, old = patch.get(member), base.get(member)
    if not isinstance(target, dict) or not isinstance(old, dict):
        return base
    if target.get("kind", "") not in ("", old["kind"]):
        # What was said of a target of another kind says nothing of this one.
        return {**base, member: {}}
    headers = target.get("headers")
    if not isinstance(headers, dict):
        return base
    # Names of headers have no case: another spelling takes the place of the one before.
    low = {name.lower() for name in headers}
    kept = {
        name: value
        for name, value in old["headers"].items()
        if name in headers or name.lower() not in low
    }
    return {**base, member: {**old, "headers": kept}}


def removes_payload(patch: Mapping[str, Any]) -> bool:
    """Tell whether a patch takes the payload away."""
    given = [patch[name] for name in PAYLOADS if name in patch]
    return bool(given) and all(value is None for value in given)


def _without(base: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {name: value for name, value in base.items() if name not in names}


def _merged(base: dict[str, Any], patch: Mapping[str, Any], opaque: str = "") -> dict[str, Any]:
    found = dict(base)
    for name, value in patch.items():
        old = found.get(name)
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict) and isinstance(old, dict) and name != opaque:
            found[name] = _merged(old, value)
        else:
            found[name] = value
    return found
