"""What spark-submit starts: the job, in the session that spark-submit has set up."""

import sys

from pipeline.command import FAILED, parser, run_here
from pipeline.errors import PipelineError


def main() -> int:
    """Run the job and return the exit status."""
    try:
        return run_here(parser().parse_args(), None)
    except PipelineError as error:
        sys.stderr.write(f"amqpd pipeline: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
