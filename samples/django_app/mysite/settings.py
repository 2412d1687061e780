"""Settings that are safe as they are: for this machine alone, until you say otherwise."""

import os
import secrets

# All workers share it, also over restarts; without it each process makes up its own.
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or secrets.token_urlsafe(50)
DEBUG = False
# The host names of requests; change them together with the address that the server listens on.
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

ROOT_URLCONF = "mysite.urls"
WSGI_APPLICATION = "mysite.wsgi.application"
INSTALLED_APPS = ["assistant"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
USE_TZ = True
TIME_ZONE = "UTC"

CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Strict"
# Behind HTTPS: CSRF_COOKIE_SECURE, SECURE_HSTS_SECONDS and SECURE_SSL_REDIRECT; see `manage.py check --deploy`.
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024

# Where the bot is: a URL as RTVIClient.for_url() takes it.
BOT_URL = os.environ.get("RTVI_URL", "")
# Connecting and answering together. Web servers stop a worker that is silent for longer than their own limit.
BOT_SECONDS = float(os.environ.get("RTVI_SECONDS", "20"))
LONGEST_QUESTION = 2000
