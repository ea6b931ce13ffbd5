"""Senders and receivers of the test client."""

import time

from proton import Described, Endpoint, symbol

from harness.message import Message, encode

SELECTOR = symbol("apache.org:selector-filter:string")
NO_LOCAL = symbol("apache.org:no-local-filter:list")
QUIET_S = 0.25


def filters(selector, no_local, further):
    """The filter map as Qpid JMS writes it."""
    chosen = {}
    if selector is not None:
        chosen[symbol("jms-selector")] = Described(SELECTOR, selector)
    if no_local:
        chosen[symbol("no-local")] = Described(NO_LOCAL, [])
    for name, value in (further or {}).items():
        chosen[symbol(name)] = value
    return chosen


class _Link:
    def __init__(self, client, link):
        self.client = client
        self.link = link

    @property
    def name(self):
        """The link's name."""
        return self.link.name

    @property
    def closed_by_peer(self):
        """True once the broker has detached it."""
        return bool(self.link.state & Endpoint.REMOTE_CLOSED)

    def _opened(self, answered):
        """Wait for the broker's attach; a null terminus in it announces a refusal (AM-8)."""
        self.link.open()
        self.client.wait(lambda: not self.link.state & Endpoint.REMOTE_UNINIT, f"attaching {self.link.name}")
        if not answered():
            self.client.wait(lambda: self.closed_by_peer, f"the detach after the refusal of {self.link.name}")
        self.check()

    def check(self):
        """Raise `Refused` if the broker has detached the link."""
        from harness.client import Refused

        if self.closed_by_peer:
            condition = self.link.remote_condition
            self.link.close()
            self.client.pump()
            raise Refused(condition, f"link {self.link.name} detached")

    def refusal(self):
        """Wait for the broker to detach the link, and return why."""
        from harness.client import Refused

        self.client.wait(lambda: self.closed_by_peer, f"the detach of {self.link.name}")
        condition = self.link.remote_condition
        self.link.close()
        self.client.pump()
        return Refused(condition, f"link {self.link.name} detached")

    def close(self):
        """Detach with closed=true; on a durable subscription that ends it."""
        self.link.close()
        self.client.wait(lambda: self.closed_by_peer, f"closing {self.link.name}")
        self.link.free()

    def detach(self):
        """Detach with closed=false; a durable subscription stays. Proton does not show a peer's detach, so a round
        trip tells that it was handled."""
        self.link.detach()
        self.client.round_trip()
        self.link.free()


class Sender(_Link):
    """Sends, and tells what became of each message."""

    def attach(self):
        """Open the link; raises `Refused`."""
        self._opened(lambda: self.link.remote_target.type != 0)
        return self

    def send(self, body=None, check=True, **fields):
        """Send one message and wait for its outcome; raises `Refused` unless it was accepted."""
        delivery = self.start(body, **fields)
        if self.link.snd_settle_mode == self.link.SND_SETTLED:
            self.client.pump()
            return None
        self.client.wait(lambda: delivery.updated or delivery.settled or self.closed_by_peer, "an outcome")
        self.check()
        delivery.settle()
        if check and delivery.remote_state != delivery.ACCEPTED:
            raise self.failure(delivery)
        return delivery

    def send_all(self, bodies, timeout=60.0, **fields):
        """Send many in one go and wait until all are accepted."""
        open_deliveries = []
        settled = self.link.snd_settle_mode == self.link.SND_SETTLED
        for body in bodies:
            delivery = self.start(body, timeout, **fields)
            if not settled:
                open_deliveries.append(delivery)
            if len(open_deliveries) >= 500:
                self._accepted(open_deliveries, timeout)
        self._accepted(open_deliveries, timeout)
        self.client.pump()

    def _accepted(self, open_deliveries, timeout):
        for delivery in open_deliveries:
            self.client.wait(lambda d=delivery: d.updated or self.closed_by_peer, "an outcome", timeout)
            self.check()
            delivery.settle()
            if delivery.remote_state != delivery.ACCEPTED:
                raise self.failure(delivery)
        open_deliveries.clear()

    def start(self, body=None, timeout=10.0, raw=None, **fields):
        """Hand one message to the link as soon as there is credit, without waiting for its outcome."""
        self.client.wait(lambda: self.link.credit > 0 or self.closed_by_peer, "credit to send", timeout)
        self.check()
        delivery = self.link.delivery(self.link.delivery_tag())
        self.link.send(encode(body, **fields) if raw is None else raw)
        self.link.advance()
        if self.link.snd_settle_mode == self.link.SND_SETTLED:
            delivery.settle()
        return delivery

    def outcome(self, body=None, **fields):
        """Send one message and return the delivery with whatever outcome it got."""
        return self.send(body, check=False, **fields)

    def failure(self, delivery):
        """The refusal in an outcome."""
        from harness.client import Refused

        return Refused(delivery.remote.condition, f"outcome {delivery.remote_state}")


class Receiver(_Link):
    """Receives, message by message, with exactly the credit that the test gives."""

    def attach(self, credit=0):
        """Open the link; raises `Refused`."""
        self._opened(lambda: self.link.remote_source.type != 0)
        if credit:
            self.credit(credit)
        return self

    @property
    def address(self):
        """The address the broker gave or echoed."""
        return self.link.remote_source.address

    def credit(self, count):
        """Allow so many more deliveries."""
        self.link.flow(count)
        self.client.pump()

    def receive(self, timeout=10.0):
        """The next message; gives credit for it if none is left."""
        if not self.link.credit and not self._complete():
            self.link.flow(1)
        self.client.wait(lambda: self._complete() or self.closed_by_peer, f"a message on {self.link.name}", timeout)
        if not self._complete():
            self.check()
        return self._take()

    def take(self, count, timeout=10.0):
        """So many messages, unsettled."""
        missing = count - self.link.credit - self.link.queued
        if missing > 0:
            self.link.flow(missing)
        return [self.receive(timeout) for _ in range(count)]

    def accept(self, count, timeout=10.0):
        """Take so many messages and accept each; their bodies."""
        bodies = []
        for message in self.take(count, timeout):
            message.accept()
            bodies.append(message.body)
        return bodies

    def drain(self, credit=1000):
        """Everything that the broker has for this link now: flow with drain, until the credit is used up."""
        self.link.drain(credit)
        messages = []
        self.client.wait(lambda: self._collect(messages) and not self.link.draining(), "the end of a drain")
        self._collect(messages)
        self.link.drain_mode = False
        return messages

    def _collect(self, messages):
        while self._complete():
            messages.append(self._take())
        return True

    def nothing(self, within=QUIET_S):
        """Assert that nothing arrives for a moment, with the credit that is out."""
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            assert not self._complete(), f"unexpected {self._take()!r} on {self.link.name}"
            self.client.pump(left)
        assert not self._complete(), f"unexpected {self._take()!r} on {self.link.name}"

    def _complete(self):
        delivery = self.link.current
        return delivery is not None and delivery.readable and not delivery.partial

    def _take(self):
        delivery = self.link.current
        raw = self.link.recv(delivery.pending) or b""
        self.link.advance()
        return Message(self.client, delivery, raw)
