"""Between a browser and a bot: a Flask blueprint keeps the session in the worker and streams its events to the page.

    from rtvi_sync.flask import RTVIBlueprint

    def make_client(request):
        return RTVIClient(transport=WebSocketTransport("ws://localhost:7860/ws-client"), connect_timeout=15)

    def create_app():
        app = Flask(__name__)
        app.secret_key = os.environ["SECRET_KEY"]
        app.register_blueprint(RTVIBlueprint(make_client), url_prefix="/bot")
        return app

Each browser user has one session with the bot, however many pages of his show it. He is known by an unguessable id in
Flask's signed session cookie, and by nothing else; no address names a session. Requests that another site's page makes
are refused.

    POST /bot/session    start the session, or find the one there is: {"state": "ready"}
    GET  /bot/session    what state it is in
    GET  /bot/events     its events, for an EventSource
    POST /bot/text       {"text": "Hello!"}: what the user typed; "audio_response": false for an answer in writing
    POST /bot/message    {"type": "...", "data": ...}: a client message of the application's own
    POST /bot/end        end it

A POST has a JSON object as its body, be it an empty one, and the type application/json. What goes wrong is told as
{"error": "a_word", "message": "what it means"}. docs/flask.md tells how to serve it, and which errors there are.
"""

from ..errors import MissingExtraError

try:
    from .blueprint import DEFAULT_EVENTS, RTVIBlueprint
except ModuleNotFoundError as error:
    if error.name != "flask":
        raise
    raise MissingExtraError("rtvi_sync.flask", "flask") from error

__all__ = ["DEFAULT_EVENTS", "RTVIBlueprint"]
