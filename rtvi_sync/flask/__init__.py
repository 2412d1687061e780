"""Relay between a browser and a bot: a Flask blueprint keeps the session in the worker and streams events to the page.

    from rtvi_sync.flask import RTVIBlueprint

    def make_client(request):
        return RTVIClient.for_url("http://localhost:7860", mic=False, speaker=False, connect_timeout=15)

    def create_app():
        app = Flask(__name__)
        app.secret_key = os.environ["SECRET_KEY"]
        bot = RTVIBlueprint(make_client)
        app.register_blueprint(bot, url_prefix="/bot")

        @app.get("/")
        def page():
            bot.set_cookie()
            return render_template("page.html")

        return app

Each browser user has one session with the bot, shared by all pages of that user. A user is identified only by an
unguessable id in Flask's signed session cookie; no URL names a session. Requests from pages of other origins are
refused.

    POST /bot/session    start the session, or return the one that exists: {"state": "connecting"}
    GET  /bot/session    its state
    GET  /bot/events     its events, for an EventSource: also when it is ready, and when it could not be started
    POST /bot/text       {"text": "Hello!"}: text that the user typed; "audio_response": false for a written answer
    POST /bot/message    {"type": "...", "data": ...}: a client message of the application
    POST /bot/end        end it

The body of a POST is a JSON object, possibly empty, and its type application/json. The body of an error is
{"error": "a_word", "message": "what it means"}. docs/flask.md says how to serve it, and lists the errors.
"""

from ..errors import MissingExtraError

try:
    from .blueprint import DEFAULT_EVENTS, RTVIBlueprint
except ModuleNotFoundError as _error:
    if _error.name != "flask":
        raise
    raise MissingExtraError("rtvi_sync.flask", "flask") from _error

__all__ = ["DEFAULT_EVENTS", "RTVIBlueprint"]
