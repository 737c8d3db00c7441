"""FastAPI. Run: TOCSIN_SECRETS=whsec_... uvicorn fastapi_app:app."""

import os
from typing import Any

from fastapi import FastAPI, Request

from tocsin_receiver import AsgiReceiver, Delivery, MemoryStore, Receiver

receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(), MemoryStore())
app = FastAPI()
# Paths outside the prefix stay as they are.
app.add_middleware(AsgiReceiver, receiver=receiver, prefix="/tocsin")


@app.post("/tocsin/report")
def report(request: Request) -> dict[str, Any]:
    """Do the work of one occurrence."""
    delivery: Delivery = request.scope["tocsin.delivery"]
    return {"key": delivery.key, "done_in_attempt": delivery.attempt}
