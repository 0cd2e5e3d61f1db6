"""`python -m pipeline run JOB`, which `amqpd pipeline` starts."""

import sys

from pipeline.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
