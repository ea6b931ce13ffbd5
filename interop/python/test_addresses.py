"""What an address means: forms, kinds, escapes, names (addressing 3.1), and the dead-letter queue (3.7)."""

import time

import pytest
from proton import byte

from harness import Refused, eventually, proves


def test_queue_addresses_may_be_written_as_uris(broker):
    broker.queues("x", "a/b")
    client = broker.connect()
    for address, queue in (("queue:///x", "x"), ("queue://x", "x"), ("queue:///a/b", "a/b"), ("queue://A/x", "x"),
                           ("x@A", "x")):
        before = broker.depth(queue, "queues")
        client.sender(address).send(address)
        assert broker.depth(queue, "queues") == before + 1, address
    proves("ADR-4")


def test_escapes_are_decoded_in_queue_addresses(broker):
    broker.queues("a%b")
    client = broker.connect()
    client.sender("a%25b").send(1)
    client.sender("a%b").send(2)
    assert broker.depth("a%b", "queues") == 2


@pytest.mark.parametrize("name", ["$mine", "a@b", "a?b", "a#b", "a*b", "a b", "a::b", "x" * 256, "a\\b", "a>b", "a|b"])
def test_bad_queue_names_are_refused(broker, name):
    answer = broker.api.call("PUT", "queues", name, body={})
    assert (answer.status, answer.code) == (400, "BAD_NAME")


def test_good_queue_names_are_taken(broker):
    for name in ("Straße", "a._-/%:b", "a$~(),;=b", "x" * 255):
        broker.queues(name)
        assert broker.depth(name, "queues") == 0
    proves("ADR-3")


def test_the_kind_of_an_address(open_broker):
    broker = open_broker
    broker.queues("both", "only-queue")
    broker.channels("both", "only-channel")
    relay = broker.connect().sender(None)
    relay.send("queue by annotation", address="both", annotations={"x-opt-jms-dest": byte(0)})
    relay.send("topic by annotation", address="both", annotations={"x-opt-jms-dest": byte(1)})
    relay.send("no kind: the queue", address="both")
    relay.send("no kind: the channel", address="only-channel")
    relay.send("scheme wins", address="channel://both", annotations={"x-opt-jms-dest": byte(0)})
    relay.send("unknown: a queue", address="made")
    assert broker.depth("both", "queues") == 2 and broker.depth("both") == 2
    assert broker.depth("only-channel") == 1
    assert broker.depth("made", "queues") == 1


def test_unknown_names_may_mean_topics(make_broker):
    broker = make_broker(broker='unknown_kind = "topic"', auto_create=True)
    broker.connect().sender("made").send(1)
    assert broker.api.call("GET", "channels", "made").status == 200
    proves("ADR-6")


def test_the_dead_letter_queue_is_there_from_the_start(make_broker):
    assert make_broker().depth("DLQ", "queues") == 0
    broker = make_broker(broker='dead_letter_queue = "letters"')
    broker.queues("q")
    client = broker.connect()
    client.sender("q").send(1)
    client.receiver("q").receive().reject()
    eventually(lambda: broker.depth("letters", "queues"), 1)
    proves("DLQ-1")


def test_evidence_does_not_expire(broker):
    broker.queues("q")
    client = broker.connect()
    client.sender("q").send("x", ttl=0.6)
    client.receiver("q").receive().reject()
    eventually(lambda: broker.depth("DLQ", "queues"), 1)
    time.sleep(1.0)
    assert [m.body for m in client.receiver("DLQ").drain()] == ["x"]
    proves("DLQ-4")


def test_a_queue_and_a_channel_may_share_a_name_with_a_warning(broker):
    broker.channels("both")
    assert broker.show("channels", "both")["warnings"] == []
    answer = broker.api.call("PUT", "queues", "both", body={})
    assert answer.status == 201 and "a channel is named 'both', too" in answer.body["warnings"][0]
    assert "a queue is named 'both', too" in broker.show("channels", "both")["warnings"][0]
    made = broker.cli("queue", "create", "both")
    assert "warning: a channel is named 'both', too" in made.stderr and made.returncode == 0


def test_only_channels_have_named_objects(broker):
    broker.queues("q")
    with pytest.raises(Refused) as refused:
        broker.connect().receiver("q::d")
    assert refused.value.condition == "amqp:not-allowed"
    with pytest.raises(Refused) as refused:
        broker.connect().receiver("q", capability="topic")
    assert "a queue has that name" in str(refused.value)


def reject_one(broker):
    broker.queues("q")
    client = broker.connect()
    client.sender("q").send("x", properties={"mine": 1, "postroad_dl_reason": "forged"})
    client.receiver("q").receive().reject("app:broken", "cannot be read")
    eventually(lambda: broker.depth("DLQ", "queues"), 1)
    return client


def test_dead_letters_are_selected_by_their_header(broker):
    client = reject_one(broker)
    for selector, found in (
        ("postroad_dl_reason = 'REJECTED' AND postroad_dl_dest = 'q' AND postroad_dl_event_id = 1", ["x"]),
        ("postroad_dl_reason = 'forged'", []),
        ("postroad_dl_named_object IS NULL AND postroad_dl_count BETWEEN 1 AND 1 AND mine = 1", ["x"]),
        ("postroad_dl_time > 1000000000000 AND postroad_dl_text LIKE '%cannot be read%'", ["x"]),
    ):
        receiver = client.receiver("DLQ", browse=True, selector=selector)
        assert [m.body for m in receiver.drain()] == found, selector
    letter = client.receiver("DLQ", browse=True).drain()[0]
    assert letter.properties == {"mine": 1, "postroad_dl_reason": "forged"}, "the message is as it was sent"
    assert not any(str(key).startswith("x-opt-ORIG") for key in letter.annotations)


def test_dead_letters_may_show_their_header_as_properties(make_broker):
    broker = make_broker(broker='dlq_expose_properties = true\ndlq_compat = "artemis"')
    client = reject_one(broker)
    letter = client.receiver("DLQ", browse=True).drain()[0]
    assert (letter.body, letter.properties["mine"]) == ("x", 1)
    shown = {key: letter.properties["postroad_dl_" + key] for key in ("reason", "dest", "event_id", "by", "count", "code")}
    assert shown == {"reason": "REJECTED", "dest": "q", "event_id": 1, "by": "A", "count": 1, "code": 0}
    assert letter.annotations["x-opt-ORIG-ADDRESS"] == "q" and letter.annotations["x-opt-ORIG-QUEUE"] == "q"
    assert str(letter.annotations["x-opt-postroad-dl-reason"]) == "REJECTED"

    broker.channels("c", retention="interest")
    broker.object("c", "d")
    client.sender("c", capability="topic").send_all([1])
    client.receiver("c::d").receive().reject()
    eventually(lambda: broker.depth("DLQ", "queues"), 2)
    letter = client.receiver("DLQ", browse=True, selector="postroad_dl_named_object = 'd'").drain()[0]
    assert letter.annotations["x-opt-ORIG-ADDRESS"] == "c" and letter.annotations["x-opt-ORIG-QUEUE"] == "c::d"
    assert letter.body == 1 and letter.properties["postroad_dl_named_object"] == "d"
    proves("DLQ-6")


def test_an_application_may_put_into_the_dead_letter_queue(broker):
    client = broker.connect()
    client.sender("DLQ", capability="queue").send("without a header")
    assert client.receiver("DLQ").accept(1) == ["without a header"]


def test_the_kind_of_the_terminus_must_exist(broker):
    broker.queues("q")
    broker.channels("c")
    with pytest.raises(Refused) as refused:
        broker.connect().receiver("q", capability="topic")
    assert refused.value.condition == "amqp:not-found"
    with pytest.raises(Refused) as refused:
        broker.connect().receiver("c", capability="queue")
    assert refused.value.condition == "amqp:not-found"
