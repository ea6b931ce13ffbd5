"""One broker process: its own folder, free ports, started, killed, restarted on the same data, stopped."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.error

from harness.client import Client
from harness.rest import Rest
from harness.waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = os.environ.get("POSTROAD_BIN") or str(ROOT / "target" / "debug" / "postroad")
START_PATIENCE_S = 30.0
# Small files: a test writes little, and hundreds of brokers come and go.
SEGMENT_SIZE = "8MiB"


class Broker:
    """Started with `start`, used through `api` (REST), `connect` (AMQP) and the short names below."""

    def __init__(self, folder, config="", auto_create=False, broker=""):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.log = self.folder / "broker.log"
        self.config = self.folder / "broker.toml"
        self.amqp_port, self.http_port = free_ports(2)
        self.api = Rest(self.http_port)
        self.process = None
        self.clients = []
        self.looks = 0
        self.configure(config, auto_create, broker)

    def configure(self, config="", auto_create=False, broker=""):
        """Write the configuration file; `broker` are further lines of its first table."""
        creating = "[auto_create]\nenabled = true\n" if auto_create else ""
        self.config.write_text(
            f'[broker]\nname = "A"\n{broker}\n{creating}[storage]\nsegment_size = "{SEGMENT_SIZE}"\n'
            f'\n[[listener]]\nprotocol = "amqp"\naddress = "127.0.0.1:{self.amqp_port}"\n'
            f'\n[[listener]]\nprotocol = "http"\naddress = "127.0.0.1:{self.http_port}"\n\n{config}\n'
        )

    # The process.

    def start(self):
        """Start it and wait until it says that it is ready."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--config", str(self.config), "--data-dir", str(self.data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )
        deadline = time.monotonic() + START_PATIENCE_S
        while not self.ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the broker ended with {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the broker was not ready within {START_PATIENCE_S} s:\n{self.tail()}")
            time.sleep(0.01)
        return self

    def ready(self):
        """True if the broker takes clients."""
        try:
            return self.api.raw("GET", "/readyz").status == 200
        except (urllib.error.URLError, ConnectionError, socket.timeout):
            return False

    def kill(self):
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """End it in order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=START_PATIENCE_S)

    def restart(self, how="kill"):
        """Kill or stop it, and start it again on the same data."""
        self.drop_clients()
        self.kill() if how == "kill" else self.stop()
        return self.start()

    def end(self):
        """Whatever state it is in, leave nothing behind but its log."""
        self.drop_clients()
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def tail(self, lines=60):
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # Clients.

    def connect(self, container=None, **options):
        """An AMQP connection; it is dropped when the test ends."""
        client = Client(self.amqp_port, container, **options)
        self.clients.append(client)
        return client

    def drop_clients(self):
        """Cut every connection made by `connect`."""
        for client in self.clients:
            client.drop()
        self.clients.clear()

    def cli(self, *arguments):
        """Run the command line against this broker."""
        environment = {**os.environ, "POSTROAD_URL": f"http://127.0.0.1:{self.http_port}"}
        return subprocess.run(
            [BINARY, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment
        )

    # Definitions and their state, by REST.

    def channels(self, *names, **settings):
        """Define channels, all with the same settings."""
        for name in names:
            self.api.must("PUT", "channels", name, body=settings)

    def queues(self, *names, **settings):
        """Define queues, all with the same settings."""
        for name in names:
            self.api.must("PUT", "queues", name, body=settings)

    def join(self, source, destination, name=None, **settings):
        """Define a join; its name."""
        body = {"source": source, "destination": destination, **settings}
        if name is None:
            return self.api.must("POST", "joins", body=body)["name"]
        self.api.must("PUT", "joins", name, body=body)
        return name

    def chain(self, *stores, **settings):
        """Join stores in sequence; the names of the joins."""
        return [self.join(a, b, **settings) for a, b in zip(stores, stores[1:])]

    def object(self, channel, name, **settings):
        """Define a named object."""
        self.api.must("PUT", "channels", channel, "named-objects", name, body=settings)

    def show(self, kind, name):
        """The settings and the state of a channel or queue."""
        return _flat(self.api.must("GET", kind, name))

    def show_object(self, channel, name):
        """The settings and the state of a named object."""
        return _flat(self.api.must("GET", "channels", channel, "named-objects", name))

    def show_join(self, name):
        """A join's settings and state."""
        return self.api.must("GET", "joins", name)

    def depth(self, name, kind="channels"):
        """Events stored in a channel, or messages in a queue."""
        return self.api.must("GET", kind, name)["depth"]

    def depths(self, *names):
        """Events stored in each; a name that starts with `queue:` is a queue."""
        return [self.depth(n[6:], "queues") if n.startswith("queue:") else self.depth(n) for n in names]

    def contents(self, channel):
        """What a channel holds, oldest first, read through a named object made for the look and removed after it."""
        self.looks += 1
        name = f"look-{self.looks}"
        self.object(channel, name, start_event_id=0, persistent=False)
        with Client(self.amqp_port) as client:
            messages = client.receiver(f"{channel}::{name}").drain(5000)
            client.close()
        self.api.must("DELETE", "channels", channel, "named-objects", name, query="?force=true")
        return messages

    def settled(self):
        """Wait until no running join has anything left to do."""
        def busy():
            joins = self.api.must("GET", "joins")["items"]
            return [j["name"] for j in joins if j["state"] in ("running", "retrying") and j["lag_events"] > 0]

        # A join may find new work while another one ends: two looks in a row without any.
        eventually(lambda: busy() + busy(), [])

    def stored(self, *names):
        """The depths once all joins are at rest."""
        self.settled()
        return self.depths(*names)

    def metrics(self):
        """The metrics page as a map from the full series name to its value."""
        page = self.api.raw("GET", "/metrics").body
        series = {}
        for line in page.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                series[name] = float(value)
        return series


def _flat(resource):
    """A resource with its settings beside its state; consumers as their number."""
    settings = resource.pop("settings", {})
    flat = {**settings, **resource}
    if isinstance(flat.get("consumers"), list):
        flat["consumers"] = len(flat["consumers"])
    return flat


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
