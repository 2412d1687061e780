"""The relay between browsers and bots, for any web framework: `rtvi_sync.flask` and `rtvi_sync.django` have the routes.

Imports neither. Not public: use the blueprint or the views.
"""
