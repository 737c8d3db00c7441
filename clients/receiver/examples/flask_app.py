"""Flask. Run: TOCSIN_SECRETS=whsec_... flask --app flask_app run."""

import os
from typing import Any

from flask import Flask, request

from tocsin_receiver import Delivery, MemoryStore, Receiver, WsgiReceiver

app = Flask(__name__)


@app.post("/tocsin/report")
def report() -> dict[str, Any]:
    """Do the work of one occurrence."""
    delivery: Delivery = request.environ["tocsin.delivery"]
    return {"key": delivery.key, "done_in_attempt": delivery.attempt}


receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(), MemoryStore())
app.wsgi_app = WsgiReceiver(app.wsgi_app, receiver, prefix="/tocsin")  # type: ignore[method-assign]  # Flask's own way
