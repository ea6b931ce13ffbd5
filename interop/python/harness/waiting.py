"""Waiting for what happens on its own time, without fixed sleeps."""

import time

PATIENCE_S = 15.0


def eventually(look, expected=True, within=PATIENCE_S):
    """Call `look` until it returns `expected`; fail with what it returned last. Returns that value."""
    deadline = time.monotonic() + within
    pause = 0.005
    while True:
        seen = look()
        if seen == expected:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"expected {expected!r} within {within} s, last saw {seen!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
