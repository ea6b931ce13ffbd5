"""Durable subscriptions of AMQP and JMS clients, by the link shapes that Qpid JMS sends (named-objects 3.9)."""

import pytest
from proton import Described, Terminus, symbol, ulong

from harness import Refused, eventually, proves


@pytest.fixture
def b(broker):
    broker.channels("t", retention="interest")
    return broker


def publish(broker, *bodies, container=None, **fields):
    client = broker.connect(container)
    client.sender("t", capability="topic").send_all(bodies, **fields)
    client.close()


def subscribe(client, name="S", address="t", **options):
    """The link of createDurableSubscriber(t, S)."""
    return client.receiver(address, name=name, capability="topic", durable=True,
                           mode=Terminus.DIST_MODE_COPY, **options)


def subscriptions(broker):
    return broker.api.must("GET", "subscriptions")["items"]


def test_a_durable_subscription_collects_while_its_client_is_away(b):
    client = b.connect("cid")
    subscribe(client).detach()
    client.close()
    publish(b, 1, 2, 3)
    again = subscribe(b.connect("cid"))
    taken = again.take(3)
    assert [(m.body, m.redelivered) for m in taken] == [(1, False), (2, False), (3, False)]
    proves("AM-5")


def test_it_survives_connection_loss_and_a_crash_of_the_broker(b):
    subscribe(b.connect("cid"))
    b.drop_clients()
    publish(b, 1, durable=True)
    b.restart("kill")
    publish(b, 2, durable=True)
    assert subscribe(b.connect("cid")).accept(2) == [1, 2]


def test_closing_ends_it(b):
    client = b.connect("cid")
    subscribe(client).close()
    publish(b, 1)
    assert b.depth("t") == 0
    assert subscribe(client).drain() == []


def test_detach_keeps_and_close_ends_and_volatile_ones_go_by_themselves(b):
    client = b.connect("cid")
    subscribe(client).detach()
    volatile = b.connect("v").receiver("t", capability="topic")
    publish(b, 1)
    assert b.depth("t") == 1
    assert volatile.accept(1) == [1]
    volatile.client.drop()
    subscribe(client).close()
    eventually(lambda: b.depth("t"), 0)
    publish(b, 2)
    assert b.depth("t") == 0
    proves("AM-6")


def test_unacknowledged_events_come_back(b):
    client = b.connect("cid")
    receiver = subscribe(client)
    publish(b, 1, 2, 3)
    receiver.take(3)[1].accept()
    client.round_trip()
    client.drop()
    again = subscribe(b.connect("cid")).take(2)
    assert [(m.body, m.delivery_count) for m in again] == [(1, 1), (3, 1)]


def test_the_name_is_unique_per_client_id(b):
    one, other = subscribe(b.connect("one")), subscribe(b.connect("other"))
    publish(b, 1)
    assert one.accept(1) == other.accept(1) == [1]
    with pytest.raises(Refused) as refused:
        subscribe(b.connect("one"))
    assert refused.value.condition == "amqp:resource-locked"
    proves("NO-7")


def test_a_volatile_subscription_is_private(b):
    first, second = (b.connect().receiver("t", capability="topic", credit=10) for _ in range(2))
    publish(b, 1, 2)
    assert first.accept(2) == second.accept(2) == [1, 2]
    third = b.connect().receiver("t", capability="topic")
    assert third.drain() == []


def test_unsubscribe_by_name_of_an_inactive_subscription(b):
    client = b.connect("cid")
    receiver = subscribe(client, selector="a = 1", no_local=True)
    receiver.detach()
    publish(b, 1, properties={"a": 1})
    lookup = client.lookup("S")
    source = lookup.link.remote_source
    assert (source.address, source.durability) == ("t", Terminus.DELIVERIES)
    assert source.expiry_policy == Terminus.EXPIRE_NEVER
    found = source.filter.get_object() if source.filter.next() else {}
    assert {str(key) for key in found} >= {"jms-selector", "no-local"}
    lookup.close()
    eventually(lambda: b.depth("t"), 0)
    assert subscribe(client, selector="a = 1").drain() == []


def test_unsubscribe_of_an_unknown_name(b):
    lookup = b.connect("cid").lookup("S")
    assert lookup.link.remote_source.type == Terminus.UNSPECIFIED
    assert lookup.refusal().condition == "amqp:not-found"


def test_unsubscribe_of_an_active_subscription_is_refused(b):
    client = b.connect("cid")
    receiver = subscribe(client, credit=10)
    # On one connection the second link of a name takes over the first: only another one can find it active.
    other = b.connect("cid")
    lookup = other.lookup("S")
    lookup.link.close()
    other.wait(lambda: lookup.closed_by_peer, "the closing detach")
    assert lookup.link.remote_condition.name == "amqp:resource-locked"
    publish(b, 1)
    assert receiver.accept(1) == [1]
    proves("AM-7")


def test_a_refused_attach_is_answered_by_a_null_source_first(b):
    client = b.connect("cid")
    with pytest.raises(Refused) as refused:
        client.receiver("no such channel", capability="topic", name="gone", durable=True)
    assert refused.value.condition == "amqp:not-found"
    with pytest.raises(Refused):
        client.sender("no such queue", capability="queue")
    subscribe(client).close()
    proves("AM-8")


@pytest.mark.parametrize(
    "descriptor", [symbol("apache.org:selector-filter:string"), ulong(0x0000468C00000004)], ids=["symbol", "code"]
)
def test_selectors_are_known_by_their_descriptor_and_echoed(b, descriptor):
    client = b.connect("cid")
    wanted = {"any key": Described(descriptor, "a = 1"), "other": Described(symbol("example:unknown"), "x")}
    receiver = client.receiver("t", capability="topic", filter_set=wanted)
    source = receiver.link.remote_source
    echoed = source.filter.get_object() if source.filter.next() else {}
    assert [str(key) for key in echoed] == ["any key"]
    publish(b, "yes", properties={"a": 1})
    publish(b, "no", properties={"a": 2})
    assert receiver.accept(1) == ["yes"]
    assert receiver.drain() == []
    proves("AM-9")


def test_a_selector_that_does_not_parse_is_refused(b):
    with pytest.raises(Refused) as refused:
        b.connect().receiver("t", capability="topic", selector="a = = 1")
    assert (refused.value.condition, refused.value.reason) == ("amqp:invalid-field", "FILTER_SYNTAX")
    proves("ERR-7")


@pytest.mark.parametrize("durable", [True, False])
def test_no_local_leaves_out_what_the_own_client_published(b, durable):
    client = b.connect("cid")
    receiver = client.receiver("t", capability="topic", name="S", durable=durable, no_local=True)
    client.sender("t", capability="topic").send_all(["mine", "mine too"])
    publish(b, "theirs", container="other")
    assert receiver.accept(1) == ["theirs"]
    assert receiver.drain() == []
    proves("AM-10")


def test_another_definition_starts_a_new_subscription(b):
    client = b.connect("cid")
    subscribe(client).detach()
    publish(b, *range(5), properties={"a": 1})
    again = subscribe(client, selector="a=1")
    assert again.drain() == []
    publish(b, "new", properties={"a": 1})
    publish(b, "other", properties={"a": 2})
    assert again.accept(1) == ["new"]
    assert again.drain() == []
    proves("AM-11")


def test_another_definition_while_active_is_refused(b):
    receiver = subscribe(b.connect("cid"))
    with pytest.raises(Refused) as refused:
        subscribe(b.connect("cid"), selector="a=1")
    assert (refused.value.condition, refused.value.reason) == ("amqp:illegal-state", "OBJECT_KIND_CONFLICT")
    publish(b, 1)
    assert receiver.accept(1) == [1]
    proves("ERR-4")


@pytest.mark.parametrize("settled", [True, False])
def test_settle_modes_of_the_session_modes(b, settled):
    receiver = b.connect("cid").receiver("t", capability="topic", settled=settled)
    publish(b, 1, 2, 3)
    taken = receiver.take(3)
    if not settled:
        assert b.depth("t") == 3
        taken[0].accept()
        eventually(lambda: b.depth("t"), 2)
        taken[2].accept()
        taken[1].accept()
    eventually(lambda: b.depth("t"), 0)
    proves("AM-12")


def test_closing_gives_back_what_had_no_outcome(b):
    client = b.connect("cid")
    receiver = subscribe(client)
    publish(b, *range(4))
    taken = receiver.take(4)
    taken[0].modify(failed=True)
    taken[1].release()
    receiver.detach()
    again = subscribe(client).take(4)
    assert [(m.body, m.delivery_count) for m in again] == [(0, 1), (1, 0), (2, 0), (3, 0)]
    proves("AM-14")


@pytest.mark.parametrize("credit", [1, 7])
def test_credit_is_the_window_and_drain_uses_it_up(b, credit):
    receiver = subscribe(b.connect("cid"), credit=credit)
    publish(b, *range(20))
    taken = [receiver.receive() for _ in range(credit)]
    receiver.nothing()
    for message in taken:
        message.accept()
    assert [m.body for m in receiver.drain(5)] == list(range(credit, credit + 5))
    assert receiver.link.credit == 0
    rest = receiver.drain(100)
    assert [m.body for m in rest] == list(range(credit + 5, 20))
    assert receiver.drain(10) == []
    proves("AM-15")


def test_settle_mode_second_is_answered_with_first(b):
    receiver = b.connect("cid").receiver("t", capability="topic", second=True)
    assert receiver.link.remote_rcv_settle_mode == receiver.link.RCV_FIRST
    proves("AM-16")


def test_a_native_object_is_addressed_with_and_without_a_capability(b):
    b.object("t", "n")
    for number, capability in enumerate((None, "topic", "queue")):
        publish(b, number)
        receiver = b.connect().receiver("t::n", capability=capability)
        assert receiver.accept(1) == [number]
        receiver.close()


def test_start_event_id_is_honoured_when_a_durable_is_made(broker):
    broker.channels("t", retention="log")
    publish(broker, *range(1, 6))
    client = broker.connect("cid")
    assert subscribe(client, properties={"start-event-id": ulong(3)}).accept(3) == [3, 4, 5]
    assert subscribe(client, "all", properties={"start-event-id": ulong(0)}).accept(5) == [1, 2, 3, 4, 5]
    assert subscribe(client, "new").drain() == []


def test_a_durable_without_a_client_id_is_refused(b):
    with pytest.raises(Refused) as refused:
        subscribe(b.connect(""))
    assert (refused.value.condition, refused.value.reason) == ("amqp:invalid-field", "CLIENT_ID_REQUIRED")
    proves("AM-18", "ERR-9")


def test_links_may_expire_with_their_session_or_connection(b):
    for policy in (Terminus.EXPIRE_WITH_SESSION, Terminus.EXPIRE_WITH_CONNECTION):
        client = b.connect("cid")
        client.receiver("t", name="S", capability="topic", durable=True, expiry=policy)
        client.close()
        publish(b, 1)
        eventually(lambda: b.depth("t"), 0)
