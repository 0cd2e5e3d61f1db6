"""The program that spark-submit starts: a job in the session that spark-submit has set up."""

import sys

from pipeline.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], submitted=True))
