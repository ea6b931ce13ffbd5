"""Outcomes, redelivery and dead letters, on queues and named objects (named-objects 3.6; addressing 3.7)."""

import time

import pytest

from harness import eventually, proves

DL = "x-opt-postroad-dl-"


@pytest.fixture
def q(broker):
    broker.queues("q")
    return broker


def put(broker, *bodies, to="q", **fields):
    client = broker.connect()
    client.sender(to, capability="queue").send_all(bodies, **fields)
    client.close()


def dead_letters(broker, count=1, queue="DLQ"):
    # A queue for the dead letters of one source may be made with its first letter.
    eventually(lambda: (broker.api.call("GET", "queues", queue).body or {}).get("depth"), count)
    return broker.connect().receiver(queue, browse=True).drain()


def test_accepted_messages_are_finished(q):
    put(q, 1, 2)
    assert q.connect().receiver("q").accept(2) == [1, 2]
    eventually(lambda: q.depth("q", "queues"), 0)


def test_released_messages_come_back_uncounted(q):
    put(q, 1)
    receiver = q.connect().receiver("q")
    receiver.receive().release()
    again = receiver.receive()
    assert (again.body, again.delivery_count) == (1, 0)


def test_failed_messages_come_back_counted(q):
    put(q, 1)
    receiver = q.connect().receiver("q")
    receiver.receive().modify(failed=True)
    again = receiver.receive()
    assert (again.body, again.delivery_count) == (1, 1)
    again.modify(failed=True)
    assert receiver.receive().delivery_count == 2
    proves("AK-4")


def own(message):
    """The message's annotations but the broker's."""
    return {str(k): v for k, v in (message.annotations or {}).items() if not str(k).startswith("x-opt-postroad-")}


def test_what_a_consumer_adds_to_a_message_the_next_one_sees(q):
    put(q, "x", annotations={"x-opt-stage": "sent", "x-opt-by": "p"}, durable=True)
    receiver = q.connect().receiver("q")
    receiver.receive().modify(failed=False, annotations={"x-opt-stage": "looked at", "x-opt-n": 1})
    again = receiver.receive()
    assert own(again) == {"x-opt-by": "p", "x-opt-stage": "looked at", "x-opt-n": 1}
    assert again.delivery_count == 0
    again.modify(failed=True, annotations={"x-opt-n": [1, "two"]})
    receiver.receive()
    q.restart()
    after = q.connect().receiver("q").receive()
    assert own(after) == {"x-opt-by": "p", "x-opt-stage": "looked at", "x-opt-n": [1, "two"]}
    after.reject("app:broken", "no")
    letter = dead_letters(q)[0]
    assert own(letter)["x-opt-n"] == [1, "two"] and letter.body == "x"
    assert str(letter.annotations[DL + "reason"]) == "REJECTED"
    proves("AK-2")


def test_what_one_subscription_adds_the_other_does_not_see(broker):
    broker.channels("c", retention="interest")
    broker.object("c", "one")
    broker.object("c", "two")
    broker.connect().sender("c", capability="topic").send_all(["x"])
    one, two = broker.connect().receiver("c::one"), broker.connect().receiver("c::two")
    one.receive().modify(failed=True, annotations={"x-opt-note": "of one"})
    assert own(one.receive()) == {"x-opt-note": "of one"}
    two.receive().modify(failed=True)
    assert own(two.receive()) == {}


def test_annotations_for_which_there_is_no_room_end_the_link_and_leave_the_message(broker):
    broker.queues("q", max_message_size=300)
    put(broker, "x")
    receiver = broker.connect().receiver("q")
    receiver.receive().modify(failed=True, annotations={"x-opt-long": "y" * 300})
    refused = receiver.refusal()
    assert refused.reason == "MSG_TOO_BIG" and "annotations" in refused.description
    again = broker.connect().receiver("q").receive()
    assert (again.body, own(again), again.delivery_count) == ("x", {}, 1)


def test_a_message_refused_here_goes_to_another_consumer(q):
    put(q, 1)
    first, second = q.connect().receiver("q"), q.connect().receiver("q")
    first.receive().modify(failed=False, undeliverable=True)
    assert second.receive().body == 1
    first.credit(1)
    first.nothing()


def test_rejected_messages_are_dead_lettered_with_the_reason(q):
    put(q, "bad", id="m1", properties={"p": 1}, durable=True, priority=7)
    q.connect().receiver("q").receive().reject("app:broken", "cannot be read")
    letter = dead_letters(q)[0]
    assert str(letter.annotations[DL + "reason"]) == "REJECTED"
    assert letter.annotations[DL + "dest"] == "q"
    assert letter.annotations[DL + "event-id"] == 1
    assert "cannot be read" in str(letter.annotations[DL + "text"])
    assert DL + "time" in letter.annotations and letter.annotations[DL + "by"] == "A"
    assert (letter.body, letter.wire.id, letter.properties["p"], letter.wire.priority) == ("bad", "m1", 1, 7)
    assert letter.wire.durable
    proves("AK-2", "AK-9", "DLQ-3")


def test_presettled_messages_are_finished_when_sent(q):
    put(q, 1, 2)
    receiver = q.connect().receiver("q", settled=True)
    assert [m.body for m in receiver.take(2)] == [1, 2]
    eventually(lambda: q.depth("q", "queues"), 0)


def test_an_ordered_object_dead_letters_what_its_only_consumer_refuses(broker):
    broker.channels("c", retention="interest")
    broker.object("c", "d")
    broker.connect().sender("c", capability="topic").send_all([1, 2])
    receiver = broker.connect().receiver("c::d")
    receiver.receive().modify(failed=True, undeliverable=True)
    assert receiver.receive().body == 2
    letter = dead_letters(broker)[0]
    assert letter.body == 1
    assert str(letter.annotations[DL + "reason"]) == "REFUSED_BY_ALL"
    assert letter.annotations[DL + "named-object"].endswith("d")


def test_a_queue_dead_letters_what_every_consumer_refused(q):
    put(q, 1)
    receivers = [q.connect().receiver("q"), q.connect().receiver("q")]
    receivers[0].receive().modify(failed=True, undeliverable=True)
    receivers[1].receive().modify(failed=True, undeliverable=True)
    letter = dead_letters(q)[0]
    assert str(letter.annotations[DL + "reason"]) == "REFUSED_BY_ALL"
    proves("AK-3")


def test_a_message_that_kills_every_consumer_is_dead_lettered_and_its_neighbours_are_not(broker):
    broker.queues("q", max_delivery_attempts=3)
    put(broker, *range(1, 11))
    for attempt in range(3):
        receiver = broker.connect().receiver("q", credit=10)
        taken = receiver.take(10)
        assert taken[0].body == 1 and taken[0].delivery_count == attempt
        receiver.client.drop()
        eventually(lambda: broker.show("queues", "q")["consumers"], 0)
    letter = dead_letters(broker)[0]
    assert letter.body == 1 and str(letter.annotations[DL + "reason"]) == "MAX_ATTEMPTS"
    rest = broker.connect().receiver("q").take(9)
    assert [m.body for m in rest] == list(range(2, 11))
    assert all(m.redelivered for m in rest)
    proves("AK-5")


def test_returned_messages_keep_their_place(q):
    put(q, 1, 2, 3)
    receiver = q.connect().receiver("q")
    one = receiver.receive()
    one.release()
    assert receiver.accept(3) == [1, 2, 3]
    proves("AK-6")


def test_redelivery_waits_longer_each_time(broker):
    broker.queues("q", redelivery_delay=200, redelivery_multiplier=2.0, max_redelivery_delay=600)
    put(broker, "delayed")
    receiver = broker.connect().receiver("q")
    message = receiver.receive()
    waits = []
    for _ in range(4):
        start = time.monotonic()
        message.modify(failed=True)
        message = receiver.receive()
        waits.append(time.monotonic() - start)
    for waited, expected in zip(waits, (0.2, 0.4, 0.6, 0.6)):
        assert expected - 0.02 <= waited < expected + 1.0, waits
    proves("AK-7")


def test_other_messages_pass_a_delayed_one_on_a_queue_and_wait_on_an_ordered_object(broker):
    broker.queues("q", redelivery_delay=1500)
    put(broker, 1, 2)
    receiver = broker.connect().receiver("q")
    receiver.receive().modify(failed=True)
    assert receiver.receive(timeout=1.2).body == 2
    broker.channels("c", retention="interest")
    broker.object("c", "d", redelivery_delay=500)
    broker.connect().sender("c", capability="topic").send_all([1, 2])
    ordered = broker.connect().receiver("c::d")
    ordered.receive().modify(failed=True)
    assert ordered.accept(2) == [1, 2]


def test_too_many_attempts_end_in_the_dead_letter_queue(broker):
    broker.queues("q", max_delivery_attempts=3)
    put(broker, "poison")
    receiver = broker.connect().receiver("q")
    for attempt in range(3):
        message = receiver.receive()
        assert message.delivery_count == attempt
        message.modify(failed=True)
    letter = dead_letters(broker)[0]
    assert str(letter.annotations[DL + "reason"]) == "MAX_ATTEMPTS"
    receiver.credit(1)
    receiver.nothing()


def test_ten_attempts_are_the_default_and_minus_one_means_never(broker):
    broker.queues("ten")
    broker.queues("never", max_delivery_attempts=-1)
    for queue in ("ten", "never"):
        put(broker, queue, to=queue)
        receiver = broker.connect().receiver(queue)
        for _ in range(10):
            receiver.receive().modify(failed=True)
    eventually(lambda: broker.depth("ten", "queues"), 0)
    assert dead_letters(broker)[0].body == "ten"
    assert broker.connect().receiver("never").receive().delivery_count == 10
    proves("AK-8")


def test_a_queue_and_an_object_may_have_a_dead_letter_queue_of_their_own(broker):
    broker.queues("own")
    broker.queues("q", dead_letter_queue="own", max_delivery_attempts=1)
    broker.queues("p", dead_letter_per_source=True, max_delivery_attempts=1)
    for queue, letters in (("q", "own"), ("p", "DLQ.p")):
        put(broker, queue, to=queue)
        broker.connect().receiver(queue).receive().modify(failed=True)
        assert dead_letters(broker, queue=letters)[0].body == queue
    assert broker.depth("DLQ", "queues") == 0


def test_failed_attempts_survive_a_crash(q):
    put(q, 1, durable=True)
    receiver = q.connect().receiver("q")
    for _ in range(2):
        receiver.receive().modify(failed=True)
    last = receiver.receive()
    assert last.delivery_count == 2
    last.release()
    receiver.client.round_trip()
    q.restart("kill")
    assert q.connect().receiver("q").receive().delivery_count >= 2


def test_what_was_sent_before_a_crash_comes_back_flagged(q):
    put(q, *range(5), durable=True)
    receiver = q.connect().receiver("q")
    receiver.take(3)
    q.restart("kill")
    again = q.connect().receiver("q").take(5)
    assert [m.body for m in again] == list(range(5))
    assert all(m.redelivered for m in again[:3])


def test_a_confirmed_ack_survives_a_crash(q):
    put(q, *range(20), durable=True)
    receiver = q.connect().receiver("q")
    for message in receiver.take(10):
        # Not settled by us: the broker's own settlement is the confirmation.
        message.delivery.update(message.delivery.ACCEPTED)
        receiver.client.wait(lambda m=message: m.delivery.settled, "the confirmation of an ack")
    q.restart("kill")
    assert q.depth("q", "queues") == 10
    assert q.connect().receiver("q").accept(10) == list(range(10, 20))
    proves("AK-11")


def test_a_confirmed_publish_survives_a_crash(q):
    for round_ in range(3):
        put(q, *range(round_ * 50, round_ * 50 + 50), durable=True)
        q.restart("kill")
    assert q.connect().receiver("q").accept(150) == list(range(150))
