"""Litestar. Run: TOCSIN_SECRETS=whsec_... uvicorn litestar_app:app."""

import os
from typing import Any

from litestar import Litestar, Request, post

from tocsin_receiver import AsgiReceiver, Delivery, MemoryStore, Receiver


@post("/tocsin/report", status_code=200)
async def report(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Do the work of one occurrence."""
    delivery: Delivery = request.scope["tocsin.delivery"]  # type: ignore[typeddict-item]  # ours
    return {"key": delivery.key, "done_in_attempt": delivery.attempt}


receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(), MemoryStore())
app = AsgiReceiver(Litestar([report]), receiver, prefix="/tocsin")  # type: ignore[arg-type]  # TypedDicts
