"""The hop limit of joins: how many stores may lie between (joins-and-interest 3.2, 6.1)."""

from harness import eventually, proves

TEN = [f"c{i}" for i in range(10)]


def chain_of_ten(broker):
    """c0 … c9 in sequence, the first join with five hops."""
    broker.channels(*TEN)
    broker.join("c0", "c1", max_hops=5)
    broker.chain(*TEN[1:])


def publish(broker, channel, body="one", **fields):
    broker.connect().sender(channel, capability="topic").send(body, durable=True, **fields)


def test_five_hops_end_at_the_sixth_store(broker):
    chain_of_ten(broker)
    publish(broker, "c0")
    assert broker.stored(*TEN) == [1] * 7 + [0] * 3
    assert broker.show_join("c6->c7")["hop_stopped_total"] == 1
    proves("joins:H1", "HOP-1", "HOP-2", "HOP-3")


def test_the_default_lets_through_nine_joins(broker):
    broker.channels(*TEN)
    broker.chain(*TEN)
    publish(broker, "c0")
    assert broker.stored(*TEN) == [1] * 10
    proves("joins:H2")


def test_the_default_ends_after_ten_stores_between(broker):
    stores = [f"c{i}" for i in range(13)]
    broker.channels(*stores)
    broker.chain(*stores)
    publish(broker, "c0")
    assert broker.stored(*stores) == [1] * 12 + [0]
    proves("joins:H3")


def test_no_hops_reach_the_direct_destination_only(broker):
    broker.channels("c0", "c1", "c2")
    broker.join("c0", "c1", max_hops=0)
    broker.join("c1", "c2")
    publish(broker, "c0")
    assert broker.stored("c0", "c1", "c2") == [1, 1, 0]
    proves("joins:H4")


def test_the_smallest_limit_on_the_way_counts(broker):
    broker.channels("c0", "c1", "c2", "c3", "c4")
    broker.join("c0", "c1", max_hops=10)
    broker.join("c1", "c2", max_hops=1)
    broker.chain("c2", "c3", "c4")
    publish(broker, "c0")
    assert broker.stored("c0", "c1", "c2", "c3", "c4") == [1, 1, 1, 1, 0]
    proves("joins:H5")


def test_an_event_published_further_down_has_no_limit_yet(broker):
    chain_of_ten(broker)
    publish(broker, "c3")
    assert broker.stored(*TEN) == [0] * 3 + [1] * 7
    proves("joins:H6")


def test_the_budget_survives_a_crash_on_the_way(broker):
    chain_of_ten(broker)
    broker.api.must("POST", "joins", "c3->c4", "pause")
    publish(broker, "c0")
    eventually(lambda: broker.depth("c3"), 1)
    broker.restart("kill")
    assert broker.depths(*TEN) == [1] * 4 + [0] * 6
    broker.api.must("POST", "joins", "c3->c4", "resume")
    eventually(lambda: broker.depth("c6"), 1)
    assert broker.stored(*TEN) == [1] * 7 + [0] * 3
    assert broker.show_join("c6->c7")["hop_stopped_total"] == 1
    proves("joins:H7")


def test_a_late_copy_with_more_hops_left_raises_the_budget(broker):
    broker.channels("c0", "c1", "c2", "x", "y")
    broker.chain("c0", "c1", "c2", "x")
    broker.join("c0", "x", max_hops=0)
    broker.join("x", "y")
    broker.api.must("POST", "joins", "c2->x", "pause")
    publish(broker, "c0")
    eventually(lambda: broker.depth("x"), 1)
    assert broker.stored("x", "y") == [1, 0]
    broker.api.must("POST", "joins", "c2->x", "resume")
    eventually(lambda: broker.depth("y"), 1)
    assert broker.stored("x", "y") == [1, 1]
    proves("joins:H8", "HOP-6")


def test_filtered_events_use_no_hops(broker):
    broker.channels("a", "b", "c")
    broker.join("a", "b", filter="x = 1", max_hops=1)
    broker.join("b", "c")
    publish(broker, "a", properties={"x": 2})
    publish(broker, "b")
    assert broker.stored("a", "b", "c") == [1, 1, 1]
    assert broker.show_join("a->b")["filtered_total"] == 1
