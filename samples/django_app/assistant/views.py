"""The page with the form, the same as JSON, and the page that talks."""

import logging
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from rtvi_sync import RTVIError

from . import bot

logger = logging.getLogger(__name__)

# The page with the form needs no script, so injected ones can be forbidden; the other one loads those of this site.
CONTENT_SECURITY_POLICY = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
TALKING_POLICY = f"{CONTENT_SECURITY_POLICY}; script-src 'self'; connect-src 'self'"


@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Return a form, and below it the answer, which the template escapes."""
    status, answer = reply_to(request) if request.method == "POST" else (HTTPStatus.OK, {})
    response = render(request, "assistant/page.html", answer, status=status)
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return response


@require_safe
def talk(request: HttpRequest) -> HttpResponse:
    """Return the page that talks. Its element uses the routes of `voice.urls`."""
    response = render(request, "assistant/talk.html")
    response["Content-Security-Policy"] = TALKING_POLICY
    return response


@require_POST
def ask(request: HttpRequest) -> JsonResponse:
    """Return the answer as JSON: `answer` and `seconds`, or `error`.

    The caller sends the field `question`, and the CSRF token: from the page's form, or in the header `X-CSRFToken`. The
    status is 200; 400 for a wrong question; 502 if the bot cannot be reached or ends the session; 503 without
    `RTVI_URL`; 504 after a timeout.
    """
    status, answer = reply_to(request)
    return JsonResponse(answer, status=status)


def reply_to(request: HttpRequest) -> tuple[HTTPStatus, dict[str, Any]]:
    """Send the question of a form to the bot. The log has the reason of a failure, with the bot's words."""
    question = request.POST.get("question", "").strip()
    if not 0 < len(question) <= settings.LONGEST_QUESTION:
        return HTTPStatus.BAD_REQUEST, {"error": f"Give a question of 1 to {settings.LONGEST_QUESTION} characters"}
    if not settings.BOT_URL:
        logger.error("RTVI_URL does not say where the bot is")
        return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "There is no bot to be asked."}
    try:
        answer = bot.ask(question, settings.BOT_URL, settings.BOT_SECONDS)
    except TimeoutError as error:
        logger.warning("A question was not answered in time: %s", error)
        return HTTPStatus.GATEWAY_TIMEOUT, {"question": question, "error": "The bot did not answer in time. Try again."}
    except RTVIError as error:
        logger.warning("A question could not be put to the bot: %s", error)
        return HTTPStatus.BAD_GATEWAY, {"question": question, "error": "The bot cannot be reached. Try again later."}
    return HTTPStatus.OK, {"question": question, "answer": answer.text, "seconds": round(answer.seconds, 3)}
