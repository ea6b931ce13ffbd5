"""Archive joins record every arrival in a queue, duplicates too (joins-and-interest 3.7, 6.4)."""

import pytest

from harness import proves

MARK = "x-opt-postroad-archive-duplicate"


def publisher(broker, channel="a"):
    return broker.connect().sender(channel, capability="topic")


def archived(broker, queue="q"):
    broker.settled()
    return broker.connect().receiver(queue, browse=True).drain()


def marked(messages):
    return [m.annotations.get(MARK, False) for m in messages]


def test_everything_is_recorded(broker):
    broker.channels("a")
    broker.queues("q")
    broker.join("a", "q", archive=True)
    publisher(broker).send_all([1, 2, 3])
    assert broker.stored("queue:q") == [3]
    proves("joins:A1")


def test_a_filter_limits_the_record(broker):
    broker.channels("a")
    broker.queues("q")
    broker.join("a", "q", archive=True, filter="CCY='EUR'")
    sender = publisher(broker)
    for currency in ("EUR", "USD", "EUR"):
        sender.send(currency, properties={"CCY": currency})
    assert broker.stored("queue:q") == [2]
    proves("joins:A2")


def test_both_copies_of_a_diamond_are_recorded(broker):
    broker.channels("a", "b", "c", "d")
    broker.chain("a", "b", "d")
    broker.chain("a", "c", "d")
    broker.queues("q")
    broker.join("d", "q", archive=True)
    publisher(broker).send("one")
    assert broker.stored("d", "queue:q") == [1, 2]
    assert sorted(marked(archived(broker))) == [False, True]
    proves("joins:A3", "ARC-2", "ARC-3")


@pytest.mark.parametrize("split_horizon, copies", [(True, 1), (False, 2)])
def test_a_loop_is_recorded_as_often_as_events_arrive(broker, split_horizon, copies):
    broker.channels("c0", "c1")
    broker.queues("q")
    broker.join("c0", "c1", split_horizon=split_horizon)
    broker.join("c1", "c0", split_horizon=split_horizon)
    broker.join("c0", "q", archive=True)
    publisher(broker, "c0").send("one")
    assert broker.stored("c0", "queue:q") == [1, copies]
    if copies == 2:
        proves("joins:A4", "ARC-4")


def test_a_name_with_a_leading_slash_is_the_same_channel(broker):
    broker.channels("/local/rates", "/eur/rates")
    broker.join("/local/rates", "/eur/rates", filter="CCY='EUR'")
    # A topic string is never normalised (TT-1), a channel's name is: no kind, or the kind channel.
    for address, currency in (("/local/rates", "EUR"), ("channel:///local/rates", "USD")):
        broker.connect().sender(address).send(currency, properties={"CCY": currency})
    assert broker.stored("local/rates", "eur/rates") == [2, 1]
    proves("joins:A6", "CH-2")


def test_a_publish_that_dedupe_suppressed_is_recorded_and_marked(broker):
    broker.channels("a", publisher_dedupe="message-id")
    broker.queues("q")
    broker.join("a", "q", archive=True)
    sender = publisher(broker)
    sender.send("first", id="X")
    sender.send("again", id="X")
    assert broker.stored("a", "queue:q") == [1, 2]
    assert marked(archived(broker)) == [False, True]
    proves("joins:A7", "ARC-5")


def test_an_archive_needs_a_queue(broker):
    broker.channels("a", "b")
    answer = broker.api.call("POST", "joins", body={"source": "a", "destination": "b", "archive": True})
    assert (answer.status, answer.code) == (422, "ARCHIVE_NEEDS_QUEUE")
    proves("joins:A8", "ARC-1")


def test_the_record_is_exact_over_a_crash(broker):
    broker.channels("a")
    broker.queues("q")
    broker.join("a", "q", archive=True)
    publisher(broker).send_all(range(50), durable=True)
    broker.restart("kill")
    publisher(broker).send_all(range(50, 60), durable=True)
    assert broker.stored("a", "queue:q") == [60, 60]
    assert [m.body for m in archived(broker)] == list(range(60))
