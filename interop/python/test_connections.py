"""Connections, sessions and links: what is offered, what is refused, what a bad client can do (named-objects 3.9)."""

import os
import socket
import struct

import pytest
from proton import Endpoint, Terminus, symbol

from harness import Client, Refused, eventually, proves


def offered(client):
    return {str(name) for name in client.connection.remote_offered_capabilities or []}


def alive(broker):
    """The broker serves others, whatever one client did."""
    broker.queues("alive")
    client = broker.connect()
    client.sender("alive", capability="queue").send("still here")
    assert client.receiver("alive").accept(1) == ["still here"]
    client.close()


def test_capabilities_are_offered_that_work(broker):
    client = broker.connect(desired=["sole-connection-for-container"])
    assert offered(client) == {"ANONYMOUS-RELAY", "DELAYED_DELIVERY", "sole-connection-for-container"}
    assert offered(broker.connect()) == {"ANONYMOUS-RELAY", "DELAYED_DELIVERY"}


def test_a_second_connection_of_one_client_id_is_refused(broker):
    sole = ["sole-connection-for-container"]
    first = broker.connect("cid", desired=sole)
    with pytest.raises(Refused) as refused:
        broker.connect("cid", desired=sole)
    assert refused.value.condition == "amqp:invalid-field"
    assert str(refused.value.info["invalid-field"]) == "container-id"
    first.close()
    broker.connect("cid", desired=sole).close()
    proves("AM-2")


def test_a_lost_connection_frees_its_client_id(broker):
    sole = ["sole-connection-for-container"]
    broker.connect("cid", desired=sole).drop()

    def again():
        try:
            broker.connect("cid", desired=sole)
            return True
        except Refused:
            return False

    eventually(again)


def test_the_anonymous_relay_sends_to_any_address(broker):
    broker.queues("q")
    broker.channels("t")
    sender = broker.connect().sender(None)
    sender.send("to a queue", address="q")
    sender.send("to a channel", address="t")
    assert broker.depth("q", "queues") == 1 and broker.depth("t") == 1
    with pytest.raises(Refused) as refused:
        sender.send("nowhere", address="none")
    assert refused.value.condition == "amqp:not-found"
    with pytest.raises(Refused):
        sender.send("no address")
    sender.send("the link lives", address="q")


def test_dynamic_nodes_are_temporary_queues(broker):
    client = broker.connect()
    replies = client.receiver(None, dynamic=True, credit=1)
    assert replies.address.startswith("$tmp")
    broker.connect().sender(replies.address).send("reply")
    assert replies.accept(1) == ["reply"]
    address = replies.address
    client.close()

    def gone():
        try:
            broker.connect().sender(address).send("late")
        except Refused:
            return True
        return False

    eventually(gone)


def test_a_temporary_queue_goes_with_the_link_that_made_it(broker):
    client = broker.connect()
    made = client.receiver(None, dynamic=True)
    other = client.receiver(made.address, credit=1)
    broker.connect().sender(made.address).send("reply")
    assert other.accept(1) == ["reply"]
    made.close()
    client.wait(lambda: other.closed_by_peer, "the end of the other link")
    assert other.refusal().condition == "amqp:resource-deleted"
    with pytest.raises(Refused) as refused:
        broker.connect().sender(made.address).send("late")
    assert refused.value.condition == "amqp:not-found"
    proves("ADR-9")


def test_a_presettled_message_to_nowhere_is_kept_as_a_dead_letter(broker):
    broker.queues("q")
    sender = broker.connect("careless").sender(None, settled=True)
    sender.send("lost?", address="nowhere", properties={"k": "v"})
    sender.send("fine", address="q")
    eventually(lambda: (broker.depth("DLQ", "queues"), broker.depth("q", "queues")), (1, 1))
    letter = broker.connect().receiver("DLQ").receive()
    header = {name: letter.annotations[f"x-opt-postroad-dl-{name}"] for name in ("reason", "address", "component")}
    assert (str(header["reason"]), header["address"], header["component"]) == (
        "UNKNOWN_QUEUE", "nowhere", "client:careless")
    assert (letter.body, letter.properties["k"]) == ("lost?", "v")
    assert not sender.closed_by_peer
    proves("RES-10")


def test_unknown_addresses_are_not_found_where_nothing_is_made_by_itself(broker):
    for capability in (None, "queue"):
        with pytest.raises(Refused) as refused:
            broker.connect().receiver("none", capability=capability)
        assert refused.value.condition == "amqp:not-found"
        assert refused.value.reason in ("UNKNOWN_QUEUE", "CHANNEL_NOT_FOUND")
        assert "none" in refused.value.description
    # The session lives on after a refused link.
    client = broker.connect()
    with pytest.raises(Refused):
        client.sender("none")
    broker.queues("q")
    client.sender("q").send("fine")


def test_destinations_are_made_by_first_use_where_that_is_on(open_broker):
    client = open_broker.connect()
    client.sender("q1", capability="queue").send(1)
    assert open_broker.depth("q1", "queues") == 1
    receiver = client.receiver("t1", capability="topic")
    client.sender("t1", capability="topic").send(2)
    assert receiver.accept(1) == [2]
    assert open_broker.show("channels", "t1")["retention"] == "interest"
    client.sender("q2").send(3)
    assert open_broker.depth("q2", "queues") == 1


def test_a_large_message_arrives_whole_in_both_directions(broker):
    broker.queues("q")
    body = os.urandom(5 * 1024 * 1024)
    client = broker.connect(max_frame=4096)
    client.sender("q").send(body, durable=True)
    broker.restart("kill")
    assert broker.connect().receiver("q").receive(60).body == body


def test_a_message_above_the_limit_detaches_the_link_and_stores_nothing(broker):
    broker.queues("small", max_message_size=1000)
    client = broker.connect()
    sender = client.sender("small")
    sender.start("x" * 5000)
    refusal = sender.refusal()
    assert refusal.condition == "amqp:link:message-size-exceeded"
    assert broker.depth("small", "queues") == 0
    client.sender("small").send("fits")
    alive(broker)


def test_the_brokers_own_limit_holds_for_all(make_broker):
    broker = make_broker(broker="max_message_size = 10_000")
    broker.queues("q")
    sender = broker.connect().sender("q")
    sender.start(b"x" * 50_000)
    assert sender.refusal().condition == "amqp:link:message-size-exceeded"


def test_a_presettled_message_that_cannot_be_stored_closes_the_link_with_the_reason(broker):
    broker.queues("q", capacity=1)
    client = broker.connect()
    client.sender("q").send("fits")
    sender = client.sender("q", settled=True)
    try:
        sender.start("too many", timeout=1.0)
    except TimeoutError:
        return  # No credit for a full queue: the message was never sent.
    assert sender.refusal().reason == "QUEUE_FULL"


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"not a message", b"\x00\x53\x70\xc0\x05\x05\x41\x41\x41\x41\x41", b"\x00\x53\x75\xa0\xff",
     # Message annotations that are a map with an odd number of entries.
     b"\x00\x53\x72\xc1\x04\x01\xa3\x01k\x00\x53\x77\x40"]
)
def test_a_message_that_does_not_parse_is_refused(broker, raw):
    broker.queues("q")
    sender = broker.connect().sender("q")
    delivery = sender.start(raw=raw)
    sender.client.wait(lambda: delivery.updated or sender.closed_by_peer, "an outcome")
    if not sender.closed_by_peer:
        assert delivery.remote_state == delivery.REJECTED
    assert broker.depth("q", "queues") == 0
    alive(broker)


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x01\x00\x00" + b"\x00" * 64,
     b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0),
     b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 8, 9, 0, 0),
     b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x99\x45"],
    ids=["http", "noise", "another AMQP", "another protocol id", "huge frame", "bad offset", "unknown performative"],
)
def test_bytes_that_are_no_amqp_end_that_connection_only(broker, first):
    with socket.create_connection(("127.0.0.1", broker.amqp_port), timeout=10) as peer:
        peer.sendall(first)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(4096):
            pass
    alive(broker)


def test_a_half_open_socket_does_not_disturb_others(broker):
    peers = [socket.create_connection(("127.0.0.1", broker.amqp_port)) for _ in range(20)]
    peers[0].sendall(b"AM")
    alive(broker)
    for peer in peers:
        peer.close()


def test_a_client_that_never_reads_stops_nobody(broker):
    broker.queues("q")
    client = broker.connect()
    lazy = client.receiver("q")
    lazy.link.flow(100_000)
    client.pump()
    feeder = broker.connect().sender("q")
    feeder.send_all([b"x" * 1000] * 2000)
    alive(broker)
    client.drop()
    eventually(lambda: broker.depth("q", "queues"), 2000)


def test_sessions_and_links_come_and_go_without_end(broker):
    broker.queues("q")
    client = broker.connect()
    for _ in range(300):
        client.sender("q").close()
    for _ in range(300):
        client.round_trip()
    client.sender("q").send("fine")


def test_an_idle_client_is_kept_alive_and_a_silent_one_is_closed(make_broker):
    broker = make_broker()
    broker.queues("q")
    client = broker.connect(idle_s=1)
    receiver = client.receiver("q", credit=1)
    receiver.nothing(2.5)
    broker.connect().sender("q").send("one")
    assert receiver.accept(1) == ["one"]


def test_a_wrong_selector_type_is_refused(broker):
    from proton import Described

    broker.queues("q")
    with pytest.raises(Refused) as refused:
        broker.connect().receiver(
            "q", filter_set={"jms-selector": Described(symbol("apache.org:selector-filter:string"), 5)}
        )
    assert refused.value.condition == "amqp:invalid-field"


def test_a_taken_port_is_told_clearly(broker, tmp_path):
    import subprocess

    from harness.broker import BINARY

    again = subprocess.run(
        [BINARY, "serve", "--config", str(broker.config), "--data-dir", str(tmp_path / "other")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
    )
    assert again.returncode == 1
    assert str(broker.amqp_port) in again.stderr


def test_one_data_folder_serves_one_broker(broker, make_broker):
    import subprocess

    from harness.broker import BINARY

    other = make_broker()
    other.end()
    again = subprocess.run(
        [BINARY, "serve", "--config", str(other.config), "--data-dir", str(broker.data)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
    )
    assert again.returncode == 1
    assert "data" in again.stderr
    alive(broker)


def test_passwords_are_checked(make_broker):
    broker = make_broker('[security]\nmode = "secure"\n\n[[user]]\nname = "u"\npassword = "secret"\n')
    client = Client(broker.amqp_port, user="u", password="secret")
    client.close()
    with pytest.raises(ConnectionError):
        Client(broker.amqp_port, user="u", password="wrong")
