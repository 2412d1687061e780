"""A Django project of one file whose page talks; its environment says where the bot is."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from rtvi_sync import RTVIClient
from rtvi_sync.django import RTVIVoice

if not settings.configured:
    settings.configure(
        SECRET_KEY="known to the tests",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
    )


def make_client(request: HttpRequest) -> RTVIClient:
    """Return a client for a new session."""
    return RTVIClient.for_url(os.environ["RTVI_BOT_URL"], connect_timeout=10.0)


def page(request: HttpRequest) -> HttpResponse:
    """Return the page."""
    return HttpResponse("the page")


def log_out(request: HttpRequest) -> HttpResponse:
    """End the user's session, as the logout of an application does."""
    response = HttpResponse("logged out")
    voice.end_session(request, response)
    return response


voice = RTVIVoice(make_client)
urlpatterns = [path("", page), path("logout", log_out), path("bot/", include(voice.urls))]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(["manage.py", "runserver", "--noreload", sys.argv[1]])
