"""Between a browser and a bot: a Flask blueprint keeps the session in the worker and streams its events to the page.

    from rtvi_sync.flask import RTVIBlueprint

    def make_client(request):
        return RTVIClient(transport=WebSocketTransport("ws://localhost:7860/ws-client"), connect_timeout=15)

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

Each browser user has one session with the bot, however many pages of his show it. He is known by an unguessable id in
Flask's signed session cookie, and by nothing else; no address names a session. Requests that another site's page makes
are refused.

    POST /bot/session    start the session, or find the one there is: {"state": "connecting"}
    GET  /bot/session    what state it is in
    GET  /bot/events     its events, for an EventSource: also when it is ready, and when it could not be started
    POST /bot/text       {"text": "Hello!"}: what the user typed; "audio_response": false for an answer in writing
    POST /bot/message    {"type": "...", "data": ...}: a client message of the application's own
    POST /bot/end        end it

A POST has a JSON object as its body, be it an empty one, and the type application/json. What goes wrong is told as
{"error": "a_word", "message": "what it means"}. docs/flask.md tells how to serve it, and which errors there are.
"""

from ..errors import MissingExtraError

try:
    from .blueprint import DEFAULT_EVENTS, RTVIBlueprint
except ModuleNotFoundError as _error:
    if _error.name != "flask":
        raise
    raise MissingExtraError("rtvi_sync.flask", "flask") from _error

__all__ = ["DEFAULT_EVENTS", "RTVIBlueprint"]
