"""`python -m tests.simulation.queues [SEED | --seeds FIRST COUNT] [--tell]`: replay one seed, or run many.

With shortened slices: `python -m tests.simulation.queues.short_slices`.
"""

import argparse
import sys
import time

from tests.simulation.queues.coverage import missing, table
from tests.simulation.queues.driver import Run
from tests.simulation.queues.invariants import InvariantError, Seen
from tests.simulation.queues.turns import SHORT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.queues", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="replay this one")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "COUNT"), default=(0, 10_000))
    parser.add_argument("--tell", action="store_true", help="print every step")
    parser.add_argument("--profile", help="this profile for every seed")
    parser.add_argument(
        "--haste", type=float, default=0, help="how often clients do not wait for turns to come"
    )
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    chosen = parser.parse_args()
    seen = Seen()
    if chosen.seed is not None:
        Run(chosen.seed, seen, chosen.profile, chosen.haste).run(tell=print if chosen.tell else None)
        print("no invariant is broken")
        return 0
    first, count = chosen.seeds
    began, failed = time.monotonic(), 0
    for seed in range(first, first + count):
        try:
            Run(seed, seen, chosen.profile, chosen.haste).run()
        except InvariantError as error:
            print(error)
            failed += 1
            if not chosen.all:
                return 1
    print(table(seen))
    never = missing(seen, SHORT and chosen.haste > 0)
    print(f"{count} seeds, {failed} failed, {time.monotonic() - began:.1f} s; never seen: {never}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
