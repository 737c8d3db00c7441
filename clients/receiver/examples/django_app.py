"""Django in one file. Run: TOCSIN_SECRETS=whsec_... gunicorn django_app:app."""

import os

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from tocsin_receiver import Delivery, MemoryStore, Receiver, WsgiReceiver


def report(request: HttpRequest) -> JsonResponse:
    """Do the work of one occurrence."""
    delivery: Delivery = request.META["tocsin.delivery"]
    return JsonResponse({"key": delivery.key, "done_in_attempt": delivery.attempt})


# The signature says who calls: there is no cookie that another site could use.
urlpatterns = [path("tocsin/report", csrf_exempt(report))]

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="not used here")
django.setup()
receiver = Receiver(os.environ["TOCSIN_SECRETS"].split(), MemoryStore())
app = WsgiReceiver(WSGIHandler(), receiver, prefix="/tocsin")
