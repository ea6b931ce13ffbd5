"""Forwarding, its order, and what happens when a destination cannot take (joins-and-interest 3.6, 3.9, 6.4)."""

from harness import eventually, proves


def publisher(broker, channel="a"):
    return broker.connect().sender(channel, capability="topic")


def bodies(broker, channel):
    return [m.body for m in broker.contents(channel)]


def test_a_full_queue_blocks_the_join_and_nothing_is_lost(broker):
    broker.channels("a")
    broker.queues("b", capacity=10, honour_capacity=True)
    name = broker.join("a", "b")
    publisher(broker).send_all(range(1, 16))
    eventually(lambda: broker.depth("b", "queues"), 10)
    eventually(lambda: broker.show_join(name)["state"].split(":")[0], "blocked")
    shown = broker.show_join(name)
    assert "destination-full" in f"{shown['state']} {shown.get('reason')}"
    receiver = broker.connect().receiver("b")
    assert receiver.accept(5) == [1, 2, 3, 4, 5]
    eventually(lambda: broker.depth("b", "queues"), 10)
    assert receiver.accept(10) == list(range(6, 16))
    eventually(lambda: broker.show_join(name)["state"], "running")
    assert broker.stored("a", "queue:b") == [15, 0]
    proves("joins:E1")


def test_a_full_queue_that_evicts_takes_the_newest(broker):
    broker.channels("a")
    broker.queues("b", capacity=3, honour_capacity=False)
    broker.join("a", "b")
    publisher(broker).send_all(range(5))
    assert broker.stored("queue:b") == [3]
    assert broker.connect().receiver("b").accept(3) == [2, 3, 4]


def test_one_event_too_large_for_the_destination_is_set_aside(broker):
    broker.channels("dead")
    broker.channels("a", dead_event_store="dead")
    broker.channels("b", max_message_size=1000)
    name = broker.join("a", "b")
    sender = publisher(broker)
    for body in ("small", "x" * 5000, "last"):
        sender.send(body)
    eventually(lambda: broker.depth("dead"), 1)
    assert broker.stored("a", "b") == [3, 2]
    assert broker.show_join(name)["state"] == "running"
    assert broker.show_join(name)["dead_lettered_total"] == 1
    dead = broker.contents("dead")[0]
    assert str(dead.annotations["x-opt-postroad-dl-reason"]) == "MSG_TOO_BIG"
    assert dead.body == "x" * 5000
    proves("joins:E2")


def test_without_a_dead_event_store_the_dead_letter_queue_takes_it(broker):
    broker.channels("a")
    broker.channels("b", max_message_size=1000)
    broker.join("a", "b")
    publisher(broker).send("x" * 5000)
    eventually(lambda: broker.depth("DLQ", "queues"), 1)
    assert broker.stored("b") == [0]


def test_the_destination_has_the_order_of_the_source(broker):
    broker.channels("a", "b")
    broker.join("a", "b")
    publisher(broker).send_all(range(500), priority=3)
    assert broker.stored("b") == [500]
    assert bodies(broker, "b") == list(range(500))
    proves("ORD-1")


def test_order_and_count_survive_crashes_on_the_way(broker):
    broker.channels("a", "b")
    broker.join("a", "b")
    sent = 0
    for _ in range(3):
        publisher(broker).send_all(range(sent, sent + 100), durable=True)
        sent += 100
        broker.restart("kill")
    assert broker.stored("a", "b") == [300, 300]
    assert bodies(broker, "b") == list(range(300))
    proves("DUP-9")


def test_a_publish_is_confirmed_before_its_joins_have_run(broker):
    broker.channels("a", "b")
    broker.join("a", "b", enabled=False)
    publisher(broker).send("one")
    assert broker.depths("a", "b") == [1, 0]
    proves("FWD-1")


def test_a_blocked_join_does_not_delay_another(broker):
    broker.channels("a", "c")
    broker.queues("full", capacity=1)
    broker.join("a", "full")
    broker.join("a", "c")
    publisher(broker).send_all(range(20))
    eventually(lambda: broker.depth("c"), 20)
    assert broker.depth("full", "queues") == 1


def test_interest_retention_keeps_what_a_join_still_needs(broker):
    broker.channels("a", retention="interest")
    broker.channels("b")
    broker.join("a", "b", enabled=False)
    publisher(broker).send_all(range(5))
    assert broker.depth("a") == 5
    broker.api.must("POST", "joins", "a->b", "resume")
    eventually(lambda: broker.depths("a", "b"), [0, 5])


def test_purging_the_source_leaves_the_destination_alone(broker):
    broker.channels("a", "b", "c")
    broker.join("a", "b")
    broker.join("a", "c", propagate_purge=True)
    publisher(broker).send_all(range(4))
    publisher(broker, "c").send("its own")
    assert broker.stored("a", "b", "c") == [4, 4, 5]
    broker.api.must("POST", "channels", "a", "purge", body={})
    eventually(lambda: broker.depths("a", "b", "c"), [0, 4, 1])
    assert bodies(broker, "c") == ["its own"]
    proves("FWD-3")


def test_a_destination_that_is_deleted_and_made_again_gets_the_rest(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b")
    publisher(broker).send("first")
    assert broker.stored("b") == [1]
    assert broker.api.call("DELETE", "channels", "b").code == "STORE_IN_USE"


def test_a_deleted_join_carries_nothing_more(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b")
    publisher(broker).send("before")
    assert broker.stored("a", "b") == [1, 1]
    broker.api.must("DELETE", "joins", name)
    publisher(broker).send("after")
    assert broker.stored("a", "b") == [2, 1]
    proves("joins:D1", "DEL-1")


def test_deleting_a_join_with_a_backlog_tells_how_much_is_left(broker):
    broker.channels("a", "b", "c")
    left = broker.join("a", "b", enabled=False)
    drained = broker.join("a", "c", enabled=False)
    publisher(broker).send_all(range(50))
    assert broker.show_join(left)["lag_events"] == 50
    answer = broker.cli("join", "delete", left)
    assert answer.returncode == 0, answer.stderr
    assert "50" in answer.stdout
    assert broker.cli("join", "delete", drained, "--drain").returncode == 0
    assert broker.stored("b", "c") == [0, 50]
    assert broker.api.must("GET", "joins")["items"] == []
    proves("joins:D2", "DEL-2")


def test_a_join_made_again_from_the_beginning_adds_no_duplicates(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b")
    publisher(broker).send_all(range(10))
    assert broker.stored("b") == [10]
    broker.api.must("DELETE", "joins", name)
    broker.join("a", "b", start="all")
    assert broker.stored("a", "b") == [10, 10]
    assert broker.show_join(name)["duplicate_total"] == 10
    proves("joins:D3", "DEL-3")
