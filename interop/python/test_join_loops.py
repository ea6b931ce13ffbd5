"""Loops of joins end at once: a store takes an event only once (joins-and-interest 3.4, 6.2)."""

import pytest

from harness import proves


def pair(broker, **settings):
    broker.channels("c0", "c1")
    broker.join("c0", "c1", **settings)
    broker.join("c1", "c0", **settings)


def publish(broker, channel, *bodies, **fields):
    broker.connect().sender(channel, capability="topic").send_all(bodies, durable=True, **fields)


@pytest.mark.parametrize("entry, row", [("c0", "joins:L1"), ("c1", "joins:L2")])
def test_a_loop_of_two_stores_each_event_once(broker, entry, row):
    pair(broker)
    publish(broker, entry, "one")
    assert broker.stored("c0", "c1") == [1, 1]
    proves(row, "LOOP-1")


def test_a_loop_of_three_takes_events_from_everywhere(broker):
    broker.channels("a", "b", "c")
    broker.chain("a", "b", "c", "a")
    for store in ("a", "b", "c"):
        publish(broker, store, *range(100))
    assert broker.stored("a", "b", "c") == [300, 300, 300]
    proves("joins:L3")


def test_a_filter_in_a_loop_lets_each_event_back_only_where_it_has_not_been(broker):
    broker.channels("a", "b")
    broker.join("a", "b", filter="color='red'")
    broker.join("b", "a")
    publish(broker, "a", "red", properties={"color": "red"})
    publish(broker, "a", "blue", properties={"color": "blue"})
    publish(broker, "b", "b's blue", properties={"color": "blue"})
    assert broker.stored("a", "b") == [3, 2]
    seen = {m.body for m in broker.contents("b")}
    assert seen == {"red", "b's blue"}
    proves("joins:L4")


def test_without_split_horizon_the_copy_comes_back_and_is_recognised(broker):
    pair(broker, split_horizon=False)
    publish(broker, "c0", "one")
    assert broker.stored("c0", "c1") == [1, 1]
    assert broker.show_join("c1->c0")["duplicate_total"] == 1
    assert broker.show_join("c1->c0")["split_horizon_total"] == 0
    proves("joins:L5", "LOOP-2", "DUP-8")


def test_split_horizon_saves_the_way_back(broker):
    pair(broker)
    publish(broker, "c0", "one")
    assert broker.stored("c0", "c1") == [1, 1]
    assert broker.show_join("c1->c0")["duplicate_total"] == 0
    assert broker.show_join("c1->c0")["split_horizon_total"] == 1
    proves("LOOP-3")


def test_a_loop_stays_quiet_over_a_crash(broker):
    pair(broker, split_horizon=False)
    publish(broker, "c0", *range(20))
    assert broker.stored("c0", "c1") == [20, 20]
    broker.restart("kill")
    publish(broker, "c1", *range(20))
    assert broker.stored("c0", "c1") == [40, 40]
