"""Messages as the tests write and read them."""

from proton import Described, Message as Wire, symbol, ulong

__all__ = ["Described", "Message", "Wire", "symbol", "ulong", "encode"]


def encode(body=None, properties=None, annotations=None, **fields):
    """An encoded message. `fields` are the names of proton's message: id, durable, priority, ttl, subject …"""
    message = Wire(body=body, **fields)
    if properties:
        message.properties = properties
    if annotations:
        message.annotations = {symbol(key): value for key, value in annotations.items()}
    return message.encode()


class Message:
    """One delivery to a receiver, with the means to settle it."""

    def __init__(self, client, delivery, raw):
        self.client = client
        self.delivery = delivery
        self.raw = raw
        self.wire = Wire()
        self.wire.decode(raw)

    @property
    def body(self):
        """The decoded body."""
        return self.wire.body

    @property
    def properties(self):
        """The application properties."""
        return self.wire.properties or {}

    @property
    def annotations(self):
        """The message annotations, with plain strings as keys."""
        return {str(key): value for key, value in (self.wire.annotations or {}).items()}

    @property
    def delivery_count(self):
        """Earlier failed attempts, as the header says."""
        return self.wire.delivery_count

    @property
    def redelivered(self):
        """True if it may have been seen before."""
        return self.delivery_count > 0

    def accept(self):
        """Finished."""
        self._settle(self.delivery.ACCEPTED)

    def release(self):
        """Back, not counted as an attempt."""
        self._settle(self.delivery.RELEASED)

    def reject(self, condition="app:bad", description="the application refuses it"):
        """To the dead letters."""
        from proton import Condition

        self.delivery.local.condition = Condition(condition, description)
        self._settle(self.delivery.REJECTED)

    def modify(self, failed=True, undeliverable=False, annotations=None):
        """Back, with what the receiver has to say about it."""
        self.delivery.local.failed = failed
        self.delivery.local.undeliverable = undeliverable
        if annotations:
            self.delivery.local.annotations = {symbol(key): value for key, value in annotations.items()}
        self._settle(self.delivery.MODIFIED)

    def _settle(self, state):
        self.delivery.update(state)
        self.delivery.settle()
        self.client.pump()

    def __repr__(self):
        return f"Message({self.body!r}, delivery_count={self.delivery_count})"
