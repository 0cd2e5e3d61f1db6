"""Random runs: a seed says which profile and which steps. The same seed does the same in every process."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.queues import (
    alteration,
    delaying,
    group_profiles,
    many,
    operating,
    profiles,
    publishing,
    restarting,
    special_profiles,
    steps,
    sure_profiles,
    transacting,
)
from tests.simulation.queues.invariants import InvariantError, Seen
from tests.simulation.queues.profiles import Profile
from tests.simulation.queues.turns import SHORT
from tests.simulation.queues.world import World
from tests.simulation.sim_disk import PowerLoss

STEPS = 120
CHOSEN = profiles.PROFILES | group_profiles.PROFILES | special_profiles.PROFILES  # by a seed
PROFILES = CHOSEN | sure_profiles.SURE
Step = Callable[[World], None]


def transact(world: World) -> None:
    transacting.transact(world, [held for held in steps.pick(world) if held.consumer.acquires])


STEP: dict[str, tuple[int, Step]] = {
    "publish": (26, publishing.publish),
    "publish immediate": (3, publishing.publish_immediate),
    "transaction": (4, transact),
    "purge": (1, publishing.purge),
    "stop": (0, publishing.stop),
    "delete queue": (1, publishing.delete_queue),
    "attach": (10, steps.attach),
    "cancel": (3, steps.cancel),
    "close channel": (1, steps.close_channel),
    "lose connection": (1, steps.lose_connection),
    "block": (4, steps.block),
    "flow": (2, steps.flow),
    "qos": (3, steps.resize),
    "get": (3, steps.get),
    "settle": (14, steps.settle),
    "discard": (4, steps.discard),
    "release": (8, steps.release),
    "send again": (2, steps.send_again),
    "alter": (0, alteration.alter),
    "rename": (0, alteration.rename),
    "begin operation": (0, operating.begin),
    "begin redrive": (0, operating.redrive),
    "begin on dead": (0, operating.begin_dead),
    "end operation": (0, operating.end),
    "cancel delayed": (0, delaying.cancel),
    "move delayed": (0, delaying.move),
    "pass time": (4, steps.pass_time),
    "turn": (14, steps.turn),
    "rest": (8, steps.rest),
    "commit": (1, restarting.commit),
    "disk": (1, restarting.disk),
    "restart": (0, restarting.restart),
    "kill": (0, restarting.kill),
    "settle many": (0, many.settle),
    "refuse many": (0, many.refuse),
    "give back many": (0, many.give_back),
    "transaction of many": (0, many.transact),
}
OFTEN = {  # where slices are short
    "publish": 40,
    "settle many": 12,
    "refuse many": 8,
    "give back many": 8,
    "transaction of many": 3,
    "purge": 4,
    "delete queue": 2,
}


class Run:
    """A run of a single seed."""

    def __init__(self, seed: int, seen: Seen, profile: str | None = None, haste: float = 0) -> None:
        self.seed = seed
        self.haste = haste
        names = list(CHOSEN)
        self.name = profile or names[seed % len(names)]
        self.profile: Profile = PROFILES[self.name]
        self.seen = seen
        self.rng = random.Random(f"{self.name} {seed}")
        self.world = World(self.profile, self.rng, seen, haste)

    def run(self, count: int = STEPS, tell: Callable[[str], None] | None = None) -> None:
        """`count` steps, and a rest at the end. InvariantError names the step, and how to do it again."""
        names = list(STEP)
        usual = {name: weight for name, (weight, _) in STEP.items()} | (OFTEN if SHORT else {})
        weights = [self.profile.weights.get(name, usual[name]) for name in names]
        self.seen("profile: " + self.name)
        name, number = "begin", 0
        try:
            for number in range(count):
                name = self.rng.choices(names, weights)[0]
                if tell is not None:
                    tell(f"{number}: {name}")
                self.step(name, STEP[name][1])
            name = "end"
            self.step(name, steps.rest)
        except Exception as error:
            module = "tests.simulation.queues" + (".short_slices" if SHORT else "")
            again = f"python -m {module} {self.seed} --profile {self.name!r}"
            again += f" --haste {self.haste}" if self.haste else ""
            text = f"{error}; step {number} ({name}) of profile {self.name!r}; again: {again}"
            raise InvariantError(
                error.check if isinstance(error, InvariantError) else "other", text
            ) from error
        finally:
            self.world.life.forget()

    def step(self, name: str, step: Step) -> None:
        world = self.world
        try:
            step(world)
            world.end_of_step()
        except PowerLoss:
            restarting.crash(world)
            world.end_of_step()
        self.seen("step: " + name)
