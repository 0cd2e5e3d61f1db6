"""The broker stops, or is killed, and starts again with the log's records."""

from __future__ import annotations

from broker.core.queues.stops import stopped
from tests.simulation.queues import delaying
from tests.simulation.queues.alteration import in_force, settle_renames
from tests.simulation.queues.invariants import check
from tests.simulation.queues.journal import MAY, MUST, NOT
from tests.simulation.queues.model import LIMIT, READY, Item, Shelf
from tests.simulation.queues.operating import give_all_back
from tests.simulation.queues.remembering import recognize
from tests.simulation.queues.transacting import finish
from tests.simulation.queues.world import World
from tests.simulation.sim_disk import PowerLoss


def commit(world: World) -> None:
    """End the turn: the disk gets the appended records."""
    world.life.log.commit()


def disk(world: World) -> None:
    """Let the disk do some of its pending work."""
    pending = world.life.deferred.pending
    if not pending:
        return
    if world.rng.random() < 0.5:
        world.life.deferred.run_all()
    else:
        world.life.deferred.step()


def restart(world: World) -> None:
    """A clean stop, with or without the clients leaving first."""
    finish(world)
    give_all_back(world)
    world.turns.note("stopped")
    if world.rng.random() < 0.5:
        for wire in world.wires:
            for channel in wire.channels:
                channel.session.close_targets()
    world.life.close()
    world.turns.catch_up()  # entries restored after a clean stop may be too many
    world.book.line_up()  # or late, and waits then behind what has died before
    world.turns.check_settled()
    world.seen("restart: clean")
    counts = world.life.ledger.end(list(world.life.vhost.topology.queues.values()))
    start(world)
    if world.life.clean:
        there = {number: world.life.ledger.began.get(number) for number in counts}
        check(world.seen, "J1", there == counts, f"{there} have come back, the journal has said {counts}")


def kill(world: World) -> None:
    """Let any operation of the disk be the last from now on."""
    if world.rng.random() < 0.3:
        crash(world)
    else:
        world.disk.operations_left = world.rng.randrange(12)


def crash(world: World) -> None:
    """End the process; sometimes the power is cut, too."""
    world.turns.note("killed")
    if world.rng.random() < 0.5:
        world.disk.kill()
        world.seen("restart: killed")
    else:
        world.disk.crash()
        world.seen("restart: power lost")
    start(world)


def start(world: World) -> None:
    """The next process; it may die young."""
    for shelf in world.book.shelves.values():
        world.remembered.update({(shelf.name, item.number): item for item in shelf.items})
    world.life.forget()
    if world.rng.random() < 0.1:
        world.disk.operations_left = world.rng.randrange(12)
    while True:
        try:
            world.begin()
            break
        except PowerLoss:
            world.seen("restart: killed while starting")
            world.disk.kill()
    world.disk.operations_left = -1
    adopt(world)


def adopt(world: World) -> None:
    """Compare the recovered messages with the allowed ones, and make them the model from now on."""
    book, journal, seen = world.book, world.book.journal, world.seen
    vhost, numbers = world.life.vhost, world.life.number
    settle_renames(world)
    old = book.shelves
    recovered: dict[tuple[str, int], tuple[bool, int]] = {}
    dead: list[tuple[str, int]] = []
    for name, queue in vhost.topology.queues.items():
        check(seen, "R2", journal.queue_status(name) != NOT, f"queue {name} was deleted")
        for entry in queue.entries:
            recovered[name, numbers(entry.message)] = (bool(entry.redelivered), int(entry.delivery_count))
        for number, _ in world.waiting(name):
            recovered[name, number] = (False, 0)
            dead.append((name, number))
        for key in delaying.held_keys(world, queue):
            recovered[key] = (False, 0)
    for name in journal.declared:
        there = name in vhost.topology.queues or journal.queue_status(name) != MUST
        check(seen, "R1", there, f"queue {name} is lost")
    for key in [key for key in journal.added if key[0] in vhost.topology.queues]:
        status = journal.status(key)
        check(seen, "R1", status != MUST or key in recovered, f"{key} is lost")
        if status == MAY:
            seen("restart: in doubt, there" if key in recovered else "restart: in doubt, gone")
    for key in recovered:
        check(seen, "R2", journal.status(key) != NOT, f"{key} has come back")
        status = journal.death_status(key)
        check(seen, "Z4", status != (NOT if key in dead else MUST), f"{key} waits: {key in dead}")
    faults = journal.torn(set(recovered))
    check(seen, "R3", not faults, "; ".join(faults))
    book.dying.clear()
    book.origins.clear()
    book.shelves = {name: take_over(world, old.get(name), name, recovered) for name in vhost.topology.queues}
    journal.restart({key: count for key, (_, count) in recovered.items()}, vhost.topology.queues, dead)
    resume(world)


def take_over(
    world: World, old: Shelf | None, name: str, recovered: dict[tuple[str, int], tuple[bool, int]]
) -> Shelf:
    """A queue that has come back, with its messages in the order in which they were appended."""
    book, seen, now = world.book, world.seen, world.clock.now
    spec = in_force(world, old) if old is not None else world.specs[name]
    shelf = Shelf(name, spec, book.journal, seen)
    shelf.service.stopped = stopped(world.life.vhost.topology.queues[name])
    if world.life.clean and old is not None:
        before_stop = old.service.stopped
        check(seen, "R5", shelf.service.stopped == before_stop, f"queue {name} was stopped: {before_stop}")
    if old is not None and spec.logged:
        shelf.recall = old.recall
    recognize(world, shelf, world.life.vhost.topology.queues[name], set(recovered), old is not None)
    delaying.take_over(world, shelf, world.life.vhost.topology.queues[name])
    waiting = dict(world.waiting(name))
    if old is not None:
        same = all(old.dead.get(number, why) == why for number, why in waiting.items())
        check(seen, "Z4", same, f"{waiting} wait, and have died as {old.dead}")
    in_turn = sorted(waiting, key=lambda number: book.notes[number].appended)
    check(seen, "R4", list(waiting) == in_turn, f"{list(waiting)} wait, not {in_turn}")
    for number, why in waiting.items():
        seen("restart: waits to be dead-lettered")
        book.wait(shelf, number, why)
    order = [number for queue, number in recovered if queue == name and number > 0 and number not in waiting]
    notes = sorted((book.notes[number] for number in order), key=lambda note: note.appended)
    for note in notes:
        item = shelf.put(note, book.tick(), note.date if note.dated else now)
        shelf.fresh = None
        redelivered, count = recovered[name, note.number]
        before = world.remembered.get((name, note.number))
        expect(world, shelf, item, redelivered, count, before)
        if item.due is not None:
            item.due = max(item.due, now)
        item.redelivered, item.count, item.restored = redelivered, count, True
        item.was_out = False
    numbers = [item.number for item in shelf.items]
    check(seen, "R4", numbers == order, f"queue {name} has come back as {order}, not {numbers}")
    return shelf


def expect(
    world: World, shelf: Shelf, item: Item, redelivered: bool, count: int, before: Item | None
) -> None:
    seen, key = world.seen, (shelf.name, item.number)
    if world.life.clean and before is not None:
        was = before.redelivered or before.count > 0
        check(seen, "R5", redelivered == was, f"{key} redelivered: {redelivered}")
    else:
        check(seen, "R5", redelivered, f"{key} may have been with somebody")
    least, most = world.book.journal.counts_of(key) if shelf.spec.counts else (0, 0)
    check(seen, "R5", least <= count <= most, f"{key} was given out {count} times, not {least} to {most}")


def resume(world: World) -> None:
    """Remove recovered items beyond the limits, and renew everything that is not durable."""
    book, life = world.book, world.life
    for shelf in book.shelves.values():
        for item in [item for item in shelf.items if shelf.is_outdated(item)]:
            book.replace(shelf, item)
        for item in [item for item in shelf.items if item.state == READY and shelf.is_exhausted(item)]:
            book.leave(shelf, item, LIMIT)
    life.broker.resume()
    world.turns.advance(0)
    delaying.check_due(world, world.clock.now)
    world.remembered.clear()
    current = {base: name for base, name in world.work.items() if name in book.shelves}
    for base, spec in world.profile.queues.items():
        newest = max((name for name in book.shelves if name.split(".")[0] == base), default=None)
        if base in current:
            name = current[base]
        elif newest is not None:
            name = newest
        else:
            world.declare(base, spec)
            continue
        world.work[base] = name
        if base in world.profile.fanout:
            life.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    for name in [name for name in book.shelves if name not in world.work.values()]:
        world.delete_queue(book.shelves[name])
    life.sync()
