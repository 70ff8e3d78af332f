"""Access to the admin port of a real precisd, and clients that break the rules."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess

import pytest
from admin_port import TOKEN, Operator, guarded, samples
from admin_tls import wait_for
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

# ---- who may ask --------------------------------------------------------------------------------


def test_connections_without_a_request_keep_nobody_out(operator):
    host, port = operator.address.rsplit(":", 1)
    with contextlib.ExitStack() as held:
        for _ in range(100):  # more than the port takes at a time
            idle = held.enter_context(socket.create_connection((host, int(port))))
            idle.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(3):
            assert operator.ask("/healthz")[0] == 200


def test_strangers_who_do_not_read_their_answers_keep_nobody_out(tmp_path):
    ask = b"GET /page/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with guarded(tmp_path) as port, contextlib.ExitStack() as held:
        where, number = port.address.rsplit(":", 1)
        for _ in range(64):  # as many as the port takes at a time
            link = held.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect((where, int(number)))
            link.sendall(800 * ask)  # more answers than the kernel keeps
        for _ in range(3):
            assert port.ask("/api/v1/status?tenant=ops")[0] == 200


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
    (tmp_path / "admin.token").write_text(TOKEN + "\n")
    (tmp_path / "admin.token").chmod(0o600)
    config = tmp_path / "precisd.toml"
    config.write_text(
        'admin = "127.0.0.1:0"\nadmin_token_file = "admin.token"\n'
        '[[tenant]]\nname = "ops"\ntoken = "boss"\nrole = "admin"\n'
        '[[tenant]]\nname = "red"\ntoken = "r"\n[[tenant]]\nname = "eye"\nrole = "reader"\n'
    )
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        operator = Operator(service, tmp_path / "data.log", TOKEN)
        wanted = {"name": "blue", "weight": 2, "max_puts": 3}
        added = operator.api("tenants?tenant=ops", "POST", wanted)
        assert {key: added["tenant"][key] for key in wanted} == wanted
        with precis.connect(service.address, tenant="blue", token=added["token"]) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            put_all(cache, model, list(range(50)), random_layers(model.spec, 50), keep=0.5)
        wait_for(lambda: operator.api("tenants/blue?tenant=ops")["connections"] == 0)
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
    # A program that opens the directory itself belongs to none of these tenants.
    with precis.open(tmp_path / "data") as cache:
        cache.register_model(toy_spec(name="toy"))
    with (
        Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service,
        precis.connect(service.address, tenant="kept", token=kept["token"]) as cache,
    ):
        assert cache.models() == []


def test_an_admin_makes_backups_over_http_and_no_other_tenant_does(tmp_path):
    (tmp_path / "admin.token").write_text(TOKEN + "\n")
    (tmp_path / "admin.token").chmod(0o600)
    config = tmp_path / "precisd.toml"
    config.write_text(
        'admin = "127.0.0.1:0"\nadmin_token_file = "admin.token"\n'
        f'backup_dir = "{tmp_path / "backups"}"\n'
        '[[tenant]]\nname = "ops"\ntoken = "boss"\nrole = "admin"\n'
        '[[tenant]]\nname = "red"\ntoken = "r"\n'
    )
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        operator = Operator(service, tmp_path / "data.log", TOKEN)
        with precis.connect(service.address, tenant="red", token="r") as cache:
            model = cache.register_model(toy_spec(name="toy"))
            stored = put_all(cache, model, list(range(50)), random_layers(model.spec, 50), keep=0.5)
        assert operator.api("backup?tenant=ops")["state"] == ""
        began = operator.api("backups?tenant=ops", "POST", {"name": "one"})
        assert began["name"] == "one" and began["state"] in ("running", "done")
        while (state := operator.api("backup?tenant=ops"))["state"] == "running":
            pass
        assert state["state"] == "done" and state["copied_bytes"] == stored.bytes
        (row,) = operator.api("backups?tenant=ops")["backups"]
        assert row["name"] == "one" and row["bytes"] == stored.bytes and row["fault"] == ""
        assert operator.api("backup?tenant=ops", "DELETE")["state"] == "done"
        operator.api("backups?tenant=ops", "POST", {"name": "../one"}, status=400)
        operator.api("backups?tenant=red", status=403)
        operator.api("backups?tenant=red", "POST", {"name": "two"}, status=403)
        service.stop()


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
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n", b"413"),
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
        assert link.recv(1) == b""  # the port closes it, not this socket's timeout


def test_requests_follow_each_other_on_one_connection(operator):
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert operator.raw(one + one + last).count(b"HTTP/1.1 200 OK") == 3


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on(operator):
    host, port = operator.address.rsplit(":", 1)
    body = b'{"keep": 0.25, "dry_run": true}'
    with socket.create_connection((host, int(port)), timeout=60) as link:
        link.sendall(
            b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        assert link.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(body)
        answer = b""
        while part := link.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200"), answer
