"""Joins are made, shown and deleted; what makes no sense is refused (joins-and-interest 3.1, 6.4, 7)."""

import json

import pytest

from harness import eventually, proves


def joins(broker):
    return broker.api.must("GET", "joins")["items"]


def test_what_is_published_to_the_source_is_passed_to_channel_and_queue(broker):
    broker.channels("a", "b")
    broker.queues("q")
    broker.join("a", "b")
    broker.join("a", "q")
    broker.connect().sender("a", capability="topic").send("one")
    assert broker.stored("a", "b", "queue:q") == [1, 1, 1]
    proves("JOIN-1")


def test_a_queue_cannot_be_a_source(broker):
    broker.channels("a")
    broker.queues("q")
    answer = broker.api.call("POST", "joins", body={"source": "q", "destination": "a"})
    assert (answer.status, answer.code) == (422, "JOIN_SOURCE_IS_QUEUE")
    assert "q" in answer.message
    assert joins(broker) == []
    proves("joins:J1", "JOIN-2")


def test_only_the_destination_is_compulsory(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b")
    shown = broker.show_join(name)
    assert name == "a->b"
    assert shown["max_hops"] == 10
    assert shown.get("filter") is None
    assert shown["archive"] is False and shown["propagate_purge"] is False
    answer = broker.api.call("POST", "joins", body={"source": "a"})
    assert (answer.status, answer.code) == (400, "JOIN_NO_DESTINATION")
    proves("joins:J2", "JOIN-3")


def test_filters_of_two_joins_divide_a_channel(broker):
    broker.channels("a", "b")
    broker.queues("q")
    broker.join("a", "b", filter="region='EU'")
    broker.join("a", "q", filter="region='US'")
    sender = broker.connect().sender("a", capability="topic")
    for region in ("EU", "US", "ASIA"):
        sender.send(region, properties={"region": region})
    assert broker.stored("a", "b", "queue:q") == [3, 1, 1]
    client = broker.connect()
    assert [m.body for m in client.receiver("q").drain()] == ["US"]
    proves("joins:J3", "FIL-1")


def test_a_join_is_one_way(broker):
    broker.channels("a", "b")
    broker.join("a", "b")
    broker.connect().sender("b", capability="topic").send("back")
    assert broker.stored("a", "b") == [0, 1]


def test_the_same_join_again_changes_nothing_and_another_is_refused(broker):
    broker.channels("a", "b")
    first = broker.join("a", "b", max_hops=3)
    assert broker.join("a", "b", max_hops=3) == first
    assert len(joins(broker)) == 1
    answer = broker.api.call("POST", "joins", body={"source": "a", "destination": "b", "max_hops": 4})
    assert (answer.status, answer.code) == (409, "JOIN_EXISTS")
    assert broker.show_join(first)["max_hops"] == 3
    proves("JOIN-7")


def test_a_store_cannot_be_joined_to_itself(broker):
    broker.channels("a")
    answer = broker.api.call("POST", "joins", body={"source": "a", "destination": "a"})
    assert (answer.status, answer.code) == (422, "JOIN_SELF")
    proves("JOIN-8")


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"source": "none", "destination": "a"}, 404, "JOIN_SOURCE_NOT_FOUND"),
        ({"source": "a", "destination": "none"}, 404, "JOIN_DEST_NOT_FOUND"),
        ({"source": "a", "destination": "b", "max_hops": 256}, 400, "JOIN_BAD_HOPS"),
        ({"source": "a", "destination": "b", "max_hops": -1}, 400, "JOIN_BAD_HOPS"),
        ({"source": "a", "destination": "b@elsewhere"}, 409, "LINK_MISSING"),
        ({"source": "a", "destination": "b", "archive": True}, 422, "ARCHIVE_NEEDS_QUEUE"),
    ],
)
def test_bad_definitions_are_refused_with_a_code(broker, body, status, code):
    broker.channels("a", "b")
    answer = broker.api.call("POST", "joins", body=body)
    assert (answer.status, answer.code) == (status, code)
    assert answer.message and joins(broker) == []


def test_unknown_joins_are_not_found(broker):
    assert broker.api.call("GET", "joins", "none").code == "JOIN_NOT_FOUND"
    assert broker.api.call("DELETE", "joins", "none").code == "JOIN_NOT_FOUND"
    assert broker.api.call("PATCH", "joins", "none", body={"max_hops": 1}).code == "JOIN_NOT_FOUND"


def test_hop_limits_reach_from_0_to_255(broker):
    broker.channels("a", "b", "c")
    assert broker.show_join(broker.join("a", "b", max_hops=0))["max_hops"] == 0
    assert broker.show_join(broker.join("a", "c", max_hops=255))["max_hops"] == 255
    answer = broker.api.call("POST", "joins", body={"source": "b", "destination": "c", "max_hops": 256})
    assert answer.code == "JOIN_BAD_HOPS"
    proves("HOP-4")


def test_start_positions(broker):
    broker.channels("a", "new", "all", "third")
    sender = broker.connect().sender("a", capability="topic")
    sender.send_all([1, 2, 3, 4])
    broker.join("a", "new")
    broker.join("a", "all", start="all")
    broker.join("a", "third", start=3)
    sender.send(5)
    assert broker.stored("new", "all", "third") == [1, 5, 3]
    bodies = [m.body for m in broker.contents("third")]
    assert bodies == [3, 4, 5]
    proves("JOIN-9")


def test_new_misses_nothing_published_after_creation_was_acknowledged(broker):
    broker.channels("a", "b")
    sender = broker.connect().sender("a", capability="topic")
    sender.send_all(range(50))
    broker.join("a", "b")
    sender.send_all(range(50, 80))
    assert broker.stored("a", "b") == [80, 30]


def comparable(shown):
    """The settings of a join without what changes while it runs."""
    settings = ("name", "source", "destination", "filter", "max_hops", "archive", "propagate_purge", "via",
                "allow_missing", "enabled", "split_horizon", "on_block", "role", "batch", "in_flight", "state")
    return {key: shown.get(key) for key in settings}


def test_rest_command_line_and_file_make_the_same_join(broker):
    broker.channels("a", "b")
    shown = []

    broker.join("a", "b", filter="x = 1", max_hops=4, propagate_purge=True)
    shown.append(comparable(broker.show_join("a->b")))
    broker.api.must("DELETE", "joins", "a->b")
    assert joins(broker) == []

    made = broker.cli("join", "create", "a", "b", "--filter", "x = 1", "--max-hops", "4", "--propagate-purge")
    assert made.returncode == 0, made.stderr
    assert "a->b" in made.stdout
    shown.append(comparable(json.loads(broker.cli("join", "show", "a->b", "--json").stdout)))
    assert broker.cli("join", "delete", "a->b").returncode == 0
    assert joins(broker) == []

    broker.configure('[[channel]]\nname = "a"\n[[channel]]\nname = "b"\n'
                     '[[join]]\nsource = "a"\ndestination = "b"\nfilter = "x = 1"\nmax_hops = 4\npropagate_purge = true\n')
    broker.restart("stop")
    shown.append(comparable(broker.show_join("a->b")))
    assert shown[0] == shown[1] == shown[2]
    broker.api.must("DELETE", "joins", "a->b")
    assert joins(broker) == []
    proves("JOIN-4")


def test_joins_survive_a_crash(broker):
    broker.channels("a", "b")
    name = broker.join("a", "b", filter="x = 1", max_hops=7)
    before = comparable(broker.show_join(name))
    broker.restart("kill")
    assert comparable(broker.show_join(name)) == before
    broker.connect().sender("a", capability="topic").send("one", properties={"x": 1})
    assert broker.stored("b") == [1]


def test_both_makes_the_pair(broker):
    broker.channels("a", "b")
    made = broker.cli("join", "create", "a", "b", "--both")
    assert made.returncode == 0, made.stderr
    assert sorted(j["name"] for j in joins(broker)) == ["a->b", "b->a"]
    proves("JOIN-5")


def test_a_missing_destination_may_be_waited_for(broker):
    broker.channels("a")
    name = broker.join("a", "b", allow_missing=True)
    broker.connect().sender("a", capability="topic").send("early")
    assert broker.show_join(name)["state"] in ("waiting", "blocked")
    broker.channels("b")
    eventually(lambda: broker.depth("b"), 1)


def test_both_ends_list_the_join(broker):
    broker.channels("a", "b", "c")
    broker.join("a", "b", filter="x = 1")
    broker.join("b", "c")

    def listed(*arguments):
        answer = broker.cli("join", "list", *arguments, "--json")
        assert answer.returncode == 0, answer.stderr
        found = json.loads(answer.stdout)
        return sorted(j["name"] for j in (found["items"] if isinstance(found, dict) else found))

    assert listed() == ["a->b", "b->c"]
    assert listed("b") == ["a->b", "b->c"]
    assert listed("b", "--in") == ["a->b"]
    assert listed("b", "--out") == ["b->c"]
    proves("JOIN-11")


def test_one_and_the_same_join_is_made_and_deleted_by_every_face(make_broker):
    """The rest interface, the command line and the configuration file: the faces that there are."""
    channel = '[[channel]]\nname = "a"\n[[queue]]\nname = "q"\n'
    join = '[[join]]\nname = "j"\nsource = "a"\ndestination = "q"\nfilter = "x = 1"\nmax_hops = 3\n'
    broker = make_broker(channel)
    settings = {"source": "a", "destination": "q", "filter": "x = 1", "max_hops": 3}

    def shown():
        view = json.loads(broker.cli("join", "show", "j", "--json").stdout)
        assert view == broker.show_join("j")
        return {name: value for name, value in view.items() if name != "made_by"}

    def nothing_left():
        assert joins(broker) == [] and json.loads(broker.cli("join", "list", "--json").stdout) == {"items": []}
        assert broker.api.call("GET", "joins", "j").status == 404

    broker.api.must("PUT", "joins", "j", body=settings)
    by_rest = shown()
    assert {name: by_rest[name] for name in settings} == settings
    broker.api.must("DELETE", "joins", "j")
    nothing_left()

    options = ("--name", "j", "--filter", "x = 1", "--max-hops", "3")
    made = broker.cli("join", "create", "a", "q", *options)
    assert made.returncode == 0, made.stderr
    assert shown() == by_rest
    assert broker.cli("join", "delete", "j").returncode == 0
    nothing_left()

    broker.configure(channel + join)
    broker.restart("stop")
    assert shown() == by_rest
    broker.configure(channel)
    broker.restart("stop")
    assert shown() == by_rest, "what a file no longer names is not deleted by that alone"
    assert broker.cli("join", "delete", "j").returncode == 0
    nothing_left()
    broker.restart("kill")
    nothing_left()
    proves("joins:J4")
