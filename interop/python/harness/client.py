"""An AMQP 1.0 client for tests: Qpid Proton's engine over a socket of our own.

Proton's engine is used without its reactor, so that a test decides when bytes flow: credit, drain, settlement, broken
connections and refused attaches are all seen as they are.
"""

import socket
import time

from proton import Connection, Endpoint, Terminus, Transport, symbol

from harness.links import Receiver, Sender, filters

PATIENCE_S = 10.0


class Refused(Exception):
    """The broker refused a connection, a link or a message."""

    def __init__(self, condition, what):
        self.condition = condition.name if condition else None
        self.description = (condition.description or "") if condition else ""
        self.info = {str(k): v for k, v in ((condition.info or {}) if condition else {}).items()}
        super().__init__(f"{what}: {self.condition}: {self.description} {self.info}")

    @property
    def reason(self):
        """The stable code of the refusal."""
        reason = self.info.get("reason")
        return None if reason is None else str(reason)


class Client:
    """One connection with one session."""

    def __init__(self, port, container=None, user=None, password=None, desired=(), max_frame=None, idle_s=None,
                 channel_max=None, properties=None, open_now=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.dropped = False
        self.connection = Connection()
        self.connection.container = container if container is not None else f"test-{id(self):x}"
        self.connection.hostname = "127.0.0.1"
        if desired:
            self.connection.desired_capabilities = [symbol(name) for name in desired]
        if properties:
            self.connection.properties = properties
        self.transport = Transport()
        if max_frame:
            self.transport.max_frame_size = max_frame
        if channel_max is not None:
            self.transport.channel_max = channel_max
        if idle_s:
            self.transport.idle_timeout = idle_s
        self._authenticate(user, password)
        self.transport.bind(self.connection)
        self.links = 0
        self.session = None
        if open_now:
            self.open()

    def _authenticate(self, user, password):
        sasl = self.transport.sasl()
        if user is None:
            sasl.allowed_mechs("ANONYMOUS")
        else:
            sasl.allow_insecure_mechs = True
            sasl.allowed_mechs("PLAIN")
            self.connection.user = user
            self.connection.password = password

    def open(self):
        """Open the connection and its session; raises `Refused` if the broker closes it."""
        self.connection.open()
        self.wait(lambda: not self.connection.state & Endpoint.REMOTE_UNINIT, "opening the connection")
        # A refusal is an open followed by a close (AM-2): give the close its chance.
        if (self.connection.remote_properties or {}).get(symbol("amqp:connection-establishment-failed")):
            self.wait(lambda: self.connection.state & Endpoint.REMOTE_CLOSED, "closing the refused connection")
        self.check()
        self.session = self.connection.session()
        self.session.open()
        self.wait(lambda: not self.session.state & Endpoint.REMOTE_UNINIT, "opening the session")
        return self

    # Moving bytes.

    def pump(self, timeout=0.0):
        """Send what is ready, take what has come; waits for bytes at most `timeout` seconds. True if any came."""
        if self.dropped:
            return False
        self.transport.tick(time.monotonic())
        self._flush()
        if not self._receive(timeout):
            return False
        while self._receive(0.0):
            pass
        self._flush()
        return True

    def _flush(self):
        self.socket.settimeout(PATIENCE_S)
        while (pending := self.transport.pending()) > 0:
            self.socket.sendall(self.transport.peek(pending))
            self.transport.pop(pending)

    def _receive(self, timeout):
        capacity = self.transport.capacity()
        if capacity < 0:
            raise ConnectionError(f"the connection failed: {self.transport.condition}")
        if capacity == 0:
            return False
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(min(capacity, 65536))
        except (BlockingIOError, socket.timeout):
            return False
        if not data:
            self.transport.close_tail()
            raise ConnectionError("the broker closed the socket")
        self.transport.push(data)
        return True

    def wait(self, condition, what, timeout=PATIENCE_S):
        """Pump until the condition holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{what}: not within {timeout} s")
            try:
                self.pump(min(left, 0.05))
            except ConnectionError:
                if condition():
                    return
                self.check()
                raise

    def check(self):
        """Raise `Refused` if the broker has closed the connection."""
        if self.connection.state & Endpoint.REMOTE_CLOSED:
            raise Refused(self.connection.remote_condition, "connection closed")

    def round_trip(self):
        """Wait until the broker has handled everything sent before on this connection: end and begin a session."""
        session = self.connection.session()
        session.open()
        self.wait(lambda: not session.state & Endpoint.REMOTE_UNINIT, "a round trip")
        session.close()
        self.wait(lambda: session.state & Endpoint.REMOTE_CLOSED, "a round trip")

    # Links.

    def link_name(self):
        """A name that no other link of this connection has."""
        self.links += 1
        return f"link-{self.links}"

    def sender(self, address, capability=None, name=None, settled=False, properties=None):
        """A sender to an address; with `address=None` an anonymous one."""
        link = self.session.sender(name or self.link_name())
        link.target.type = Terminus.TARGET
        if address is not None:
            link.target.address = address
        if capability:
            link.target.capabilities.put_object(_symbols(capability))
        link.source.type = Terminus.SOURCE
        link.source.address = "here"
        if settled:
            link.snd_settle_mode = link.SND_SETTLED
        if properties:
            link.properties = properties
        return Sender(self, link).attach()

    def receiver(self, address, credit=0, name=None, capability=None, durable=False, browse=False, selector=None,
                 no_local=False, filter_set=None, expiry=None, timeout_s=None, dynamic=False, settled=False,
                 properties=None, second=False, default_outcome=None, mode=None):
        """A receiver with the link shape of an ordinary client, or of Qpid JMS where the options say so."""
        link = self.session.receiver(name or self.link_name())
        source = link.source
        source.type = Terminus.SOURCE
        if dynamic:
            source.dynamic = True
        else:
            source.address = address
        if capability:
            source.capabilities.put_object(_symbols(capability))
        if durable:
            source.durability = Terminus.DELIVERIES
            source.expiry_policy = Terminus.EXPIRE_NEVER
        if expiry is not None:
            source.expiry_policy = expiry
        if timeout_s is not None:
            source.timeout = timeout_s
        if browse:
            source.distribution_mode = Terminus.DIST_MODE_COPY
        if mode is not None:
            source.distribution_mode = mode
        chosen = filters(selector, no_local, filter_set)
        if chosen:
            source.filter.put_object(chosen)
        if settled:
            link.snd_settle_mode = link.SND_SETTLED
        if second:
            link.rcv_settle_mode = link.RCV_SECOND
        if properties:
            link.properties = properties
        link.target.type = Terminus.TARGET
        link.target.address = "here"
        return Receiver(self, link).attach(credit)

    def lookup(self, name):
        """A receiver with a null source: the question whether a subscription of that name exists (AM-7)."""
        link = self.session.receiver(name)
        link.target.type = Terminus.TARGET
        link.target.address = "here"
        receiver = Receiver(self, link)
        link.open()
        self.wait(lambda: not link.state & Endpoint.REMOTE_UNINIT, "looking up a subscription")
        return receiver

    # Endings.

    def close(self):
        """Close in order."""
        if not self.dropped:
            self.connection.close()
            self.wait(lambda: self.connection.state & Endpoint.REMOTE_CLOSED, "closing the connection")
            self.drop()

    def drop(self):
        """Cut the connection as a crashed client would."""
        if not self.dropped:
            self.dropped = True
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()


def _symbols(names):
    from proton import Array, Data, UNDESCRIBED

    if isinstance(names, str):
        return symbol(names)
    return Array(UNDESCRIBED, Data.SYMBOL, *[symbol(name) for name in names])
