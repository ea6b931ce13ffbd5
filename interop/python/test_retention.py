"""What stays stored in a channel, and what makes it go (named-objects 3.2, T19; joins-and-interest 5.1)."""

import pytest

from harness import Refused, eventually, proves


def publish(broker, *bodies, **fields):
    client = broker.connect()
    client.sender("c", capability="topic").send_all(bodies, **fields)
    client.close()


def bodies(broker, channel="c"):
    return [m.body for m in broker.contents(channel)]


def test_interest_with_nobody_interested_stores_nothing(broker):
    broker.channels("c", retention="interest")
    publish(broker, 1)
    assert broker.depth("c") == 0
    assert broker.show("channels", "c")["last_event_id"] in (0, 1)


def test_interest_keeps_events_for_a_slow_consumer(broker):
    broker.channels("c", retention="interest")
    receiver = broker.connect().receiver("c", capability="topic")
    publish(broker, *range(1, 11))
    assert receiver.accept(1) == [1]
    eventually(lambda: broker.depth("c"), 9)
    assert receiver.accept(9) == list(range(2, 11))
    eventually(lambda: broker.depth("c"), 0)
    receiver.close()
    publish(broker, 11)
    assert broker.depth("c") == 0
    proves("RET-2")


def test_log_keeps_everything_whatever_was_acknowledged(broker):
    broker.channels("c", retention="log")
    broker.object("c", "d")
    publish(broker, *range(1, 11))
    broker.connect().receiver("c::d").accept(10)
    publish(broker, 11)
    assert bodies(broker) == list(range(1, 12))
    broker.api.must("POST", "channels", "c", "purge", body={})
    eventually(lambda: broker.depth("c"), 0)


def test_capacity_that_is_not_honoured_keeps_the_newest(broker):
    broker.channels("c", retention="log", capacity=5, honour_capacity=False)
    publish(broker, *range(1, 12))
    assert bodies(broker) == [7, 8, 9, 10, 11]
    shown = broker.show("channels", "c")
    assert (shown["depth"], shown["first_event_id"], shown["last_event_id"]) == (5, 7, 11)


def test_time_to_live_removes_events(broker):
    broker.channels("c", retention="log", ttl=300)
    publish(broker, 1, 2)
    eventually(lambda: broker.depth("c"), 0, within=45)


def test_several_objects_free_events_at_the_lowest_position(broker):
    broker.channels("c", retention="interest")
    for name in ("x", "y", "z"):
        broker.object("c", name)
    publish(broker, *range(1, 7))
    for name, count in (("x", 6), ("y", 4), ("z", 2)):
        broker.connect().receiver(f"c::{name}").accept(count)
    eventually(lambda: broker.depth("c"), 4)
    assert bodies(broker) == [3, 4, 5, 6]
    proves("RET-4")


def test_a_full_interest_channel_refuses_publishers_and_drops_nothing(broker):
    broker.channels("c", retention="interest", capacity=3)
    broker.object("c", "d")
    sender = broker.connect().sender("c", capability="topic")
    sender.send_all([1, 2, 3])
    with pytest.raises((Refused, TimeoutError)) as refused:
        sender.send(4)
    if refused.type is Refused:
        assert refused.value.condition == "amqp:resource-limit-exceeded"
        assert refused.value.reason == "STORE_FULL"
    receiver = broker.connect().receiver("c::d")
    assert receiver.accept(3) == [1, 2, 3]
    eventually(lambda: broker.depth("c"), 0)
    publish(broker, 5)
    assert broker.depth("c") == 1
    proves("RET-5")


def test_an_overtaken_object_says_what_it_skipped(broker):
    broker.channels("c", retention="log", capacity=5, honour_capacity=False)
    broker.object("c", "d")
    publish(broker, *range(1, 11))
    receiver = broker.connect().receiver("c::d")
    first = receiver.receive()
    assert first.body == 6
    assert first.annotations["x-opt-postroad-events-skipped"] == 5
    second = receiver.receive()
    assert second.body == 7 and "x-opt-postroad-events-skipped" not in second.annotations
    assert broker.show_object("c", "d")["skipped_events"] == 5
    proves("RET-6")


def test_evicted_and_expired_events_go_to_the_dead_event_store(broker):
    broker.channels("dead", "dead-of-time")
    broker.channels("c", capacity=2, honour_capacity=False, dead_event_store="dead")
    publish(broker, 1, 2, 3)
    eventually(lambda: broker.depth("dead"), 1)
    dead = broker.contents("dead")[0]
    assert dead.body == 1
    assert dead.annotations["x-opt-postroad-dl-dest"] == "c"
    assert dead.annotations["x-opt-postroad-dl-event-id"] == 1
    broker.api.must("POST", "channels", "c", "purge", body={})
    eventually(lambda: broker.depth("c"), 0)
    assert broker.depth("dead") == 1


def test_publish_keys_keep_the_newest_of_each_value(broker):
    broker.channels("c", publish_keys=[{"name": "ISIN", "depth": 1}])
    client = broker.connect()
    sender = client.sender("c", capability="topic")
    for body, isin in ((1, "A"), (2, "B"), (3, "A"), (4, None), (5, "A")):
        sender.send(body, properties={"ISIN": isin} if isin else {"other": 1})
    assert bodies(broker) == [2, 4, 5]


def test_ids_go_on_after_purge_and_restart(broker):
    broker.channels("c", first_event_id=100)
    publish(broker, 1, 2, durable=True)
    broker.api.must("POST", "channels", "c", "purge", body={})
    eventually(lambda: broker.depth("c"), 0)
    broker.restart("kill")
    publish(broker, 3, durable=True)
    shown = broker.show("channels", "c")
    assert shown["depth"] == 1 and shown["last_event_id"] >= 102


def test_each_engine_keeps_what_it_says(broker):
    broker.channels("c", retention="interest")
    broker.channels("log", retention="log")
    broker.channels("newest", retention="log", capacity=5, honour_capacity=False)
    broker.channels("short", retention="log", ttl=300)
    stores = ("log", "newest", "short")
    puller = broker.connect().receiver("c", capability="topic")
    for store in ("c", *stores):
        broker.connect().sender(store, capability="topic").send_all(range(1, 11))
    assert puller.accept(1) == [1]
    eventually(lambda: broker.depth("c"), 9)
    assert puller.accept(9) == list(range(2, 11))
    eventually(lambda: broker.depth("c"), 0)
    puller.close()
    for store in ("c", *stores):
        broker.connect().sender(store, capability="topic").send(11)
    assert broker.depths("c", "log", "newest") == [0, 11, 5]
    assert bodies(broker, "newest") == [7, 8, 9, 10, 11]
    eventually(lambda: broker.depth("short"), 0, within=45)
    broker.api.must("POST", "channels", "log", "purge", body={})
    eventually(lambda: broker.depth("log"), 0)
    proves("objects:T19")


def test_transient_channels_store_nothing(broker):
    broker.channels("c", type="transient")
    receiver = broker.connect().receiver("c", capability="topic", credit=10)
    publish(broker, 1)
    assert receiver.accept(1) == [1]
    eventually(lambda: broker.depth("c"), 0)


@pytest.mark.parametrize(
    "settings, code",
    [
        ({"publish_keys": [{"name": "", "depth": 1}]}, "BAD_PUBLISH_KEY"),
        ({"publish_keys": [{"name": "k", "depth": 0}]}, "BAD_PUBLISH_KEY"),
        ({"dead_event_store": "c"}, "DES_SELF"),
        ({"capacity": 2147483647}, "BAD_CAPACITY"),
    ],
)
def test_bad_attributes_are_refused(broker, settings, code):
    answer = broker.api.call("PUT", "channels", "c", body=settings)
    assert (answer.status, answer.code) == (400, code)
    assert broker.api.call("GET", "channels", "c").status == 404
