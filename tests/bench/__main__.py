"""`python -m tests.bench [NAME ...] [--scale X]`: the cost of work on queues, and the fairness of queues.

The limits are for compiled modules and 10^6 messages. A figure over its limit makes the exit code 2.
`python -m tests.bench flood` attacks a broker, and has arguments of its own.
"""

import argparse
import platform
import sys

from broker.flavour import FLAVOUR
from tests.bench import flood
from tests.bench.benchmarks import BENCHMARKS, run


def main() -> int:
    if sys.argv[1:2] == ["flood"]:
        return flood.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--scale", type=float, default=1.0, help="this share of the messages")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    print(f"{FLAVOUR}, Python {platform.python_version()}, {platform.machine()}, scale {chosen.scale:g}")
    missed = 0
    for name in chosen.names or BENCHMARKS:
        print(f"-- {name}: {BENCHMARKS[name].__doc__}", flush=True)
        for figure in run(name, chosen.scale):
            print(figure.line())
            missed += figure.limit is not None and figure.value > figure.limit
    return 2 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
