"""A real precisd exports its spans to a collector, which works, is down, is slow or is broken."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
TOKENS = list(range(64 * 1000, 64 * 1000 + 300))
PART, WHOLE = 512, 4096  # spans of one POST, and the most that wait


class Collector:
    """An HTTP server that keeps what is posted to it, in the JSON form of OTLP.

    Args:
        answer: called for each POST with its handler; without it, the server answers 200.
    """

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None] | None = None) -> None:
        self.bodies: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/json"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if answer is not None:
                    return answer(self)
                outer.bodies.append(body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def spans(self) -> list[dict[str, Any]]:
        """All spans; the attributes of each are a dictionary."""
        found = []
        for body in self.bodies:
            for resource in json.loads(body)["resourceSpans"]:
                assert values(resource["resource"]["attributes"])["service.name"] == "precisd"
                for scope in resource["scopeSpans"]:
                    found += scope["spans"]
        for span in found:
            span["attributes"] = values(span.get("attributes", []))
        return found

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in attributes:
        ((kind, value),) = pair["value"].items()
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


@contextlib.contextmanager
def running(folder: Path, endpoint: str, settings: str = "") -> Iterator[Precisd]:
    config = folder / "precisd.toml"
    config.write_text(f'otlp_endpoint = "{endpoint}"\n{settings}\n')
    flags = ("--config", str(config), "--memory", "256MiB", "--device", "cpu")
    with Precisd(find_precisd(), folder / "data", *flags) as service:
        yield service


def dropped(cache: precis.Cache, least: int) -> None:
    """Waits until `least` or more spans were counted as dropped."""
    end = time.monotonic() + 60
    while cache.stats()["precis_dropped_spans_total"] < least:
        assert time.monotonic() < end, cache.stats()["precis_dropped_spans_total"]
        time.sleep(0.05)


def look_up_often(cache: precis.Cache, model: precis.Model, times: int) -> None:
    for _ in range(times):
        assert cache.lookup(model, TOKENS, traceparent=SAMPLED)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.stop()


def test_the_spans_of_a_client_s_trace(tmp_path: Path, collector: Collector) -> None:
    began = time.time_ns()
    with running(tmp_path, collector.url) as service, precis.connect(service.address) as cache:
        model = cache.register_model(toy_spec(name="traced model"))
        segment = put_all(
            cache, model, TOKENS, random_layers(model.spec, 300), keep=0.5, traceparent=SAMPLED
        )
        match = cache.lookup(model, TOKENS, traceparent=SAMPLED)
        cache.get(match, traceparent=SAMPLED).wait()
        with precis.Calls(cache) as calls:
            tickets = {calls.lookup(model, TOKENS[:10], traceparent=SAMPLED)}
            tickets |= set(calls.lookup_many(model, [TOKENS[:20]], traceparent=SAMPLED))
            tickets.add(calls.get(match, traceparent=SAMPLED))
            while tickets:
                tickets -= {ticket for ticket, _ in calls.poll()}
                time.sleep(0.001)
        missing = cache.lookup(model, TOKENS)
        cache.remove(segment)
        with pytest.raises(precis.NotFound):
            cache.get(missing, traceparent=SAMPLED).wait()
        with cache.begin_put(model, TOKENS[:20], traceparent=SAMPLED) as aborted:
            aborted.abort()
        # These are not traced: the flag says no, or the value is empty or of another form.
        cache.lookup(model, TOKENS, traceparent=SAMPLED[:-1] + "0")
        for bad in ("", "x", "é" * 55, SAMPLED.upper(), "ff" + SAMPLED[2:]):
            assert cache.lookup(model, TOKENS, traceparent=bad) is not None
        assert cache.stats()["precis_bad_traceparents_total"] == 4
        service.stop()  # sends what it has
    spans, ended = collector.spans(), time.time_ns()
    whole = [span for span in spans if span["name"].startswith("precis.")]
    assert [span["name"].removeprefix("precis.") for span in whole] == [
        *("put", "lookup", "get"), *sorted_calls(whole[3:6]), *("get", "put"),
    ]  # fmt: skip
    assert len({span["spanId"] for span in spans}) == len(spans)
    for span in spans:
        assert span["traceId"] == TRACE
        assert began <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= ended
    children = {span["spanId"]: check_children(span, spans) for span in whole}
    put, lookup, get, *_, lost, given_up = whole
    of_put = [stage for stage in children[put["spanId"]] if stage != "stage"]
    assert of_put == ["compress", "write", "commit"]  # rows that are read in place are not staged
    assert children[get["spanId"]] == ["wait", "first_layer", "layers"]
    assert not children[lookup["spanId"]] and not children[lost["spanId"]]
    labels = {"precis.tenant": "default", "precis.model": "traced model"}
    labels |= {"precis.transport": get["attributes"]["precis.transport"]}
    done = labels | {"precis.status": "ok", "precis.tokens": 300}
    assert put["attributes"] == done | {"precis.bytes": segment.bytes}
    assert lookup["attributes"] == done | {
        "precis.tier": "memory",
        "precis.matched_tokens": 300,
        "precis.bytes": match.bytes,
    }
    assert get["attributes"] == done | {
        "precis.tier": "memory",
        "precis.bytes": get["attributes"]["precis.bytes"],
    }
    assert get["attributes"]["precis.bytes"] > 0
    assert lost["status"] == {"code": 2, "message": "not_found"}
    assert given_up["status"] == {"code": 2, "message": "canceled"}
    assert not {"status"} & {name for span in (put, lookup, get) for name in span}
    sent = b"".join(collector.bodies).decode()
    for secret in (segment.id, model.fingerprint, str(tmp_path)):
        assert secret not in sent


def sorted_calls(spans: list[dict[str, Any]]) -> list[str]:
    """The names of the three calls that run at a time, in the order of their ends."""
    names = [span["name"].removeprefix("precis.") for span in spans]
    assert sorted(names) == ["get", "lookup", "lookup"]
    return names


def check_children(whole: dict[str, Any], spans: list[dict[str, Any]]) -> list[str]:
    """Checks a request's span and its stages; returns the stages' names."""
    assert whole["kind"] == 2 and whole["parentSpanId"] == PARENT
    stages = [span for span in spans if span["parentSpanId"] == whole["spanId"]]
    for stage in stages:
        assert stage["kind"] == 1 and not stage["attributes"]
        assert int(whole["startTimeUnixNano"]) <= int(stage["startTimeUnixNano"])
        assert int(stage["endTimeUnixNano"]) <= int(whole["endTimeUnixNano"])
    return [stage["name"] for stage in stages]


def test_a_share_of_the_requests_without_a_trace_begins_one(
    tmp_path: Path, collector: Collector
) -> None:
    with (
        running(tmp_path, collector.url, "trace_sample = 1.0") as service,
        precis.connect(service.address) as cache,
    ):
        model = cache.register_model(toy_spec(name="sampled"))
        for given in (None, "bad", SAMPLED[:-1] + "0"):
            cache.lookup(model, TOKENS, traceparent=given)
        service.stop()
    spans = collector.spans()
    assert [span["name"] for span in spans] == ["precis.lookup"] * 2
    assert len({span["traceId"] for span in spans} | {TRACE}) == 3
    assert not any("parentSpanId" in span for span in spans)


def test_a_full_batch_is_sent_at_once_and_spans_past_the_rate_are_dropped(
    tmp_path: Path, collector: Collector
) -> None:
    with (
        running(tmp_path, collector.url, f"trace_spans_per_s = {PART}") as service,
        precis.connect(service.address) as cache,
    ):
        model = cache.register_model(toy_spec(name="many"))
        put_all(cache, model, TOKENS, random_layers(model.spec, 300), keep=0.5)
        while cache.stats()["precis_dropped_spans_total"] == 0:
            look_up_often(cache, model, PART)
        while cache.stats()["precis_spans_total"] < PART:
            time.sleep(0.01)
        assert len(collector.spans()) >= PART


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Answers nothing until the client closes."""
    handler.rfile.read(1)


def talk_without_end(handler: BaseHTTPRequestHandler) -> None:
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"\x00garbage" * 1000)


def refuse(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(429)


@pytest.mark.parametrize("answer", [None, talk_without_end, refuse])
def test_a_collector_that_is_down_or_broken_costs_spans_and_nothing_else(
    tmp_path: Path, answer: Callable[[BaseHTTPRequestHandler], None] | None
) -> None:
    broken = Collector(answer)
    if answer is None:
        broken.stop()
    with (
        running(tmp_path, broken.url, "trace_spans_per_s = 1000000") as service,
        precis.connect(service.address) as cache,
    ):
        model = cache.register_model(toy_spec(name="toy"))
        put_all(cache, model, TOKENS, random_layers(model.spec, 300), traceparent=SAMPLED)
        look_up_often(cache, model, PART)
        dropped(cache, PART - 4)
        cache.get(cache.lookup(model, TOKENS, traceparent=SAMPLED), traceparent=SAMPLED).wait()
        assert cache.stats()["precis_spans_total"] == 0
        service.stop()
        assert service.log().count("spans can't be sent") == 1
    if answer is not None:
        broken.stop()


def test_a_collector_that_does_not_answer_holds_up_nothing(tmp_path: Path) -> None:
    silent = Collector(hang)
    with (
        running(tmp_path, silent.url, "trace_spans_per_s = 1000000") as service,
        precis.connect(service.address) as cache,
    ):
        model = cache.register_model(toy_spec(name="toy"))
        put_all(cache, model, TOKENS, random_layers(model.spec, 300))
        look_up_often(cache, model, PART + WHOLE + 10)  # one batch on its way, and a full queue
        assert cache.stats()["precis_dropped_spans_total"] >= 10
        cache.get(cache.lookup(model, TOKENS, traceparent=SAMPLED), traceparent=SAMPLED).wait()
        service.stop()
    silent.stop()


def test_wrong_settings_are_refused_with_their_place(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    good = f"http://127.0.0.1:{port}/v1/traces"
    for endpoint, settings, said in (
        ("https://a:1/b", "", "otlp_endpoint: 'https://a:1/b' has https"),
        ("127.0.0.1:4318", "", "must be http://HOST:PORT/PATH"),
        (good, "trace_sample = 1.5", "trace_sample is 1.500000, must be in [0, 1]"),
        (good, "trace_spans_per_s = 0", "trace_spans_per_s is 0, must be at least 1"),
    ):
        with (
            pytest.raises(RuntimeError, match=r"precisd\.toml:") as refused,
            running(tmp_path, endpoint, settings),
        ):
            pass
        assert said in str(refused.value)
