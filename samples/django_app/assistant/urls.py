"""The page and the view for programs."""

from django.urls import path

from . import views

urlpatterns = [path("", views.page), path("ask", views.ask)]
