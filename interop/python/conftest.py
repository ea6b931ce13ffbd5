"""Fixtures: a broker of its own for each test."""

import pytest

from harness import Broker


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for broker in getattr(item, "brokers", []):
            report.sections.append(("broker's log", broker.tail()))


@pytest.fixture
def make_broker(request, tmp_path):
    """Make and start brokers with chosen configurations; all are ended after the test."""
    request.node.brokers = brokers = []

    def make(config="", **options):
        folder = tmp_path / f"broker-{len(brokers)}"
        folder.mkdir()
        broker = Broker(folder, config, **options)
        brokers.append(broker)
        return broker.start()

    yield make
    for broker in reversed(brokers):
        broker.end()
    for broker in brokers:
        assert "panicked at" not in broker.tail(10_000), f"the broker panicked:\n{broker.tail()}"


@pytest.fixture
def broker(make_broker):
    """A broker that makes nothing by itself."""
    return make_broker()


@pytest.fixture
def open_broker(make_broker):
    """A broker that makes queues and channels when they are first used."""
    return make_broker(auto_create=True)
