"""Exclusive named objects: the broker's memory of where a consumer is (named-objects 3.1, 3.3, 5)."""

import pytest

from harness import Refused, eventually, proves


def publish(broker, *bodies, channel="c", **fields):
    client = broker.connect()
    client.sender(channel, capability="topic").send_all(bodies, **fields)
    client.close()


def attach(broker, name="d", channel="c", **options):
    return broker.connect().receiver(f"{channel}::{name}", **options)


def position(broker, name="d"):
    return broker.show_object("c", name)["last_event_id"]


@pytest.fixture
def c(broker):
    broker.channels("c", retention="interest")
    return broker


def test_an_object_is_made_under_a_unique_name_and_remembers_its_position(c):
    c.object("c", "d")
    publish(c, 1, 2, 3)
    receiver = attach(c)
    assert receiver.accept(2) == [1, 2]
    receiver.close()
    eventually(lambda: position(c), 2)
    assert attach(c).accept(1) == [3]
    proves("NO-1", "NO-2")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_consumer_resumes_after_its_own_crash_and_the_brokers(c, how):
    c.object("c", "d", start_event_id=0)
    publish(c, *range(1, 11), durable=True)
    receiver = attach(c, credit=6)
    taken = receiver.take(6)
    for message in taken[:4]:
        message.accept()
    eventually(lambda: position(c), 4)
    receiver.client.drop()
    eventually(lambda: c.show_object("c", "d")["consumers"], 0)
    assert position(c) == 4
    c.restart(how)
    assert position(c) == 4
    again = attach(c).take(6)
    assert [m.body for m in again] == [5, 6, 7, 8, 9, 10]
    assert again[0].redelivered and again[1].redelivered
    if how == "stop":
        assert not any(m.redelivered for m in again[2:])
        proves("objects:T2", "EX-2", "AK-10")
    else:
        proves("NO-3")


def test_an_object_that_is_not_persistent_is_gone_after_a_restart(c):
    c.object("c", "d", start_event_id=0, persistent=False)
    publish(c, 1)
    attach(c).accept(1)
    c.restart("kill")
    with pytest.raises(Refused) as refused:
        attach(c)
    assert refused.value.condition == "amqp:not-found"
    assert refused.value.reason == "OBJECT_NOT_FOUND"
    assert "c::d" in str(refused.value) or "d" in refused.value.description
    proves("ERR-2")


def test_a_second_consumer_is_refused_and_the_first_undisturbed(c):
    c.object("c", "d")
    first = attach(c)
    with pytest.raises(Refused) as refused:
        attach(c)
    assert refused.value.condition == "amqp:resource-locked"
    assert refused.value.reason == "OBJECT_IN_USE"
    publish(c, "one")
    assert first.accept(1) == ["one"]
    first.close()
    second = attach(c)
    publish(c, "two")
    assert second.accept(1) == ["two"]
    proves("objects:T3", "EX-1", "ERR-1")


def test_a_thief_takes_over_where_the_object_allows_it(c):
    c.object("c", "d", consumer_takeover="steal")
    first = attach(c)
    second = attach(c)
    assert first.refusal().condition == "amqp:link:stolen"
    publish(c, "one")
    assert second.accept(1) == ["one"]
    proves("EX-5")


@pytest.mark.parametrize("retention", ["interest", "log"])
def test_what_stays_stored(broker, retention):
    broker.channels("c", retention=retention)
    broker.object("c", "x")
    broker.object("c", "y")
    publish(broker, 1, 2, 3, 4, 5)
    x, y = attach(broker, "x"), attach(broker, "y")
    x.accept(5)
    y.accept(2)
    log = retention == "log"
    eventually(lambda: broker.depth("c"), 5 if log else 3)
    assert [m.body for m in broker.contents("c")] == ([1, 2, 3, 4, 5] if log else [3, 4, 5])
    y.accept(3)
    eventually(lambda: broker.depth("c"), 5 if log else 0)
    assert [m.body for m in broker.contents("c")] == ([1, 2, 3, 4, 5] if log else [])
    proves("RET-3" if log else "RET-1")


@pytest.mark.parametrize("retention, left", [("interest", [4, 5]), ("log", [1, 4, 5])])
def test_a_purged_range_is_gone_for_everybody(broker, retention, left):
    broker.channels("c", retention=retention)
    broker.object("c", "x")
    broker.object("c", "y")
    publish(broker, 1, 2, 3, 4, 5)
    attach(broker, "x").accept(5)
    y = attach(broker, "y")
    y.accept(2)
    eventually(lambda: broker.depth("c"), 5 if retention == "log" else 3)
    broker.api.must("POST", "channels", "c", "purge", body={"from": 2, "to": 3})
    eventually(lambda: broker.depth("c"), len(left))
    assert [m.body for m in broker.contents("c")] == left
    y.client.drop()
    eventually(lambda: broker.show_object("c", "y")["consumers"], 0)
    assert attach(broker, "y").accept(2) == [4, 5]
    if retention == "log":
        proves("objects:T4")


def coloured(broker):
    for number in range(1, 7):
        publish(broker, number, properties={"color": "R" if number % 2 else "B"})


def test_a_cumulative_ack_covers_what_the_filter_skipped(c):
    c.object("c", "d", start_event_id=0)
    coloured(c)
    receiver = attach(c, selector="color='R'")
    taken = receiver.take(3)
    assert [m.body for m in taken] == [1, 3, 5]
    taken[1].accept()
    eventually(lambda: position(c), 3)
    assert [m.body for m in c.contents("c")] == [4, 5, 6]
    receiver.client.drop()
    eventually(lambda: c.show_object("c", "d")["consumers"], 0)
    assert attach(c).accept(3) == [4, 5, 6]
    proves("EX-3")


def test_a_cumulative_ack_does_not_cover_what_was_returned(c):
    c.object("c", "d", start_event_id=0)
    coloured(c)
    receiver = attach(c, selector="color='R'")
    first, third, _fifth = receiver.take(3)
    first.release()
    third.accept()
    again = receiver.receive()
    assert again.body == 1
    assert position(c) == 0
    again.accept()
    eventually(lambda: position(c), 3)
    proves("objects:T5", "EX-4")


def test_individual_acks_finish_single_events(c):
    c.object("c", "d", ack_policy="individual")
    publish(c, 1, 2, 3)
    receiver = attach(c)
    taken = receiver.take(3)
    taken[2].accept()
    eventually(lambda: c.show_object("c", "d")["backlog"], 2)
    assert position(c) == 0
    taken[0].accept()
    eventually(lambda: position(c), 1)
    taken[1].accept()
    eventually(lambda: position(c), 3)


def test_the_counts_of_an_exclusive_object(c):
    c.object("c", "d")
    publish(c, *range(7))
    attach(c).take(3)
    shown = c.show_object("c", "d")
    assert (shown["outstanding_events"], shown["backlog"], shown["in_delivery"]) == (-1, 7, 3)
    proves("objects:T7")


def test_start_positions(broker):
    broker.channels("c", retention="log")
    publish(broker, *range(1, 11))
    broker.object("c", "oldest", start_event_id=0)
    broker.object("c", "fourth", start_event_id=4)
    broker.object("c", "later", start_event_id=50)
    broker.object("c", "new", start_event_id="new")
    assert attach(broker, "oldest").accept(10) == list(range(1, 11))
    fourth = attach(broker, "fourth")
    assert fourth.accept(3) == [4, 5, 6]
    later, new = attach(broker, "later"), attach(broker, "new")
    assert later.drain() == [] and new.drain() == []
    publish(broker, *range(11, 61))
    assert new.accept(1) == [11]
    assert later.accept(1) == [50]
    fourth.close()
    eventually(lambda: position(broker, "fourth"), 6)
    again = broker.api.call("PUT", "channels", "c", "named-objects", "fourth", body={"start_event_id": 0})
    assert again.status in (200, 201, 204), again
    assert attach(broker, "fourth").accept(1) == [7]
    proves("objects:T8", "NO-10")


def test_objects_are_independent(c):
    for name in ("x", "y", "z"):
        c.object("c", name)
    publish(c, 1, 2)
    assert attach(c, "x").accept(2) == [1, 2]
    assert attach(c, "y").accept(1) == [1]
    eventually(lambda: [position(c, name) for name in ("x", "y", "z")], [2, 1, 0])
    assert attach(c, "z").accept(2) == [1, 2]
    proves("NO-5")


def test_an_object_collects_while_nobody_is_there(c):
    c.object("c", "d")
    publish(c, 1, durable=True)
    c.restart("kill")
    publish(c, 2, durable=True)
    shown = c.show_object("c", "d")
    assert (shown["consumers"], shown["backlog"]) == (0, 2)
    c.api.must("DELETE", "channels", "c", "named-objects", "d")
    eventually(lambda: c.depth("c"), 0)
    assert c.api.call("GET", "channels", "c", "named-objects", "d").code == "OBJECT_NOT_FOUND"
    proves("NO-6", "OP-6")


def test_making_it_again_is_idempotent_and_other_attributes_are_refused(c):
    c.object("c", "d", selector="a = 1")
    c.object("c", "d", selector="a = 1")
    answer = c.api.call("POST", "channels", "c", "named-objects", body={"name": "d", "selector": "a = 2"})
    assert (answer.status, answer.code) == (409, "OBJECT_EXISTS")
    assert c.show_object("c", "d")["selector"] == "a = 1"
    proves("NO-11", "ERR-3")


def test_the_same_name_on_two_channels_is_two_objects(c):
    c.channels("e", retention="interest")
    c.object("c", "d")
    c.object("e", "d")
    publish(c, "to c")
    publish(c, "to e", channel="e")
    assert attach(c).accept(1) == ["to c"]
    assert attach(c, channel="e").accept(1) == ["to e"]


def test_an_objects_own_selector_moves_past_what_it_does_not_want(c):
    c.object("c", "d", selector="color = 'R'")
    publish(c, 1, 2, properties={"color": "B"})
    eventually(lambda: c.depth("c"), 0)
    assert position(c) == 2
    publish(c, 3, properties={"color": "R"})
    assert attach(c).accept(1) == [3]
    proves("EX-6")


def test_a_named_object_on_a_queue_is_not_possible(broker):
    broker.queues("q")
    with pytest.raises(Refused) as refused:
        broker.connect().receiver("q::d", capability="queue")
    assert refused.value.condition in ("amqp:not-allowed", "amqp:not-found")


@pytest.mark.parametrize(
    "settings, status, code",
    [
        ({"selector": "a = ="}, 400, "FILTER_SYNTAX"),
        ({"scope": "cluster"}, 422, "OBJECT_NOT_ALLOWED_HERE"),
    ],
)
def test_bad_definitions_are_refused(c, settings, status, code):
    answer = c.api.call("PUT", "channels", "c", "named-objects", "d", body=settings)
    assert (answer.status, answer.code) == (status, code)
    if code == "OBJECT_NOT_ALLOWED_HERE":
        proves("ERR-5")


def test_a_purge_whose_range_runs_backwards_is_refused(c):
    answer = c.api.call("POST", "channels", "c", "purge", body={"from": 5, "to": 2})
    assert (answer.status, answer.code) == (409, "ILLEGAL_STATE")


def test_delete_with_a_consumer_needs_force(c):
    c.object("c", "d")
    receiver = attach(c)
    answer = c.api.call("DELETE", "channels", "c", "named-objects", "d")
    assert (answer.status, answer.code) == (409, "OBJECT_IN_USE")
    c.api.must("DELETE", "channels", "c", "named-objects", "d", query="?force=true")
    assert receiver.refusal().condition == "amqp:resource-deleted"
    proves("ERR-14")


def test_changing_a_channel_keeps_its_objects(c):
    c.object("c", "d")
    publish(c, 1, 2)
    c.api.must("PATCH", "channels", "c", body={"capacity": 100})
    assert c.show_object("c", "d")["backlog"] == 2
    assert attach(c).accept(2) == [1, 2]
    proves("NO-13")


def test_closing_a_native_object_never_deletes_it(c):
    c.object("c", "d")
    receiver = attach(c, durable=True)
    receiver.close()
    publish(c, 1)
    assert attach(c).accept(1) == [1]
    proves("AM-17")
