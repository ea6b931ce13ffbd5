"""Several ways to one store: each event is stored once, whatever comes late (joins-and-interest 3.5, 6.3)."""

import struct

import pytest

from harness import eventually, proves


def diamond(broker, destination="d", kind="channels", **settings):
    """a→b→d and a→c→d."""
    broker.channels("a", "b", "c")
    broker.api.must("PUT", kind, destination, body=settings)
    broker.chain("a", "b", destination)
    broker.chain("a", "c", destination)


def late_way(broker, destination_kind="channels", direct=None, **settings):
    """a→d, and a→b→d whose last join waits."""
    broker.channels("a", "b")
    broker.api.must("PUT", destination_kind, "d", body=settings)
    broker.join("a", "d", **(direct or {}))
    broker.join("a", "b")
    broker.join("b", "d", enabled=False)


def publisher(broker, channel="a"):
    return broker.connect().sender(channel, capability="topic")


def test_a_diamond_stores_a_thousand_events_once_each(broker):
    diamond(broker)
    publisher(broker).send_all(range(1000))
    assert broker.stored("a", "b", "c", "d") == [1000] * 4
    assert sum(broker.show_join(j)["duplicate_total"] for j in ("b->d", "c->d")) == 1000
    bodies = [m.body for m in broker.contents("d")]
    assert sorted(bodies) == list(range(1000))
    proves("joins:P3", "DUP-1")


@pytest.mark.parametrize("round_", range(3))
def test_a_crash_in_the_middle_of_a_diamond_doubles_and_loses_nothing(broker, round_):
    diamond(broker)
    sender = publisher(broker)
    for body in range(200 + 50 * round_):
        sender.start(body, durable=True)
    sender.client.pump()
    eventually(lambda: broker.depth("d") > 20 * round_)
    broker.restart("kill")
    broker.settled()
    held = broker.depth("a")
    assert broker.depths("b", "c", "d") == [held] * 3
    bodies = [m.body for m in broker.contents("d")]
    assert sorted(bodies) == list(range(held))


def test_a_late_copy_of_a_consumed_message_is_not_queued_again(broker):
    late_way(broker, "queues")
    publisher(broker).send("one", durable=True)
    client = broker.connect()
    assert client.receiver("d").accept(1) == ["one"]
    eventually(lambda: broker.depth("d", "queues"), 0)
    broker.restart("kill")
    broker.api.must("POST", "joins", "b->d", "resume")
    eventually(lambda: broker.show_join("b->d")["duplicate_total"], 1)
    assert broker.stored("queue:d") == [0]
    proves("joins:P5", "DUP-5")


def test_a_late_copy_of_an_expired_event_is_ignored(broker):
    late_way(broker, ttl=1000)
    publisher(broker).send("one")
    eventually(lambda: broker.show_join("a->d")["forwarded_total"], 1)
    eventually(lambda: broker.depth("d"), 0, within=45)
    broker.api.must("POST", "joins", "b->d", "resume")
    eventually(lambda: broker.show_join("b->d")["duplicate_total"], 1)
    assert broker.stored("d") == [0]
    proves("joins:P6")


def test_an_unfiltered_way_brings_what_the_filtered_one_left_out(broker):
    broker.channels("a", "b", "d")
    broker.join("a", "d", filter="color='red'")
    broker.chain("a", "b", "d")
    sender = publisher(broker)
    for colour in ("red", "blue"):
        sender.send(colour, properties={"color": colour})
    assert broker.stored("d") == [2]
    proves("joins:P7")


def test_a_channel_made_anew_numbers_other_events(broker):
    broker.channels("a", "d")
    broker.join("a", "d")
    publisher(broker).send("old")
    assert broker.stored("d") == [1]
    assert broker.api.call("DELETE", "channels", "a").code == "STORE_IN_USE"
    broker.api.must("DELETE", "channels", "a", query="?cascade=true")
    assert broker.api.must("GET", "joins")["items"] == []
    broker.channels("a")
    broker.join("a", "d")
    publisher(broker).send("new")
    assert broker.stored("a", "d") == [1, 2]
    proves("joins:P8", "DUP-3", "DEL-4")


@pytest.mark.parametrize("dedupe, stored", [("off", 2), ("message-id", 1)])
def test_a_message_sent_twice(broker, dedupe, stored):
    broker.channels("a", publisher_dedupe=dedupe)
    broker.channels("d")
    broker.join("a", "d")
    sender = publisher(broker)
    sender.send("first", id="X")
    sender.send("again", id="X")
    assert broker.stored("a", "d") == [stored, stored]
    if stored == 1:
        broker.restart("kill")
        publisher(broker).send("after a crash", id="X")
        assert broker.stored("a", "d") == [1, 1]
        proves("joins:P9", "DUP-11")


def test_a_copy_too_old_to_be_judged_is_set_aside(broker):
    # The set of seen ids is kept in blocks of 65,536; the events between push the first block out of the window.
    broker.channels("dead")
    broker.channels("a", type="reliable", capacity=10, honour_capacity=False)
    broker.channels("b")
    broker.channels("d", dedupe={"min_ids": 1, "min_age": 0}, dead_event_store="dead")
    broker.join("a", "d", filter="k = 'mark'")
    broker.join("a", "b", filter="k = 'late'")
    broker.join("b", "d", enabled=False)
    client = broker.connect()
    client.sender("a", capability="topic").send("late", properties={"k": "late"})
    flood = client.sender("a", capability="topic", settled=True)
    for _ in range(3):
        flood.send_all(range(66_000), timeout=60)
        client.sender("a", capability="topic").send("mark", properties={"k": "mark"})
    eventually(lambda: broker.depth("d"), 3, within=60)
    broker.api.must("POST", "joins", "b->d", "resume")
    eventually(lambda: broker.depth("dead"), 1)
    assert broker.depth("d") == 3
    dead = broker.contents("dead")
    assert str(dead[0].annotations["x-opt-postroad-dl-reason"]) == "DUPLICATE_UNDECIDABLE"
    proves("joins:P10", "DUP-7")


def test_a_forged_identity_is_replaced(broker):
    broker.channels("a", "d")
    broker.join("a", "d")
    sender = publisher(broker)
    sender.send("true")
    uid = bytes.fromhex(str(broker.show("channels", "a").get("store_uid", "0" * 32)).replace("-", ""))
    forged = {"x-opt-postroad-origin": uid + struct.pack(">Q", 1), "x-opt-postroad-join-hops": 0}
    sender.send("forged", annotations=forged)
    sender.send("forged ahead", annotations={"x-opt-postroad-origin": uid + struct.pack(">Q", 4)})
    sender.send("fourth")
    assert broker.stored("a", "d") == [4, 4]
    for message in broker.contents("d"):
        assert "x-opt-postroad-origin" not in message.annotations
    proves("joins:P12", "DUP-10")


def test_clients_see_where_an_event_came_from(broker):
    broker.channels("a", "d")
    broker.channels("hidden", expose_origin=False)
    broker.join("a", "d")
    broker.join("a", "hidden")
    publisher(broker).send("one")
    broker.settled()
    seen = broker.contents("d")[0].annotations
    assert seen["x-opt-postroad-origin-store"] == "a"
    assert seen["x-opt-postroad-origin-id"] == 1
    kept = broker.contents("hidden")[0].annotations
    assert not [key for key in kept if key.startswith("x-opt-postroad-origin")]
