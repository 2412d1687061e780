"""A Celery task that asks a bot a question."""
