"""The admin port of a real precisd with TLS and with certificates of operators."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_port import TOKEN, Operator, samples
from admin_tls import Authority, connect, get, trusting, wait_for

from precis.demo.service import Precisd, find_precisd

SERVER = 'admin_tls_cert = "server.pem"\nadmin_tls_key = "server.key"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the server, of an operator, and of a stranger with another CA."""
    folder = tmp_path_factory.mktemp("certificates")
    ours = Authority(folder, "ours")
    ours.sign("server")
    ours.sign("operator")
    Authority(folder, "strange").sign("stranger")
    (folder / "admin.token").write_text(TOKEN)
    (folder / "admin.token").chmod(0o600)
    return folder


@contextlib.contextmanager
def serving(folder: Path, data: Path, settings: str) -> Iterator[tuple[Precisd, str, Path]]:
    """A precisd whose files are in `folder`, the address of its admin port, and its log."""
    config = folder / f"{data.parent.name}.toml"
    config.write_text('admin = "127.0.0.1:0"\n' + settings)
    with Precisd(find_precisd(), data, "--config", str(config)) as service:
        log = data.parent / f"{data.name}.log"
        yield service, Operator(service, log).address, config
        service.stop()


def refused_count(address: str, context: ssl.SSLContext) -> float:
    """The number of clients that the service has refused."""
    found = samples(get(address, context, "/metrics")[1].decode())
    return found["precis_connections_refused_total"]


def raw(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=120)


def rest_of(link: socket.socket) -> bytes:
    """The bytes that the port sends until it closes the connection."""
    got = b""
    while part := link.recv(65536):
        got += part
    return got


def test_only_a_certificate_that_the_ca_signed_is_let_in(folder, tmp_path):
    ca = folder / "ours.ca.pem"
    operator = trusting(ca, folder / "operator.pem")
    settings = SERVER + 'admin_tls_ca = "ours.ca.pem"\n'
    with serving(folder, tmp_path / "data", settings) as (_, address, _):
        assert get(address, operator, "/healthz") == (200, b"ok\n")
        for stranger in (trusting(ca), trusting(ca, folder / "stranger.pem")):
            with pytest.raises(OSError):
                get(address, stranger, "/healthz")
        with pytest.raises(ssl.SSLCertVerificationError):  # the client refuses the server
            get(address, trusting(folder / "strange.ca.pem"), "/healthz")
        wait_for(lambda: refused_count(address, operator) == 3)
        # A port with certificates takes requests that need an admin. Here the tenant is no admin.
        status, body = get(address, operator, "/api/v1/tenants")
        assert status == 403 and b"'default' has the role writer" in body
    log = (tmp_path / "data.log").read_text()
    assert "peer did not return a certificate" in log and "certificate verify failed" in log


def test_a_token_may_be_asked_for_too(folder, tmp_path):
    operator = trusting(folder / "ours.ca.pem", folder / "operator.pem")
    settings = SERVER + 'admin_tls_ca = "ours.ca.pem"\nadmin_token_file = "admin.token"\n'
    with serving(folder, tmp_path / "data", settings) as (_, address, _):
        assert get(address, operator, "/metrics")[0] == 401
        assert get(address, operator, "/metrics", "a guess")[0] == 401
        assert get(address, operator, "/metrics", TOKEN)[0] == 200
        with pytest.raises(OSError):
            get(address, trusting(folder / "ours.ca.pem"), "/metrics", TOKEN)


def test_plain_http_and_garbage_are_closed_and_counted(folder, tmp_path):
    client = trusting(folder / "ours.ca.pem")
    with serving(folder, tmp_path / "data", SERVER) as (_, address, _):
        plain = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for sent in (plain, b"\x16\x03\x01" + b"x" * 99):
            with raw(address) as link, contextlib.suppress(ConnectionError):
                link.sendall(sent)
                assert not rest_of(link).startswith(b"HTTP")
        wait_for(lambda: refused_count(address, client) == 2)
        raw(address).close()  # as a load balancer's check does; this is no refusal
        assert get(address, client, "/healthz")[0] == 200
        assert refused_count(address, client) == 2


def test_slow_handshakes_end_and_keep_nobody_out(folder, tmp_path):
    client = trusting(folder / "ours.ca.pem")
    with serving(folder, tmp_path / "data", SERVER) as (_, address, _):
        with contextlib.ExitStack() as held:
            slow = [held.enter_context(raw(address)) for _ in range(80)]  # the port takes 64
            for link in slow[40:]:
                link.sendall(b"\x16\x03\x01")  # the beginning of a record
            assert get(address, client, "/healthz")[0] == 200
            assert slow[0].recv(1) == b""  # closed to make room
            assert slow[-1].recv(1) == b""  # the port closes it, not this socket's timeout
        wait_for(lambda: refused_count(address, client) >= 1)
    assert "the handshake took too long" in (tmp_path / "data.log").read_text()


def test_requests_bodies_refusals_and_streams_work_as_without_tls(folder, tmp_path):
    client = trusting(folder / "ours.ca.pem")
    with serving(folder, tmp_path / "data", SERVER) as (_, address, _):
        link = connect(address, client)
        for keep in (0.1, 0.2):  # two requests on one connection
            body = json.dumps({"keep": keep, "comment": "x" * 200_000 if keep == 0.1 else ""})
            link.request("PUT", "/api/v1/budgets", body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            assert answer.status == (400 if keep == 0.1 else 200), answer.read()
            answer.read()
        link.close()
        with client.wrap_socket(raw(address), server_hostname="127.0.0.1") as refused:
            head = b"PUT /api/v1/budgets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999"
            refused.sendall(head + b"\r\n\r\n" + b"x" * 5000)
            assert rest_of(refused).startswith(b"HTTP/1.1 413")
        with client.wrap_socket(raw(address), server_hostname="127.0.0.1") as stream:
            head = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream"
            stream.sendall(head + b"\r\n\r\n")
            got = b""
            while b"\n\n" not in got.partition(b"\r\n\r\n")[2]:
                got += stream.recv(65536)
            assert b"Content-Type: text/event-stream" in got
        assert get(address, client, "/healthz")[0] == 200


def test_a_stream_that_the_service_ends_says_so_over_tls(folder, tmp_path):
    client = trusting(folder / "ours.ca.pem")
    settings = SERVER + '[[tenant]]\nname = "red"\ntoken = "one"\n'
    with serving(folder, tmp_path / "data", settings) as (service, address, config):
        # A connection that ends without TLS's closing message is an error for this client.
        with client.wrap_socket(
            raw(address), server_hostname="127.0.0.1", suppress_ragged_eofs=False
        ) as stream:
            head = b"GET /api/v1/events?tenant=red HTTP/1.1\r\nHost: localhost"
            stream.sendall(head + b"\r\nAccept: text/event-stream\r\n\r\n")
            got = stream.recv(65536)
            config.write_text(config.read_text().replace('"one"', '"two"'))
            os.kill(service.pid, signal.SIGHUP)
            got += rest_of(stream)
        assert b"event: end" in got


def test_a_renewed_certificate_is_taken_up_at_sighup_and_a_wrong_one_is_not(folder, tmp_path):
    authority = Authority(tmp_path, "renewed")
    authority.sign("server")
    old = (tmp_path / "server.pem").read_bytes()
    client = trusting(authority.pem)
    log = tmp_path / "data.log"
    settings = SERVER + f'admin_tls_ca = "{authority.pem}"\n'
    own = trusting(authority.pem, tmp_path / "server.pem")
    with serving(tmp_path, tmp_path / "data", settings) as (service, address, config):

        def shown() -> bytes:
            with own.wrap_socket(raw(address), server_hostname="127.0.0.1") as link:
                return ssl.DER_cert_to_PEM_cert(link.getpeercert(True)).encode()

        def reload(said: str) -> None:
            seen = log.read_text().count(said)
            os.kill(service.pid, signal.SIGHUP)
            wait_for(lambda: log.read_text().count(said) > seen)

        kept = connect(address, own)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b"ok\n"
        assert shown().strip() in old
        authority.sign("server")
        assert shown().strip() in old  # until the service reloads
        reload("configuration reloaded")
        assert shown().strip() in (tmp_path / "server.pem").read_bytes()
        kept.request("GET", "/healthz")  # an open connection stays open
        assert kept.getresponse().read() == b"ok\n"
        good = (tmp_path / "server.pem").read_bytes()
        (tmp_path / "server.pem").write_text("no certificate")
        reload("configuration not reloaded")
        assert shown().strip() in good
        (tmp_path / "server.pem").write_bytes(good)
        config.write_text('admin = "127.0.0.1:0"\n' + SERVER)
        reload("there is no admin_tls_ca any more")
        with pytest.raises(OSError):
            get(address, client, "/healthz")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ('admin_tls_cert = "server.pem"', "belong together: give both or neither"),
        ('admin_tls_ca = "ours.ca.pem"', "without admin_tls_cert and admin_tls_key: give them too"),
        (SERVER + 'admin_tls_ca = "none.pem"', "admin_tls_ca: cannot read"),
        (
            'admin_tls_cert = "server.pem"\nadmin_tls_key = "operator.key"',
            "operator.key: key values mismatch",
        ),
        ('admin_tls_cert = "server.key"\nadmin_tls_key = "server.key"', ":2: admin_tls_cert: can"),
        (SERVER + 'admin = "0.0.0.0:0"', "or admin_tls_ca to ask for a certificate"),
    ],
)
def test_settings_that_contradict_say_what_to_do(folder, tmp_path, settings, told):
    admin = "" if "admin = " in settings else 'admin = "127.0.0.1:0"\n'
    config = folder / f"{tmp_path.name}.toml"
    config.write_text(admin + settings)
    command = [find_precisd(), "--data", str(tmp_path / "data"), "--config", str(config), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 2 and told in checked.stderr, checked.stderr


def test_with_certificates_other_hosts_may_reach_the_port_without_a_token(folder, tmp_path):
    config = folder / "open.toml"
    config.write_text(SERVER + 'admin = "0.0.0.0:0"\nadmin_tls_ca = "ours.ca.pem"')
    command = [find_precisd(), "--data", str(tmp_path / "data"), "--config", str(config), "--check"]
    assert subprocess.run(command, capture_output=True).returncode == 0
