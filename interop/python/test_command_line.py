"""The command line as a person uses it: commands for operators and clients, exit codes, errors (interface)."""

import json
import os
import subprocess

import pytest

from harness import eventually
from harness.broker import BINARY


def run(broker, *arguments, text=None):
    """A client's command against the broker's AMQP port."""
    environment = {**os.environ, "POSTROAD_URL": f"amqp://127.0.0.1:{broker.amqp_port}"}
    return subprocess.run([BINARY, *arguments], input=text or "", capture_output=True, text=True, timeout=60,
                          env=environment)


def must(answer):
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_send_and_receive(broker):
    broker.queues("q")
    must(run(broker, "send", "q", "hello", "--property", "region=EU"))
    assert broker.depth("q", "queues") == 1
    lines = must(run(broker, "receive", "q", "--count", "1", "--json")).splitlines()
    assert len(lines) == 1
    message = json.loads(lines[0])
    assert message["body"] == "hello"
    assert "EU" in lines[0]
    eventually(lambda: broker.depth("q", "queues"), 0)


def test_a_proton_client_and_the_command_line_understand_each_other(broker):
    broker.queues("q")
    broker.connect().sender("q").send("from proton", properties={"n": 1})
    assert "from proton" in must(run(broker, "receive", "q", "--count", "1"))
    must(run(broker, "send", "q", "-", "--lines", text="one\ntwo\n"))
    assert broker.connect().receiver("q").accept(2) == ["one", "two"]


def test_browse_leaves_everything_there(broker):
    broker.queues("q")
    must(run(broker, "send", "q", "x", "--count", "3"))
    shown = must(run(broker, "browse", "q", "--json"))
    assert len(shown.splitlines()) == 3
    assert broker.depth("q", "queues") == 3


def test_publish_and_a_durable_subscription(broker):
    broker.channels("c", retention="interest")
    options = ("--durable", "mine", "--client-id", "desk")
    must(run(broker, "subscribe", "c", *options, "--timeout", "200ms"))
    must(run(broker, "publish", "c", "while away"))
    assert "while away" in must(run(broker, "subscribe", "c", *options, "--count", "1"))
    must(run(broker, "subscribe", "c", *options, "--unsubscribe"))
    must(run(broker, "publish", "c", "nobody"))
    assert broker.depth("c") == 0


def test_a_bad_selector_and_an_unknown_address_fail_with_a_sentence(broker):
    broker.queues("q")
    for arguments in (("receive", "q", "--count", "1", "--selector", "a = = 1"), ("send", "none", "x")):
        answer = run(broker, *arguments)
        assert answer.returncode == 1
        assert answer.stdout == "" and answer.stderr.strip()


def test_exit_codes(broker):
    assert broker.cli("queue", "show", "none").returncode == 1
    assert broker.cli("queue", "no-such-verb").returncode == 2
    broker.kill()
    assert broker.cli("status").returncode == 3
    assert run(broker, "send", "q", "x").returncode == 3


def test_definitions_by_command_line(broker):
    must(broker.cli("channel", "create", "c", "--retention", "interest"))
    must(broker.cli("queue", "create", "q"))
    must(broker.cli("named-object", "create", "c", "d", "--start", "all"))
    must(broker.cli("join", "create", "c", "q"))
    for noun in (("channel", "list"), ("queue", "list"), ("join", "list"), ("named-object", "list")):
        found = json.loads(must(broker.cli(*noun, "--json")))
        assert found, noun
        assert must(broker.cli(*noun)).strip()
    status = json.loads(must(broker.cli("status", "--json")))
    assert status["name"] == "A"
    broker.connect().sender("c", capability="topic").send("one")
    assert "one" in must(broker.cli("channel", "browse", "c"))
    must(broker.cli("channel", "purge", "c", "--all"))
    must(broker.cli("join", "delete", "c->q"))
    must(broker.cli("named-object", "delete", "c", "d"))
    must(broker.cli("channel", "delete", "c"))
    assert broker.api.must("GET", "channels")["items"] == []


def test_the_dead_letters_are_listed_with_their_reason(broker):
    broker.queues("q")
    client = broker.connect()
    client.sender("q").send("bad")
    client.receiver("q").receive().reject("app:broken", "cannot be read")
    eventually(lambda: broker.depth("DLQ", "queues"), 1)
    assert "REJECTED" in must(broker.cli("dlq", "list"))


def test_check_finds_errors_with_file_line_and_advice(tmp_path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[broker]\nname = "A"\n[[channel]]\nname = "c"\n')
    bad.write_text('[broker]\nname = "A"\n[[queue]]\nname = "q"\n[[join]]\nsource = "q"\ndestination = "q"\n[[chanel]]\n')
    assert subprocess.run([BINARY, "check", str(good)], capture_output=True, timeout=30).returncode == 0
    answer = subprocess.run([BINARY, "check", str(bad)], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 1
    said = answer.stdout + answer.stderr
    assert "bad.toml:6" in said and "JOIN_SOURCE_IS_QUEUE" in said and "channel" in said


@pytest.mark.parametrize("arguments", [(), ("serve",), ("join", "create"), ("send",)])
def test_help_has_examples(arguments):
    answer = subprocess.run([BINARY, *arguments, "--help"], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 0
    assert "postroad" in answer.stdout
