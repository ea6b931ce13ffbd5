"""Delayed delivery on queues and channels (named-objects QU-8 to QU-10, T17)."""

import json
import time

import pytest
from proton import timestamp

from harness import Refused, eventually, proves, ulong

DELAY = "x-opt-delivery-delay"
TIME = "x-opt-delivery-time"
HOUR_MS = 3_600_000


def now_ms():
    return int(time.time() * 1000)


def scheduled(broker, name, kind="queues"):
    """What waits: number and body, in the order of the times."""
    return [(item["number"], item["body"]) for item in broker.api.must("GET", kind, name, "scheduled")["items"]]


@pytest.fixture
def q(broker):
    broker.queues("q")
    return broker


def test_a_delayed_message_comes_when_it_is_due_and_not_before(q):
    client = q.connect()
    receiver = client.receiver("q", credit=10)
    sender = client.sender("q", capability="queue")
    due = now_ms() + 1500
    sender.send("time", annotations={TIME: timestamp(due), DELAY: ulong(1)})
    sender.send("delay", annotations={DELAY: ulong(500)})
    sender.send("past", annotations={TIME: timestamp(1)})
    sender.send("none")
    assert receiver.accept(3) == ["past", "none", "delay"]
    last = receiver.receive()
    assert (last.body, now_ms() >= due) == ("time", True)
    # The annotation stays on the message.
    assert int(last.annotations[TIME]) == due
    assert q.show("queues", "q")["scheduled"] == 0
    proves("QU-8")


def test_a_delayed_event_has_the_id_of_its_time(broker):
    broker.channels("c")
    client = broker.connect("cid")
    subscriber = client.receiver("c", name="S", capability="topic", durable=True, credit=10)
    sender = client.sender("c", capability="topic")
    sender.send("m1", annotations={DELAY: 1500})
    sender.send("m2")
    first = subscriber.receive()
    first.accept()
    subscriber.detach()
    again = client.receiver("c", name="S", capability="topic", durable=True, credit=10)
    second = again.receive()
    ids = [(m.body, int(m.annotations["x-opt-postroad-event-id"])) for m in (first, second)]
    assert ids == [("m2", 1), ("m1", 2)]
    proves("objects:T17")


def test_delayed_messages_survive_a_kill_and_are_cancelled(q):
    sender = q.connect().sender("q", capability="queue")
    for body, delay in (("late", HOUR_MS), ("soon", 2500), ("cancelled", HOUR_MS)):
        sender.send(body, durable=True, annotations={DELAY: delay})
    sender.send("in memory", annotations={DELAY: 1})
    due = now_ms() + 2400
    eventually(lambda: q.depth("q", "queues"), 1)
    q.restart("kill")
    assert scheduled(q, "q") in ([(2, "soon"), (1, "late"), (3, "cancelled")], [(1, "late"), (3, "cancelled")])
    assert q.api.must("DELETE", "queues", "q", "scheduled", "3") == {"number": 3}
    receiver = q.connect().receiver("q", credit=10)
    assert (receiver.receive().body, now_ms() >= due) == ("soon", True)
    q.restart("kill")
    assert scheduled(q, "q") == [(1, "late")]
    shown = q.show("queues", "q")
    assert (shown["scheduled"], shown["depth"]) == (1, 1)
    assert q.api.must("POST", "queues", "q", "purge", body={}) == {"purged": 2}
    assert scheduled(q, "q") == []


def test_subscriptions_of_the_due_time_get_it(broker):
    broker.channels("c", retention="interest")
    client = broker.connect("cid")
    client.sender("c", capability="topic").send("m", annotations={DELAY: 1000})
    assert broker.show("channels", "c")["scheduled"] == 1
    subscriber = client.receiver("c", name="S", capability="topic", durable=True, credit=10)
    assert subscriber.accept(1) == ["m"]
    # Nobody is there any more: accepted, and not stored.
    subscriber.close()
    client.sender("c", capability="topic").send("unneeded", annotations={DELAY: 1})
    eventually(lambda: broker.show("channels", "c")["scheduled"], 0)
    assert broker.depth("c") == 0


def test_life_counts_from_sending(broker):
    broker.queues("expired")
    broker.queues("q", expiry_queue="expired")
    sender = broker.connect().sender("q", capability="queue")
    sender.send("short", ttl=0.2, annotations={DELAY: HOUR_MS})
    sender.send("long", ttl=60, annotations={DELAY: 400})
    eventually(lambda: broker.depth("expired", "queues"), 1)
    assert broker.connect().receiver("q").accept(1) == ["long"]
    letter = broker.connect().receiver("expired", browse=True).drain()[0]
    assert (letter.body, str(letter.annotations["x-opt-postroad-dl-reason"])) == ("short", "EXPIRED")
    proves("QU-9")


@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 5 << 20])
def test_messages_of_every_size_wait_and_come_whole(make_broker, size):
    # Nothing that is on disk stays in memory.
    broker = make_broker('[limits]\ncache = "1MiB"\n')
    broker.queues("q")
    client = broker.connect()
    body = bytes(range(256)) * (size // 256)
    client.sender("q", capability="queue").send(body, durable=True, annotations={DELAY: 300})
    assert client.receiver("q").receive().body == body


def test_what_waits_counts_in_the_capacity(broker):
    broker.queues("q", capacity=1)
    sender = broker.connect().sender("q", capability="queue")
    sender.send(1, annotations={DELAY: HOUR_MS})
    with pytest.raises(Refused) as refused:
        sender.send(2)
    assert refused.value.reason == "QUEUE_FULL"


@pytest.mark.parametrize("name", ["AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON"])
def test_repeated_deliveries_are_refused(q, name):
    sender = q.connect().sender("q", capability="queue")
    with pytest.raises(Refused) as refused:
        sender.send(1, properties={name: "1", "AMQ_SCHEDULED_DELAY": 10})
    assert (refused.value.condition, refused.value.reason) == ("amqp:not-implemented", "NOT_SUPPORTED")
    sender.send(2)
    assert q.depth("q", "queues") == 1
    proves("QU-10")


@pytest.mark.parametrize("value", [-1, "soon", 1.5, True])
def test_a_time_that_is_none_is_refused(q, value):
    sender = q.connect().sender("q", capability="queue")
    for key in (DELAY, TIME):
        with pytest.raises(Refused) as refused:
            sender.send(1, annotations={key: value})
        assert refused.value.reason == "BAD_MESSAGE"


def test_what_waits_by_command_line(q):
    sender = q.connect().sender("q", capability="queue")
    for body in ("one", "two", "three"):
        sender.send(body, annotations={DELAY: HOUR_MS})
    table = q.cli("queue", "scheduled", "q")
    assert table.returncode == 0 and table.stdout.index("one") < table.stdout.index("three")
    assert "2 cancelled" in q.cli("queue", "scheduled", "q", "--cancel", "1,3").stdout
    left = json.loads(q.cli("queue", "scheduled", "q", "--json").stdout)["items"]
    assert [(item["number"], item["body"]) for item in left] == [(2, "two")]
    again = q.cli("queue", "scheduled", "q", "--cancel", "3")
    assert again.returncode == 1 and "SCHEDULED_NOT_FOUND" in again.stderr
    assert "SCHEDULED" in q.cli("queue", "list").stdout
