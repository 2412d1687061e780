"""The application: a page that talks, and the relay between it and the bot."""

import os
import secrets

from flask import Flask, Request, Response, render_template

from rtvi_sync import RTVIClient
from rtvi_sync.flask import RTVIBlueprint

# Only this application's own files are loaded: no inline script or style, and no frame around the page.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(bot_url: str) -> Flask:
    """Return the application for a bot, at a URL as `RTVIClient.for_url()` takes it."""
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=os.environ.get("SECRET_KEY") or secrets.token_hex(32),
        SESSION_COOKIE_SAMESITE="Strict",
        TRUSTED_HOSTS=["127.0.0.1", "localhost"],  # the host names of requests; change them with the address
    )

    def make_client(_: Request) -> RTVIClient:
        # Every visitor may talk to the bot. An application with users checks the user here, and calls abort(403).
        # No device of the server is used: the page has the microphone and the loudspeaker.
        return RTVIClient.for_url(bot_url, mic=False, speaker=False, max_turn_audio=0, connect_timeout=15)

    bot = RTVIBlueprint(make_client, voice=True)
    app.register_blueprint(bot, url_prefix="/bot")

    @app.get("/")
    def page() -> str:
        bot.set_cookie()  # the page's requests are recognized by it
        return render_template("page.html")

    @app.after_request
    def protect(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    return app
