"""The program that spark-submit starts: a job in the session of spark-submit."""

import sys

from pipeline.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], submitted=True))
