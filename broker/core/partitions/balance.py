"""The members of a partitioned queue, shared out among the consumers that are served alone."""

from __future__ import annotations

from broker.core.queues.consumer import QueueConsumer


def share_out(
    owners: list[QueueConsumer | None], consumers: list[QueueConsumer]
) -> list[QueueConsumer | None]:
    """Return the new owner of each member, given the present `owners`; None without consumers.

    The numbers of members of two consumers differ by 1 at most, and as few members as possible get another
    owner. `consumers`: in the order of attaching; of equals the first one gets more.
    """
    if not consumers:
        return [None] * len(owners)
    held = dict.fromkeys(consumers, 0)
    for owner in owners:
        if owner is not None and owner in held:
            held[owner] += 1
    least, more = divmod(len(owners), len(consumers))
    room = dict.fromkeys(consumers, least)
    for consumer in sorted(consumers, key=lambda each: -held[each])[:more]:
        room[consumer] += 1
    shared: list[QueueConsumer | None] = []
    for owner in owners:
        if owner is not None and room.get(owner, 0) > 0:
            room[owner] -= 1
            shared.append(owner)
        else:
            shared.append(None)
    free = [consumer for consumer in consumers for _ in range(room[consumer])]
    return [free.pop(0) if owner is None else owner for owner in shared]
