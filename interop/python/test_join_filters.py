"""Filters of joins: what passes, what is refused, what a change means (joins-and-interest 3.3)."""

import pytest

from harness import eventually, proves


def test_only_true_passes(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b", filter="price > 10")
    sender = broker.connect().sender("a", capability="topic")
    sender.send("true", properties={"price": 11})
    sender.send("false", properties={"price": 9})
    sender.send("missing")
    sender.send("another type", properties={"price": "11"})
    assert broker.stored("a", "b") == [4, 1]
    assert broker.show_join(name)["filtered_total"] == 3
    proves("FIL-2")


@pytest.mark.parametrize(
    "selector, column",
    [("a = = 1", "5"), ("price >", "8"), ("name LIKE 1", None), ("(a = 1", None), ("a = 'open", None)],
)
def test_a_filter_that_does_not_parse_is_refused_with_its_place(broker, selector, column):
    broker.channels("a", "b")
    answer = broker.api.call("POST", "joins", body={"source": "a", "destination": "b", "filter": selector})
    assert (answer.status, answer.code) == (400, "FILTER_SYNTAX")
    said = f"{answer.message} {answer.body.get('detail')}"
    assert column is None or column in said
    assert broker.api.must("GET", "joins")["items"] == []


@pytest.mark.parametrize(
    "selector, fields",
    [
        ("JMSPriority = 7", {"priority": 7}),
        ("JMSCorrelationID = 'c1'", {"correlation_id": "c1"}),
        ("JMSType = 'order'", {"subject": "order"}),
        ("a IN ('x', 'y') AND b BETWEEN 1 AND 3", {"properties": {"a": "y", "b": 2}}),
        ("name LIKE 'a\\_%' ESCAPE '\\'", {"properties": {"name": "a_b"}}),
        ("a IS NULL AND NOT (b = 2)", {"properties": {"b": 1}}),
        ("total * 2 + 1 = 7", {"properties": {"total": 3}}),
    ],
)
def test_headers_properties_and_the_whole_language(broker, selector, fields):
    broker.channels("a", "b")
    broker.join("a", "b", filter=selector)
    sender = broker.connect().sender("a", capability="topic")
    sender.send("matching", **fields)
    sender.send("other", priority=1, properties={"a": "z", "b": 9, "name": "axb", "total": 4})
    assert broker.stored("b") == [1]


def test_a_join_changes_nothing_in_a_message(broker):
    broker.channels("a", "b")
    broker.join("a", "b")
    client = broker.connect()
    client.sender("a", capability="topic").send(
        {"k": [1, 2]}, id="m1", correlation_id="c1", subject="s", priority=8, durable=True, reply_to="back",
        content_type="x/y", creation_time=12.5, properties={"i": 1, "t": "text", "f": 1.5, "b": True},
    )
    broker.settled()
    there = broker.contents("b")[0]
    here = broker.contents("a")[0]
    for field in ("body", "id", "correlation_id", "subject", "priority", "durable", "reply_to", "content_type",
                  "creation_time", "properties"):
        assert getattr(there.wire, field) == getattr(here.wire, field), field
    assert there.wire.id == "m1" and there.properties["f"] == 1.5
    proves("FIL-3")


def test_a_changed_filter_acts_on_later_events_only(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b", filter="x = 1", enabled=False)
    sender = broker.connect().sender("a", capability="topic")
    sender.send("one", properties={"x": 1})
    sender.send("two", properties={"x": 2})
    broker.api.must("PATCH", "joins", name, body={"filter": "x = 2"})
    sender.send("one more", properties={"x": 1})
    sender.send("two more", properties={"x": 2})
    broker.api.must("POST", "joins", name, "resume")
    eventually(lambda: broker.depth("b"), 2)
    bodies = [m.body for m in broker.contents("b")]
    assert bodies == ["one", "two more"]
    proves("FIL-4")
