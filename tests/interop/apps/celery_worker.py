"""The application for `celery -A`, configured by the environment."""

import os

from tests.interop.apps import celery_app

app = celery_app.make_app(os.environ["BROKER"], os.environ["RESULTS"], os.environ["QUEUE"])
