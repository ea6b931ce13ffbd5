"""The broker's REST interface, as any program would use it."""

import json
import urllib.error
import urllib.request
from urllib.parse import quote


class Answer:
    """Status, headers and decoded body of one call."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def code(self):
        """The refusal's stable code, if this is a refusal."""
        return self.body.get("code") if isinstance(self.body, dict) else None

    @property
    def message(self):
        """The refusal's sentence."""
        return self.body.get("message", "") if isinstance(self.body, dict) else ""

    def __repr__(self):
        return f"HTTP {self.status} {self.body!r}"


class RestRefused(AssertionError):
    """A call that was expected to succeed and did not."""


class Rest:
    """Calls below `/api/v1`; paths are given as segments, which are percent-encoded here."""

    def __init__(self, port):
        self.root = f"http://127.0.0.1:{port}"

    def call(self, method, *segments, body=None, query=""):
        """One call; returns the answer whatever its status."""
        path = "/api/v1/" + "/".join(quote(str(segment), safe="") for segment in segments)
        return self.raw(method, path + query, body)

    def raw(self, method, path, body=None):
        """One call of any path."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Answer(response.status, response.headers, _decode(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, _decode(error.read()))

    def must(self, method, *segments, body=None, query=""):
        """One call that has to succeed; returns the decoded body."""
        answer = self.call(method, *segments, body=body, query=query)
        if answer.status >= 300:
            raise RestRefused(f"{method} {'/'.join(map(str, segments))}: {answer!r}")
        return answer.body


def _decode(raw):
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
