"""The routes."""

from django.urls import include, path

urlpatterns = [path("", include("assistant.urls"))]
