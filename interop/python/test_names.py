"""Names of channels and queues, addresses, and the kinds that an address may mean (topics 2; addressing 3.1)."""

import pytest

from harness import Refused, proves


def test_publishing_to_exactly_the_name_appends_and_nothing_else_does(broker):
    broker.channels("a/b", "a/b/c", "a")
    broker.connect().sender("a/b", capability="topic").send(1)
    assert broker.depths("a", "a/b", "a/b/c") == [0, 1, 0]
    shown = broker.show("channels", "a/b")
    assert (shown["first_event_id"], shown["last_event_id"]) == (1, 1)
    proves("CH-1", "CH-3")


@pytest.mark.parametrize("topic", ["a/+", "a/#", "#", "x" * 10_241, "/".join("a" * 129)],
                         ids=["plus", "hash", "hash alone", "too long", "too deep"])
def test_topics_that_cannot_be_published_to_are_refused(open_broker, topic):
    client = open_broker.connect()
    with pytest.raises(Refused) as refused:
        client.sender(topic, capability="topic").send(1)
    assert refused.value.condition == "amqp:invalid-field"
    assert refused.value.reason in ("BAD_TOPIC", "TOPIC_STRING_ERROR", "BAD_NAME")
    assert open_broker.api.must("GET", "channels")["items"] == []
    proves("TT-2")


def test_dots_and_levels_are_literal_in_a_channel_made_by_first_use(open_broker):
    client = open_broker.connect()
    for topic in ("a.b", "a/b", "a-b_c", "Ä/ö"):
        receiver = client.receiver(topic, capability="topic")
        client.sender(topic, capability="topic").send(topic)
        assert receiver.accept(1) == [topic]


def test_a_queue_and_a_channel_may_share_a_name(broker):
    broker.queues("x")
    broker.channels("x")
    client = broker.connect()
    client.sender("x", capability="queue").send("to the queue")
    client.sender("x", capability="topic").send("to the channel")
    client.sender("x").send("no kind: the queue")
    assert broker.depth("x", "queues") == 2 and broker.depth("x") == 1
    client.sender("channel://x").send("by scheme")
    client.sender("queue:///x").send("by scheme")
    assert broker.depth("x", "queues") == 3 and broker.depth("x") == 2


def test_a_joins_destination_is_the_queue_unless_written_otherwise(broker):
    broker.channels("a", "x")
    broker.queues("x")
    broker.join("a", "x")
    broker.connect().sender("a", capability="topic").send(1)
    assert broker.stored("x", "queue:x") == [0, 1]
    broker.join("a", "channel://x")
    broker.connect().sender("a", capability="topic").send(2)
    assert broker.stored("x", "queue:x") == [1, 2]


@pytest.mark.parametrize("name", ["a+b", "a#", "a::b", "x" * 256])
def test_bad_channel_names_are_refused(broker, name):
    answer = broker.api.call("PUT", "channels", name, body={})
    assert (answer.status, answer.code) == (400, "BAD_NAME")


def test_names_are_case_sensitive(broker):
    broker.queues("Orders", "orders")
    broker.connect().sender("orders").send(1)
    assert broker.depth("Orders", "queues") == 0 and broker.depth("orders", "queues") == 1


def test_health_metrics_and_refusals_of_the_http_interface(broker):
    assert broker.api.raw("GET", "/healthz").status == 200
    assert broker.api.raw("GET", "/readyz").status == 200
    broker.queues("q")
    broker.connect().sender("q").send(1)
    assert any(name.startswith("postroad_") for name in broker.metrics())
    missing = broker.api.call("GET", "queues", "none")
    assert missing.status == 404 and set(missing.body) >= {"code", "message", "object"}
    bad = broker.api.call("PUT", "queues", "q2", body={"colour": "red"})
    assert bad.status == 400 and bad.message
