"""The admin port of a real precisd: metrics, probes, the API, and clients that break the rules."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_profile, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

TOKEN = "a long random word"
ALERTS = Path(__file__).parents[2] / "deploy/prometheus/alerts.yaml"
DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/precis.json"


class Operator:
    """Speaks HTTP with the admin port of one precisd."""

    def __init__(self, service: Precisd, log: Path, token: str = "") -> None:
        self.service = service
        self.address = re.findall(r"admin port address=(\S+)", log.read_text())[-1]
        self.token = token

    def ask(self, path: str, method: str = "GET", body: object = None, **headers: str):
        """(status, headers, text) of the answer."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        asked = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def api(self, path: str, method: str = "GET", body: object = None, status: int = 200):
        """The JSON of an answer with this status."""
        got, _, text = self.ask(f"/api/v1/{path}", method, body)
        assert got == status, text
        return json.loads(text)

    def raw(self, request: bytes) -> bytes:
        """What the port sends until it closes the connection."""
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as link:
            link.sendall(request)
            link.shutdown(socket.SHUT_WR)
            answer = b""
            while part := link.recv(65536):
                answer += part
            return answer


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """A precisd with one stored segment and one session, whose admin port needs no token."""
    folder = tmp_path_factory.mktemp("admin")
    with Precisd(find_precisd(), folder / "data", "--admin", "127.0.0.1:0") as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            layers = random_layers(model.spec, 100)
            segment = put_all(cache, model, list(range(100)), layers, keep=0.5)
            cache.get(cache.lookup(model, list(range(100))))
            session = cache.session("chat")
            session.advance(segment.id)
        yield Operator(service, folder / "data.log")
        service.stop()


def precisctl(operator: Operator, *words: str):
    """What precisctl --json prints."""
    program = shutil.which("precisctl")
    command = [program, "--address", operator.service.address, "--json", *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def samples(text: str) -> dict[str, float]:
    """Value of every sample, by its name with labels."""
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in rows}


# ---- metrics and probes -------------------------------------------------------------------------


def test_metrics_have_every_stat_and_real_histograms(operator):
    status, headers, text = operator.ask("/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = samples(text)
    for name in precisctl(operator, "stats"):
        assert name in found or f'{name}{{tenant="default"}}' in found, name
    for name in ("lookup", "get_first_layer", "get", "put", "commit"):
        family = f"precis_{name}_seconds"
        assert found[f'{family}_count{{tenant="default"}}'] == 1
        assert found[f'{family}_bucket{{tenant="default",le="+Inf"}}'] == 1
        assert found[f'{family}_sum{{tenant="default"}}'] > 0
    assert found['precis_wait_seconds_count{resource="memory"}'] == 0
    fingerprint = precisctl(operator, "model", "ls")["models"][0]["fingerprint"][:12]
    labels = f'tenant="default",model="toy",fingerprint="{fingerprint}"'
    assert found[f"precis_model_segments{{{labels}}}"] == 1
    assert found['precis_segments{tenant="default"}'] == 1


def test_promtool_finds_nothing_wrong_with_the_metrics(operator):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    text = operator.ask("/metrics")[2]
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alert_rules_are_valid_and_name_metrics_that_exist(operator):
    rules = ALERTS.read_text()
    found = {name.split("{")[0] for name in samples(operator.ask("/metrics")[2])}
    named = set(re.findall(r"precis_\w+", " ".join(re.findall(r"expr: (.*)", rules))))
    assert named and named <= found, named - found
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    checked = subprocess.run(
        [promtool, "check", "rules", str(ALERTS)], text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_asks_prometheus_for_metrics_that_exist(operator, tmp_path):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) >= 10 and all(panel["description"] for panel in panels)
    found = {name.split("{")[0] for name in samples(operator.ask("/metrics")[2])}
    named = set(re.findall(r"precis_\w+", " ".join(asked)))
    assert named and named <= found, named - found
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    # As recording rules, so that promtool parses them; Grafana fills in the variables.
    filled = [each.replace("$__rate_interval", "5m").replace("$", "x") for each in asked]
    rules = [{"record": f"panel:{i}", "expr": each} for i, each in enumerate(filled)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run(
        [promtool, "check", "rules", str(file)], text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_probes_say_that_it_lives_and_is_ready(operator):
    assert operator.ask("/healthz")[0] == 200
    assert operator.ask("/readyz")[::2] == (200, "ready\n")


# ---- the API ------------------------------------------------------------------------------------


def test_the_api_answers_what_precisctl_prints(operator):
    assert operator.api("models") == {**precisctl(operator, "model", "ls"), "next": None}
    prefixes = precisctl(operator, "prefix", "ls")
    assert operator.api("prefixes") == {"prefixes": prefixes["prefixes"], "next": None}
    segment = prefixes["prefixes"][0]["id"]
    assert operator.api(f"prefixes/{segment}") == precisctl(operator, "prefix", "show", segment)
    assert operator.api(f"find_prefix?id_beginning={segment[:6]}")["id"] == segment
    assert operator.api("sessions") == {**precisctl(operator, "session", "ls"), "next": None}
    assert operator.api("sessions/chat") == precisctl(operator, "session", "show", "chat")
    budgets = precisctl(operator, "budget", "show")
    del budgets["models"]  # precisctl asks for each model
    assert operator.api("budgets") == budgets
    assert operator.api("profiles") == precisctl(operator, "profile", "ls")
    assert operator.api("status").keys() == precisctl(operator, "status").keys()
    assert operator.api("stats").keys() == precisctl(operator, "stats").keys()


def test_changes_through_the_api_take_effect(operator):
    changed = operator.api("budgets", "PUT", {"keep": "20%", "recipe": "knorm"})
    assert changed["effective"]["keep"] == {"kind": "ratio", "value": 0.2}
    unset = operator.api("budgets", "PUT", {"keep": None, "recipe": None})
    assert unset["effective"]["scope"] == "config" or unset["effective"]["keep"]["value"] == 0.3
    assert operator.api("sessions/chat/pin", "PUT")["pinned"] is True
    segment = operator.api("prefixes")["prefixes"][0]
    refused = operator.api(f"prefixes/{segment['id']}", "DELETE", status=409)
    assert refused["error"] == "conflict" and "chat" in refused["message"]
    assert operator.api("sessions/chat/pin", "DELETE")["pinned"] is False
    dry = operator.api(f"prefixes/{segment['id']}/trim", "POST", {"keep": 0.25, "dry_run": True})
    assert 0 < dry["freed_bytes"] < segment["stored_bytes"]
    assert operator.api("prefixes")["prefixes"][0]["entries"] == segment["entries"]
    done = operator.api(f"prefixes/{segment['id']}/trim", "POST", {"keep": 0.25})
    assert done["freed_bytes"] == dry["freed_bytes"]
    checked = operator.api(f"prefixes/{segment['id']}/check", "POST")
    assert checked == {"bytes": done["stored_bytes"], "damage": ""}
    profile = toy_profile(toy_spec(name="toy"))
    added = operator.api("profiles", "POST", {"profile": profile})
    path = f"models/{added['model']}/profiles/{added['name']}"
    assert operator.api(path)["profile"] == profile
    assert operator.api(path, "DELETE") == {"removed": added["name"]}
    operator.api(path, status=404)


def test_a_change_of_budgets_is_a_revision_that_can_be_rolled_back(operator):
    before = operator.api("budgets/revisions")["newest"]
    operator.api("budgets", "PUT", {"keep": 0.2, "limit": 0.5, "user": "ada", "comment": "why"})
    newest = operator.api("budgets/revisions?limit=1")["revisions"][0]
    assert (newest["number"], newest["user"], newest["comment"]) == (before + 1, "ada", "why")
    assert newest["changes"][0]["after"]["limit"] == {"kind": "ratio", "value": 0.5}
    late = operator.api("budgets", "PUT", {"keep": 0.1, "if_revision": before}, status=409)
    assert late["error"] == "conflict"
    path = f"budgets/revisions/{before}/rollback"
    assert operator.api(path, "POST", {"dry_run": True})["changes"]
    assert operator.api("budgets/revisions")["newest"] == before + 1
    assert operator.api(path, "POST")["number"] == before + 2
    assert operator.api("budgets")["effective"]["limit"] is None


def test_a_body_with_very_many_keys_is_refused_at_once(operator):
    wide = {str(key): 0 for key in range(50_000)}
    assert operator.ask("/api/v1/budgets", "PUT", wide)[0] == 400
    assert operator.api("budgets", "PUT", {"if_revision": None, "keep": None})["effective"]


def test_a_list_is_read_page_by_page(operator):
    first = operator.api("prefixes?limit=1")
    assert len(first["prefixes"]) == 1
    if first["next"] is not None:
        assert operator.api(f"prefixes?limit=1&after={first['next']}")["prefixes"] == []
    operator.api("prefixes?after=00", status=400)


def test_errors_have_the_status_of_their_code(operator):
    assert operator.api("sessions/none", status=404)["error"] == "not_found"
    assert operator.api("none", status=404)["error"] == "not_found"
    assert operator.api("prefixes?limit=many", status=400)["error"] == "invalid_argument"
    assert "limit" in operator.api("prefixes?limit=1001", status=400)["message"]
    assert "GET, PUT" in operator.api("budgets", "POST", status=405)["message"]
    assert "default" in operator.api("status?tenant=none", status=404)["message"]
    assert operator.ask("/api/v1/budgets", "PUT", {}, Content_Type="text/plain")[0] == 400


def test_every_route_of_the_openapi_description_answers(operator):
    api = operator.api("openapi.json")
    assert api["openapi"] == "3.1.0"
    sample = {"model": "0" * 64, "segment": "0" * 32, "name": "none", "revision": "999"}
    for path, methods in api["paths"].items():
        for method, described in methods.items():
            asked = path
            for parameter in described["parameters"]:
                if parameter["in"] == "path":
                    asked = asked.replace(f"{{{parameter['name']}}}", sample[parameter["name"]])
                    assert parameter["required"]
            if path.endswith("find_prefix"):
                asked += "?id_beginning=ffff"
            status, _, text = operator.ask(asked, method.upper(), None)
            answer = json.loads(text)
            if "/tenants" in path:
                assert status == 403 and "role admin" in answer["message"], (method, path, text)
            elif "{" in path or status != 200:
                # The request reached its handler: nothing of that name is stored, or a value is
                # missing. A path that is not served has another message.
                assert status in (400, 404), (method, path, text)
                assert "no such path" not in answer["message"]
            else:
                assert status == 200, (method, path, text)


# ---- who may ask --------------------------------------------------------------------------------


def test_connections_without_a_request_keep_nobody_out(operator):
    host, port = operator.address.rsplit(":", 1)
    with contextlib.ExitStack() as held:
        for _ in range(100):  # more than the port takes at a time
            idle = held.enter_context(socket.create_connection((host, int(port))))
            idle.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(3):
            assert operator.ask("/healthz")[0] == 200


def test_a_page_of_another_site_gets_no_answer(operator):
    assert operator.ask("/metrics", Host="evil.example")[0] == 403
    assert operator.ask("/metrics", Origin="http://evil.example")[0] == 403
    assert operator.ask("/metrics", Origin=f"http://{operator.address}")[0] == 200


def test_without_the_token_nothing_is_answered_but_probes(tmp_path):
    (tmp_path / "admin.token").write_text(TOKEN + "\n")
    (tmp_path / "admin.token").chmod(0o600)
    audit = tmp_path / "audit.log"
    config = tmp_path / "precisd.toml"
    config.write_text(
        f'admin = "127.0.0.1:0"\nadmin_token_file = "admin.token"\naudit_log = "{audit}"\n'
        '[[tenant]]\nname = "red"\n[[tenant]]\nname = "blue"\n'
    )
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        right = Operator(service, tmp_path / "data.log", TOKEN)
        wrong = Operator(service, tmp_path / "data.log", "a guess")
        none = Operator(service, tmp_path / "data.log")
        assert none.ask("/healthz")[0] == 200 and none.ask("/readyz")[0] == 200
        status, headers, _ = none.ask("/metrics")
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
        assert wrong.ask("/api/v1/status?tenant=red")[0] == 401
        assert right.api("status?tenant=red")["tenant"] == "red"
        assert right.api("status?tenant=blue")["tenant"] == "blue"
        assert "red, blue" in right.api("status", status=404)["message"]
        found = samples(right.ask("/metrics")[2])
        assert (
            found['precis_segments{tenant="red"}'] == found['precis_segments{tenant="blue"}'] == 0
        )
        right.api("budgets?tenant=red", "PUT", {"keep": 0.1})
        assert right.api("budgets?tenant=blue")["effective"]["keep"]["value"] == 0.3
        service.stop()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert any(row["what"] == "Connect" and row["client"] == "admin port" for row in lines)
    assert any(row["what"] == "SetBudget" and row["tenant"] == "red" for row in lines)
    assert TOKEN not in audit.read_text() + (tmp_path / "data.log").read_text()


def test_an_admin_manages_tenants_over_http_and_no_other_tenant_does(tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text(
        'admin = "127.0.0.1:0"\n[[tenant]]\nname = "ops"\ntoken = "boss"\nrole = "admin"\n'
        '[[tenant]]\nname = "red"\ntoken = "r"\n[[tenant]]\nname = "eye"\nrole = "reader"\n'
    )
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        operator = Operator(service, tmp_path / "data.log")
        wanted = {"name": "blue", "weight": 2, "max_puts": 3}
        added = operator.api("tenants?tenant=ops", "POST", wanted)
        assert {key: added["tenant"][key] for key in wanted} == wanted
        with precis.connect(service.address, tenant="blue", token=added["token"]) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            put_all(cache, model, list(range(50)), random_layers(model.spec, 50), keep=0.5)
        rows = operator.api("tenants?tenant=ops")["tenants"]
        assert [row["name"] for row in rows] == ["blue", "eye", "ops", "red"]
        assert rows[0] == operator.api("tenants/blue?tenant=ops")
        assert rows[0]["segments"] == 1 and rows[0]["stored_bytes"] > 0
        assert added["token"] not in json.dumps(rows)
        found = samples(operator.ask("/metrics")[2])
        assert found['precis_stored_bytes{tenant="blue"}'] == rows[0]["stored_bytes"]

        changed = operator.api("tenants/blue?tenant=ops", "PUT", {"role": "reader"})
        assert changed["role"] == "reader" and changed["max_puts"] == 3
        denied = operator.api("budgets?tenant=blue", "PUT", {"keep": 0.1}, status=403)
        assert "tenant 'blue' has the role reader" in denied["message"]
        assert operator.api("prefixes?tenant=blue")["prefixes"]
        rotated = operator.api("tenants/blue/token?tenant=ops", "POST")
        assert rotated["tenant"]["tokens"] == 2 and rotated["token"] != added["token"]
        dropped = operator.api("tenants/blue/token?tenant=ops", "POST", {"drop_old": True})
        assert dropped["tenant"]["tokens"] == 1 and dropped["token"] == ""
        with pytest.raises(precis.PermissionDenied):
            precis.connect(service.address, tenant="blue", token=added["token"])

        for tenant in ("red", "eye"):
            operator.api(f"tenants?tenant={tenant}", status=403)
            operator.api(f"tenants?tenant={tenant}", "POST", {"name": "x"}, status=403)
            operator.api(f"tenants/blue?tenant={tenant}", "DELETE", status=403)
        operator.api("tenants?tenant=ops", "POST", {"name": "red"}, status=409)
        operator.api("tenants?tenant=ops", "POST", {"name": "x", "weight": 0}, status=400)
        operator.api("tenants?tenant=ops", "POST", {"name": "a\nb"}, status=400)
        operator.api("tenants/none?tenant=ops", status=404)
        operator.api("tenants/blue?tenant=ops", "DELETE", status=409)
        removed = operator.api("tenants/blue?tenant=ops&purge=true", "DELETE")
        assert removed == {"segments": 1, "bytes": rows[0]["stored_bytes"]}
        kept = operator.api("tenants?tenant=ops", "POST", {"name": "kept"})
        service.stop()
    # A program that opens the directory itself is no client of these tenants.
    with precis.open(tmp_path / "data") as cache:
        cache.register_model(toy_spec(name="toy"))
    with (
        Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service,
        precis.connect(service.address, tenant="kept", token=kept["token"]) as cache,
    ):
        assert cache.models() == []


@pytest.mark.parametrize(
    ("admin", "told"),
    [("0.0.0.0:0", "admin_token_file"), ("nowhere", "host:port"), ("example.org:1", "token")],
)
def test_an_address_that_others_reach_needs_a_token(tmp_path, admin, told):
    command = [find_precisd(), "--data", str(tmp_path / "data"), "--admin", admin, "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 2 and told.lower() in checked.stderr.lower(), checked.stderr


# ---- clients that break the rules ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"\r\n\r\n\0\1\2", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"2\r\n{}\r\n0\r\n\r\n", b"411"),
        (b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
         b"413"),
        (b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Content-Length: 40000\r\nConnection: close\r\n\r\n" + b"[" * 40000, b"400"),
        (b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b'Content-Length: 26\r\nConnection: close\r\n\r\n{"keep": 0.2, "keep": 0.5}', b"400"),
    ],
)  # fmt: skip
def test_a_malformed_request_gets_an_error(operator, request_text, status):
    answer = operator.raw(request_text)
    assert answer.split(b" ", 2)[1] == status, answer[:200]
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert operator.ask("/healthz")[0] == 200


def test_past_the_limit_the_connection_that_was_idle_longest_is_closed(operator):
    host, port = operator.address.rsplit(":", 1)
    links = [socket.create_connection((host, int(port)), timeout=60) for _ in range(80)]
    try:
        # The port accepts in order, so that the first connections have waited longest.
        assert links[0].recv(1) == b""
        links[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert links[-1].recv(12) == b"HTTP/1.1 200"
    finally:
        for link in links:
            link.close()


def test_a_client_that_never_ends_its_header_is_cut_off(operator):
    host, port = operator.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=120) as link:
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        assert link.recv(1) == b""  # the port ends it, not the timeout of this socket


def test_requests_follow_each_other_on_one_connection(operator):
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert operator.raw(one + one + last).count(b"HTTP/1.1 200 OK") == 3
