"""What the acceptance suite is made of: brokers of its own, a real AMQP client, the REST interface, proved ids."""

from harness.broker import Broker
from harness.client import Client, Refused
from harness.message import Described, Message, symbol, ulong
from harness.spec import proves
from harness.waiting import eventually

__all__ = ["Broker", "Client", "Described", "Message", "Refused", "eventually", "proves", "symbol", "ulong"]
