"""What a join holds for its destination, whatever happens at the source (joins-and-interest 3.2, 3.5, 3.6)."""

import time

import pytest

from harness import Refused, eventually, proves


def publisher(broker, channel="a"):
    return broker.connect().sender(channel, capability="topic")


def bodies(broker, channel):
    return [m.body for m in broker.contents(channel)]


def test_evicted_events_are_held_for_the_join_and_purged_ones_are_not(broker):
    broker.channels("a", capacity=2, honour_capacity=False)
    broker.channels("b")
    broker.join("a", "b", enabled=False)
    publisher(broker).send_all([1, 2, 3, 4, 5], durable=True)
    assert broker.depth("a") == 2
    broker.restart("kill")
    broker.api.must("POST", "joins", "a->b", "resume")
    eventually(lambda: broker.depth("b"), 5)
    assert bodies(broker, "b") == [1, 2, 3, 4, 5]
    broker.api.must("POST", "joins", "a->b", "pause")
    publisher(broker).send_all([6, 7])
    broker.api.must("POST", "channels", "a", "purge", body={})
    eventually(lambda: broker.depth("a"), 0)
    broker.api.must("POST", "joins", "a->b", "resume")
    publisher(broker).send(8)
    eventually(lambda: bodies(broker, "b"), [1, 2, 3, 4, 5, 8])


def test_expired_events_are_not_forwarded(broker):
    broker.channels("dead", "b")
    broker.channels("a", dead_event_store="dead")
    name = broker.join("a", "b", enabled=False)
    publisher(broker).send("short", ttl=0.2)
    publisher(broker).send("long")
    eventually(lambda: broker.depth("a"), 1, within=45)
    broker.api.must("POST", "joins", name, "resume")
    assert broker.stored("b") == [1]
    assert bodies(broker, "dead") == ["short"]
    proves("FWD-2")


def test_a_full_spool_refuses_publishers_to_that_source_only(make_broker):
    broker = make_broker(broker="spool_max_events = 3")
    broker.channels("a", capacity=1, honour_capacity=False)
    broker.channels("b", "other")
    broker.join("a", "b", enabled=False)
    sender = publisher(broker)
    with pytest.raises((Refused, TimeoutError)) as refused:
        for number in range(10):
            sender.send(number)
    if refused.type is Refused:
        assert (refused.value.condition, refused.value.reason) == ("amqp:resource-limit-exceeded", "JOIN_SPOOL_FULL")
    publisher(broker, "other").send("free")
    broker.api.must("POST", "joins", "a->b", "resume")
    eventually(lambda: broker.depth("b") >= 3)
    publisher(broker).send("again")


def test_time_to_live_counts_from_arrival_at_the_destination(broker):
    broker.channels("a")
    broker.channels("b", ttl=1000)
    name = broker.join("a", "b", enabled=False)
    publisher(broker).send("x")
    time.sleep(1.2)
    broker.api.must("POST", "joins", name, "resume")
    eventually(lambda: broker.depth("b"), 1)
    eventually(lambda: broker.depth("b"), 0, within=45)
    proves("FWD-4")


def test_an_archive_crossing_uses_the_budget_and_a_filtered_event_does_not(broker):
    broker.channels("a", "b", "c")
    broker.queues("near", "far")
    broker.join("a", "b", max_hops=0)
    broker.join("a", "c", max_hops=1)
    broker.join("b", "near", archive=True)
    broker.join("c", "far", archive=True, filter="x = 1")
    sender = publisher(broker)
    sender.send(1, properties={"x": 1})
    sender.send(2, properties={"x": 2})
    assert broker.stored("b", "c", "queue:near", "queue:far") == [2, 2, 0, 1]
    proves("HOP-5")


def test_identity_is_given_once_and_copied_and_each_store_numbers_for_itself(broker):
    broker.channels("a", "b", "c")
    broker.chain("a", "b", "c")
    publisher(broker, "c").send_all(["own 1", "own 2"])
    publisher(broker).send("through")
    broker.settled()
    event = broker.contents("c")[2]
    assert event.body == "through"
    assert event.annotations["x-opt-postroad-event-id"] == 3
    assert event.annotations["x-opt-postroad-origin-store"] == "a"
    assert event.annotations["x-opt-postroad-origin-id"] == 1
    origins = {broker.api.must("GET", "channels", store, "browse")["items"][-1]["origin"] for store in ("a", "b", "c")}
    assert len(origins) == 1
    proves("DUP-2")


def test_order_holds_for_each_origin(broker):
    broker.channels("a", "b", "c")
    broker.join("a", "c")
    broker.join("b", "c")
    first, second = publisher(broker, "a"), publisher(broker, "b")
    for number in range(100):
        first.start(f"a{number}")
        second.start(f"b{number}")
    first.client.round_trip()
    second.client.round_trip()
    eventually(lambda: broker.depth("c"), 200)
    seen = bodies(broker, "c")
    for source in "ab":
        assert [b for b in seen if b.startswith(source)] == [f"{source}{n}" for n in range(100)]
    proves("ORD-2")
