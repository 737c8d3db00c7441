"""Plain ASGI. Run: TOCSIN_SECRETS=whsec_... uvicorn asgi_app:app."""

import json
import os

from tocsin_receiver import AsgiReceiver, Delivery, MemoryStore, Receiver
from tocsin_receiver.asgi import Receive, Scope, Send


async def handle(scope: Scope, _receive: Receive, send: Send) -> None:
    """Do the work of one occurrence."""
    delivery: Delivery = scope["tocsin.delivery"]
    said = json.dumps({"key": delivery.key, "done_in_attempt": delivery.attempt}).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


app = AsgiReceiver(handle, Receiver(os.environ["TOCSIN_SECRETS"].split(), MemoryStore()))
