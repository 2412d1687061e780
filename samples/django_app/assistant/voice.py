"""The bot of the page that talks: each user's session is kept in this process, so gunicorn runs one worker."""

from django.conf import settings
from django.http import HttpRequest

from rtvi_sync import RTVIClient
from rtvi_sync.django import RTVIVoice


def make_client(_: HttpRequest) -> RTVIClient:
    """Return the client of a new session. Every visitor may talk; a site with users raises `PermissionDenied` here."""
    # The page has the microphone and the loudspeaker: no device of the server is used.
    return RTVIClient.for_url(settings.BOT_URL, mic=False, speaker=False, max_turn_audio=0, connect_timeout=15)


voice = RTVIVoice(make_client)
