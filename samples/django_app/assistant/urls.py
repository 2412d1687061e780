"""The page with the form, the view for programs, and the page that talks."""

from django.urls import include, path

from . import views
from .voice import voice

urlpatterns = [
    path("", views.page),
    path("ask", views.ask),
    path("talk", views.talk),
    path("bot/", include(voice.urls)),
]
