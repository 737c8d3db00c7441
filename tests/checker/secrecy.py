"""What nobody may read: secrets anywhere (I22), and what is another tenant's (I16)."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from tests.checker.inputs import Head, History
from tests.checker.report import Report


def judge(history: History, report: Report) -> None:
    """Look for every secret and canary in everything that was recorded."""
    scenario = history.scenario
    if scenario.secrets:
        pattern = _any_of(scenario.secrets)
        for where, data in _everything(history):
            if pattern.search(data):
                report.wrong("I22", f"a secret stands in {where}")
    for tenant in {canary.tenant for canary in scenario.canaries}:
        mine = [canary.text for canary in scenario.canaries if canary.tenant == tenant]
        pattern = _any_of(mine)
        for where, data in _shown_to_others(history, tenant):
            if pattern.search(data):
                report.wrong("I16", f"a text of tenant {tenant.hex()} stands in {where}")


def _any_of(texts: Iterable[str]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(text.encode()) for text in texts))


def _everything(history: History) -> Iterator[tuple[str, bytes]]:
    for stored in history.events:
        yield f"event {stored.name} at position {stored.position}", stored.data
    for text in history.texts:
        yield text.where, text.text.encode()
    for row in history.history or ():
        yield "the run history", _bytes(row)
    for state in history.projections or ():
        if isinstance(state, Head):
            yield "job_heads", state.state
        else:
            yield "the projections", _bytes(state)


def _shown_to_others(history: History, tenant: bytes) -> Iterator[tuple[str, bytes]]:
    """Return what a tenant other than this one was shown."""
    for text in history.texts:
        if text.tenant and text.tenant != tenant:
            yield text.where, text.text.encode()
    for hit in history.hits or ():
        if hit.tenant and hit.tenant != tenant:
            yield f"a request of run {hit.run.hex()}", _bytes((hit.key, hit.url, hit.headers))
    for row in history.history or ():
        if row.tenant_id != tenant:
            yield "the run history of another tenant", _bytes(row)


def _bytes(value: object) -> bytes:
    # MessagePack leaves texts and bytes as they are.
    return msgspec.msgpack.encode(value)
