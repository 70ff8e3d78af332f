"""KV events of a real precisd: pages, streams, precisctl, ZeroMQ, and the router of the guide."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

GUIDE = Path(__file__).parents[2] / "docs/guides/events.md"
SPEC = {"num_layers": 1, "num_q_heads": 1, "num_kv_heads": 1, "head_dim": 8}
TENANTS = '[[tenant]]\nname = "default"\n[[tenant]]\nname = "red"\ntoken = "{token}"\n'


class Store:
    """A precisd with an admin port, and a client of it."""

    def __init__(self, folder: Path, settings: str = "", tenants: str = "") -> None:
        self.config = folder / "precisd.toml"
        self.config.write_text(f"{settings}\n{tenants}")
        flags = ("--config", str(self.config), "--admin", "127.0.0.1:0", "--memory", "256MiB")
        self.log = folder / "data.log"
        self.service = Precisd(find_precisd(), folder / "data", *flags)

    def said(self, what: str) -> str:
        return re.findall(rf"{what} address=(\S+)", self.log.read_text())[-1]

    @property
    def url(self) -> str:
        return f"http://{self.said('admin port')}"

    def connect(self, **options: str) -> precis.Cache:
        return precis.connect(self.service.address, **options)

    def page(self, **query: object) -> dict:
        path = f"{self.url}/api/v1/events?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(path, timeout=60) as answer:
            return json.loads(answer.read())

    def events(self, **query: object) -> list[dict]:
        """All events from a position on."""
        found: list[dict] = []
        page = self.page(**query)
        while page["events"]:
            found += page["events"]
            page = self.page(**(query | {"after": page["next"]}))
        return found

    def stream(self, query: str = "", **headers: str):
        headers = {"Accept": "text/event-stream"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        asked = urllib.request.Request(f"{self.url}/api/v1/events?{query}", headers=headers)
        return urllib.request.urlopen(asked, timeout=60)


def of_stream(stream) -> Iterator[dict]:
    for line in stream:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


@contextlib.contextmanager
def running(folder: Path, *args: str) -> Iterator[Store]:
    store = Store(folder, *args)
    with store.service:
        yield store
        store.service.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with running(tmp_path) as service:
        yield service


def put(cache: precis.Cache, tokens: list[int], name: str = "toy", **shape: int):
    model = cache.register_model(toy_spec(name, **(SPEC | {"block_tokens": 4} | shape)))
    layers = random_layers(model.spec, len(tokens))
    return model, put_all(cache, model, tokens, layers, keep=0.5)


def refusal(store: Store, query: str, **headers: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        store.stream(query, **headers)
    return error.value.code, json.loads(error.value.read())["message"]


# ---- pages of events ----------------------------------------------------------------------------


def test_put_trim_and_removal_are_told_in_order(store):
    with store.connect() as cache:
        model, segment = put(cache, list(range(100)))
        trimmed = cache.trim(segment, 0.25)
        cache.remove(segment)
    stored, cut, removed = store.events(after="oldest")
    assert [each["event"] for each in (stored, cut, removed)] == ["stored", "trimmed", "removed"]
    assert stored["segment"] == cut["segment"] == removed["segment"] == segment.id
    assert stored["model"] == model.fingerprint and stored["parent"] is None
    assert (stored["begin"], stored["end"], stored["block_tokens"]) == (0, 100, 4)
    assert len(stored["blocks"]) == 25 and stored["tier"] == "disk"
    assert stored["stored_bytes"] == cut["bytes_before"]
    assert cut["stored_bytes"] == removed["bytes_before"] < cut["bytes_before"]
    assert cut["keep"]["value"] == 0.25 and trimmed is not None
    assert removed["blocks"] == stored["blocks"] and removed["cause"] == "asked"


def test_a_put_that_fails_is_not_told(store):
    with store.connect() as cache:
        model, _ = put(cache, list(range(40)))
        before = store.page(after="newest")["next"]
        begun = cache.begin_put(model, list(range(1000, 1040)), recipe="global_kvdiff", keep=0.5)
        begun.abort()
        put(cache, list(range(40)))  # the same again
    assert store.events(after=before) == []


def test_a_tenant_sees_only_its_own_events(tmp_path):
    with running(tmp_path, "", TENANTS.format(token="one")) as store:
        with store.connect(tenant="red", token="one") as red:
            _, segment = put(red, list(range(40)))
        assert store.events() == store.events(after="oldest") == []
        assert [each["segment"] for each in store.events(tenant="red")] == [segment.id]


def test_a_reader_that_begins_gets_what_is_stored_page_by_page(store):
    with store.connect() as cache:
        ids = {put(cache, list(range(at, at + 20)))[1].id for at in range(0, 500, 100)}
        _, gone = put(cache, list(range(900, 920)))
        cache.remove(gone)
        first = store.page(limit=2)
        _, late = put(cache, list(range(700, 720)))
        rest = store.events(after=first["next"], limit=2)
    assert len(first["events"]) == 2
    listed = [each["segment"] for each in first["events"] + rest]
    assert set(listed) == ids | {late.id}
    assert rest[-1]["segment"] == late.id  # what happened since the reader began comes last


def test_a_restart_is_told_and_what_is_stored_follows(store):
    with store.connect() as cache:
        _, segment = put(cache, list(range(40)))
    position = store.page(after="newest")["next"]
    store.service.stop()
    store.service.start()
    lost, stored = store.events(after=position)
    assert lost["event"] == "lost" and lost["lost"] is None
    assert stored["event"] == "stored" and stored["segment"] == segment.id
    assert stored["position"].split(":")[0] != position.split(":")[0]


def test_a_position_that_is_none_is_refused(store):
    newest = store.page(after="newest")["next"]
    epoch = newest.split(":")[0]
    for wrong in ("x", "12", f"{epoch}:", f"{epoch}:5", f"{epoch}:0:zz"):
        code, message = refusal(store, f"after={wrong}")
        assert code == 400 and "position" in message, wrong
        with pytest.raises(urllib.error.HTTPError, match="400"):
            store.page(after=wrong)


# ---- streams ------------------------------------------------------------------------------------


def test_a_stream_tells_what_is_stored_and_then_what_happens(store):
    with store.connect() as cache:
        _, first = put(cache, list(range(40)))
        with store.stream() as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            events = of_stream(stream)
            assert next(events)["segment"] == first.id
            _, second = put(cache, list(range(100, 140)))
            stored = next(events)
            assert stored["segment"] == second.id
            cache.remove(second)
            assert next(events)["event"] == "removed"
        with store.stream(Last_Event_ID=stored["position"]) as stream:
            assert next(of_stream(stream))["event"] == "removed"


def test_a_slow_reader_is_told_what_it_has_lost_and_recovers(store):
    host, port = store.url.removeprefix("http://").split(":")
    with store.connect() as cache, socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.settimeout(60)
        link.connect((host, int(port)))
        link.sendall(
            b"GET /api/v1/events?after=oldest HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Accept: text/event-stream\r\n\r\n"
        )
        last = None
        for at in range(60):  # 15 MB of digests, of which 8 MiB are kept
            tokens = list(range(at * 4000, at * 4000 + 4000))
            _, segment = put(cache, tokens, "long", block_tokens=1)
            if at < 59:
                cache.remove(segment)
            last = segment.id
        events = of_stream(link.makefile("rb"))
        told = next(each for each in events if each["event"] == "lost")
        assert told["lost"] > 0
        assert next(events)["segment"] == last  # the only one that is stored
    assert (
        "precis_event_gaps_total 1"
        in urllib.request.urlopen(f"{store.url}/metrics").read().decode()
    )


def test_streams_are_bounded_and_leave_connections_to_others(store):
    def metric() -> float:
        text = urllib.request.urlopen(f"{store.url}/metrics", timeout=60).read().decode()
        return float(re.findall(r"^precis_event_streams (\S+)", text, re.MULTILINE)[0])

    streams = [store.stream() for _ in range(16)]
    assert metric() == 16
    code, message = refusal(store, "")
    assert code == 429 and "16 streams" in message
    assert store.page()["events"] == []  # pages, and all else, are still answered
    for stream in streams:
        stream.close()
    while metric() > 0:
        time.sleep(0.01)
    store.stream().close()


def test_a_stream_ends_when_the_token_of_its_tenant_changes(tmp_path):
    with (
        running(tmp_path, "", TENANTS.format(token="one")) as store,
        store.stream("tenant=red") as red,
        store.stream() as default,
    ):
        store.config.write_text(TENANTS.format(token="two"))
        os.kill(store.service.pid, signal.SIGHUP)
        (end,) = of_stream(red)
        assert end["event"] == "end" and end["error"] == "permission_denied"
        with store.connect() as cache:
            _, segment = put(cache, list(range(40)))
        assert next(of_stream(default))["segment"] == segment.id


def test_a_stream_needs_the_token_of_the_port(tmp_path):
    (tmp_path / "admin.token").write_text("secret\n")
    with running(tmp_path, 'admin_token_file = "admin.token"') as store:
        assert refusal(store, "")[0] == 401
        store.stream(Authorization="Bearer secret").close()
        code, message = refusal(store, "tenant=nobody", Authorization="Bearer secret")
        assert code == 404 and "nobody" in message


def test_the_router_of_the_guide_knows_what_a_lookup_finds(store):
    (source,) = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict = {}
    exec(source, names)
    router = names["Map"](store.url)
    with store.connect() as cache:
        model, first = put(cache, list(range(40)))
        _, second = put(cache, [*range(20), *range(500, 530)])  # it splits the first
        put(cache, list(range(900, 950)))
        cache.remove(second)
        for event in store.events():
            router.apply(event)
        for tokens in (list(range(60)), [*range(20), *range(500, 530)], list(range(900, 960)), [7]):
            found = cache.lookup(model, tokens).matched_tokens
            assert router.matched(model.fingerprint, "", tokens) == found // 4 * 4
        cache.remove(first, recursive=True)
        store.service.stop()  # ends the stream
        store.service.start()
        for event in store.events(after=router.after):
            router.apply(event)
        assert router.matched(model.fingerprint, "", list(range(900, 960))) == 48


# ---- precisctl ----------------------------------------------------------------------------------


def test_precisctl_prints_events_and_follows_them(store):
    command = [shutil.which("precisctl"), "--address", store.service.address, "events"]
    with store.connect() as cache:
        _, segment = put(cache, list(range(40)))
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert text.startswith("stored ") and segment.id in text
        follow = [*command, "--follow", "--json"]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as follower:
            assert json.loads(follower.stdout.readline())["event"] == "stored"
            cache.remove(segment)
            assert json.loads(follower.stdout.readline())["event"] == "removed"
            follower.send_signal(signal.SIGINT)
            assert follower.stdout.read() == ""
            assert follower.wait(60) == 0
    wrong = subprocess.run([*command, "--after", "x"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "position" in wrong.stderr


# ---- ZeroMQ -------------------------------------------------------------------------------------


def test_subscribers_get_vllms_form_over_zeromq(tmp_path):
    zmq, msgspec = pytest.importorskip("zmq"), pytest.importorskip("msgspec")
    with running(tmp_path, 'kv_events = "tcp://127.0.0.1:0"') as store, zmq.Context() as context:
        subscriber = context.socket(zmq.SUB)
        subscriber.subscribe(b"precis/default")
        subscriber.setsockopt(zmq.RCVTIMEO, 60_000)
        subscriber.connect(store.said("kv events"))
        with store.connect() as cache:
            received: list[list[bytes]] = []
            at = 0
            while not received:  # a subscriber that connects late misses messages
                at += 100
                _, segment = put(cache, list(range(at, at + 40)))
                if subscriber.poll(100):
                    received.append(subscriber.recv_multipart())
            cache.trim(segment, 0.25)
            cache.remove(segment)
            kinds: list[str] = []
            while kinds[-1:] != ["BlockRemoved"]:
                topic, number, payload = received.pop() if received else subscriber.recv_multipart()
                assert topic == b"precis/default"
                kinds += [each["type"] for each in msgspec.msgpack.decode(payload)[1]]
            seen = int.from_bytes(number, "big")
            stamp, ((removed),) = msgspec.msgpack.decode(payload)
        told = store.events(after="oldest")
        assert store.page(after="newest")["next"].split(":")[1] == str(seen) == str(len(told))
        assert [each.hex() for each in removed["block_hashes"]] == told[-1]["blocks"]
        assert removed["medium"] == "STORAGE"
        assert stamp * 1000 == pytest.approx(told[-1]["unix_ms"], abs=1)
        subscriber.close(0)


def test_zeromq_is_for_this_machine_unless_the_operator_says_otherwise(tmp_path):
    def check(settings: str) -> subprocess.CompletedProcess:
        config = tmp_path / "precisd.toml"
        config.write_text(f'data_dir = "{tmp_path}"\n{settings}')
        command = [find_precisd(), "--config", str(config), "--check"]
        return subprocess.run(command, capture_output=True, text=True)

    refused = check('kv_events = "tcp://0.0.0.0:5557"')
    assert refused.returncode == 2 and "kv_events_access" in refused.stderr
    assert check('kv_events = "tcp://0.0.0.0:5557"\nkv_events_access = "network"').returncode == 0
    for wrong in ("127.0.0.1:5557", "ipc:///x", "tcp://127.0.0.1", "tcp://*:5557"):
        assert check(f'kv_events = "{wrong}"').returncode == 2, wrong
