"""x-expires: a queue that nobody uses goes. [RabbitMQ x-expires]"""

from broker.core.queues.attach import detach, get_one
from broker.core.queues.limits import touch
from tests.yard import Yard


def there(yard: Yard, name: str = "q") -> bool:
    return name in yard.vhost.topology.queues


def test_a_queue_goes_when_it_has_not_been_used_for_so_long() -> None:
    yard = Yard()
    yard.queue(expires=100)
    yard.clock.advance(99)
    assert there(yard)
    yard.clock.advance(1)
    assert not there(yard)


def test_messages_do_not_keep_it() -> None:
    yard = Yard()
    yard.queue(expires=100)
    yard.clock.advance(50)
    yard.publish()
    yard.clock.advance(50)
    assert not there(yard)


def test_declaring_it_again_and_asking_it_for_a_message_is_use() -> None:
    yard = Yard()
    queue = yard.queue(expires=100)
    yard.clock.advance(60)
    yard.queue(expires=100)
    yard.clock.advance(60)
    get_one(queue, yard.client(queue, acquires=False).consumer)
    for client in list(queue.manager.all):
        detach(queue, client, [])
    yard.clock.advance(60)
    touch(queue)  # a passive declaration
    yard.clock.advance(99)
    assert there(yard)
    yard.clock.advance(1)
    assert not there(yard)


def test_a_consumer_keeps_it_and_its_time_begins_when_the_last_one_goes() -> None:
    yard = Yard()
    queue = yard.queue(expires=100)
    first, second = yard.client(queue), yard.client(queue)
    yard.clock.advance(500)
    first.cancel()
    yard.clock.advance(500)
    second.vanish()
    yard.clock.advance(99)
    assert there(yard)
    yard.clock.advance(1)
    assert not there(yard)


def test_a_durable_queue_is_deleted_in_the_log_too() -> None:
    yard = Yard()
    yard.queue(durable=True, expires=100)
    yard.clock.advance(100)
    kinds = [change["kind"] for change in yard.store.changes]  # type: ignore[attr-defined]
    assert kinds[-1] == "queue.delete"


def test_what_was_deleted_and_declared_again_has_its_own_time() -> None:
    yard = Yard()
    yard.queue(expires=100)
    yard.clock.advance(50)
    yard.vhost.declarations.delete_queue("q", False, False)
    yard.queue(expires=100)
    yard.clock.advance(99)
    assert there(yard)
    yard.clock.advance(1)
    assert not there(yard)


def test_its_messages_expire_meanwhile() -> None:
    yard = Yard()
    queue = yard.queue(expires=100, message_ttl=30)
    yard.publish(count=2)
    yard.clock.advance(30)
    assert there(yard)
    assert queue.ready == 0
    yard.clock.advance(70)
    assert not there(yard)
