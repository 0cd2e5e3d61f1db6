"""What `celery -A` is given: the application with what the environment names."""

import os

from tests.interop.apps import celery_app

app = celery_app.make_app(os.environ["BROKER"], os.environ["RESULTS"], os.environ["QUEUE"])
