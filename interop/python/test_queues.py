"""Queues: competing consumers, browsing, windows, expiry, priority, selectors (named-objects 3.12)."""

import pytest

from harness import Refused, eventually, proves


@pytest.fixture
def q(broker):
    broker.queues("q")
    return broker


def put(broker, *bodies, to="q", **fields):
    client = broker.connect()
    client.sender(to, capability="queue").send_all(bodies, **fields)
    client.close()


def depth(broker, queue="q"):
    return broker.depth(queue, "queues")


def test_consumers_compete_in_turn(q):
    first, second = q.connect().receiver("q", credit=10), q.connect().receiver("q", credit=10)
    put(q, *range(1, 11))
    eventually(lambda: q.show("queues", "q")["consumers"], 2)
    assert [m.body for m in first.take(5)] == [1, 3, 5, 7, 9]
    assert [m.body for m in second.take(5)] == [2, 4, 6, 8, 10]


def test_a_higher_consumer_priority_is_served_first(q):
    low = q.connect().receiver("q", credit=10)
    high = q.connect().receiver("q", credit=3, properties={"priority": 5})
    put(q, *range(5))
    assert [m.body for m in high.take(3)] == [0, 1, 2]
    assert [m.body for m in low.take(2)] == [3, 4]
    proves("QU-1")


def test_an_exclusive_queue_has_one_active_consumer(broker):
    broker.queues("q", exclusive=True)
    first = broker.connect().receiver("q", credit=10)
    second = broker.connect().receiver("q", credit=10)
    put(broker, 1, 2)
    assert first.accept(2) == [1, 2]
    second.nothing()
    first.close()
    put(broker, 3)
    assert second.accept(1) == [3]
    proves("QU-3")


def test_a_lost_consumer_gives_its_messages_to_the_others(q):
    first = q.connect().receiver("q", credit=10)
    put(q, 1, 2, 3)
    first.take(3)
    second = q.connect().receiver("q", credit=10)
    first.client.drop()
    again = second.take(3)
    assert [m.body for m in again] == [1, 2, 3]
    assert all(m.delivery_count == 1 for m in again)


def test_browsing_shows_everything_and_takes_nothing(q):
    put(q, *range(1, 6))
    holder = q.connect().receiver("q", credit=2)
    held = holder.take(2)
    browser = q.connect().receiver("q", browse=True)
    seen = browser.drain()
    assert [m.body for m in seen] == [1, 2, 3, 4, 5]
    marks = ["x-opt-postroad-in-delivery" in m.annotations for m in seen]
    assert marks == [True, True, False, False, False]
    assert browser.drain() == []
    assert depth(q) == 5
    for message in held:
        message.accept()
    assert [m.body for m in q.connect().receiver("q", browse=True, selector="x = 1").drain()] == []
    proves("QU-2")


def test_a_browser_does_not_count_attempts(q):
    put(q, 1)
    for _ in range(3):
        q.connect().receiver("q", browse=True).drain()
    assert q.connect().receiver("q").receive().delivery_count == 0


@pytest.mark.parametrize("window", [1, 2, 50])
def test_the_window_is_honoured_exactly(q, window):
    put(q, *range(60))
    receiver = q.connect().receiver("q", credit=window)
    receiver.client.wait(lambda: receiver.link.queued == window, "the window to fill")
    taken = [receiver.receive() for _ in range(window)]
    receiver.nothing()
    taken[0].accept()
    receiver.nothing()
    receiver.credit(1)
    assert receiver.receive().body == window
    proves("QU-4")


def test_drain_sends_what_there_is_and_uses_the_credit_up(q):
    put(q, 1, 2, 3)
    receiver = q.connect().receiver("q")
    assert [m.body for m in receiver.drain(10)] == [1, 2, 3]
    assert receiver.link.credit == 0
    put(q, 4)
    receiver.nothing()
    assert receiver.receive().body == 4


def test_failed_deliveries_end_in_the_dead_letter_queue(broker):
    broker.queues("q", max_delivery_attempts=2)
    put(broker, 1, 2)
    receiver = broker.connect().receiver("q")
    for _ in range(2):
        receiver.receive().modify(failed=True)
    assert receiver.receive().body == 2
    eventually(lambda: depth(broker, "DLQ"), 1)
    proves("QU-5")


def test_expired_messages_are_never_delivered(broker):
    broker.queues("expired", "plain")
    broker.queues("q", expiry_queue="expired")
    # The one that is waited for comes last, so that the other one's time is over by then, too.
    for queue in ("plain", "q"):
        put(broker, "short", to=queue, ttl=0.2)
        put(broker, "long", to=queue, ttl=60)
    eventually(lambda: depth(broker, "expired"), 1, within=45)
    assert broker.connect().receiver("q").accept(1) == ["long"]
    assert broker.connect().receiver("plain").accept(1) == ["long"]
    letter = broker.connect().receiver("expired", browse=True).drain()[0]
    assert letter.body == "short"
    assert str(letter.annotations["x-opt-postroad-dl-reason"]) == "EXPIRED"
    proves("QU-6")


def test_a_delivery_does_not_expire_under_its_consumer(q):
    put(q, "short", ttl=0.3)
    receiver = q.connect().receiver("q")
    message = receiver.receive()
    receiver.nothing(0.5)
    message.accept()
    eventually(lambda: depth(q), 0)
    assert q.depth("DLQ", "queues") == 0


def test_priorities_come_first_and_keep_their_order(q):
    for number, priority in enumerate((4, 9, 4, 0, 9), 1):
        put(q, f"m{number}", priority=priority)
    order = ["m2", "m5", "m1", "m3", "m4"]
    assert [m.body for m in q.connect().receiver("q", browse=True).drain()] == order
    assert depth(q) == 5
    assert q.connect().receiver("q").accept(5) == order
    proves("objects:T16", "QU-7")


def test_channels_keep_their_order_whatever_the_priority(broker):
    broker.channels("c")
    client = broker.connect()
    sender = client.sender("c", capability="topic")
    for number, priority in enumerate((4, 9, 0), 1):
        sender.send(number, priority=priority)
    assert [m.body for m in broker.contents("c")] == [1, 2, 3]


def test_a_selector_takes_only_what_matches_and_is_not_blocked(q):
    client = q.connect()
    sender = client.sender("q", capability="queue")
    for number in range(1, 7):
        sender.send(number, properties={"even": number % 2 == 0})
    assert client.receiver("q", selector="even = TRUE").accept(3) == [2, 4, 6]
    assert client.receiver("q").accept(3) == [1, 3, 5]
    proves("QU-12")


def test_a_full_queue_refuses_and_says_so(broker):
    broker.queues("q", capacity=2)
    sender = broker.connect().sender("q", capability="queue")
    sender.send_all([1, 2])
    with pytest.raises((Refused, TimeoutError)) as refused:
        sender.send(3)
    if refused.type is Refused:
        assert (refused.value.condition, refused.value.reason) == ("amqp:resource-limit-exceeded", "QUEUE_FULL")
    assert depth(broker) == 2
    broker.connect().receiver("q").accept(1)
    eventually(lambda: depth(broker), 1)
    put(broker, 4)
    assert broker.connect().receiver("q").accept(2) == [2, 4]


def test_purge_empties_a_queue(q):
    put(q, *range(10))
    q.api.must("POST", "queues", "q", "purge", body={})
    eventually(lambda: depth(q), 0)


def test_messages_survive_a_clean_stop_and_a_crash(q):
    put(q, 1, durable=True)
    q.restart("stop")
    put(q, 2, durable=True)
    q.restart("kill")
    assert q.connect().receiver("q").accept(2) == [1, 2]


def test_the_last_consumer_leaves_the_messages_there(open_broker):
    put(open_broker, 1, 2)
    receiver = open_broker.connect().receiver("q")
    receiver.accept(1)
    receiver.close()
    assert open_broker.connect().receiver("q").accept(1) == [2]
    proves("QU-13")
