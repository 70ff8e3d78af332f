"""A real Prometheus scrapes a real precisd, with the rules and the dashboard of deploy/."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from admin_port import Operator
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yaml"
DASHBOARD = DEPLOY / "grafana/precis.json"


class Prometheus:
    """A server of its own that scrapes one precisd several times a second."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "precis", "static_configs": [{"targets": [target]}]},
            ],
        }
        (folder / "prometheus.yaml").write_text(json.dumps(config))  # JSON is YAML
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder}/prometheus.yaml",
                f"--storage.tsdb.path={folder}/tsdb",
                f"--web.listen-address={self.address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, path: str, **fields: str) -> Any:
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(fields)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def wait(self, path: str, good: Callable[[Any], object], **fields: str) -> Any:
        """The first answer that is good, of at most a minute."""
        end = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, Path(self._log.name).read_text()
            data = None
            try:
                data = self.ask(path, **fields)
                if good(data):
                    return data
            except urllib.error.URLError:
                pass  # it is starting
            assert time.monotonic() < end, data
            time.sleep(0.1)

    def rules(self) -> list[dict[str, Any]]:
        """Every alert rule, with its state."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def stop(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()
        self._log.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Precisd]:
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def prometheus(tmp_path: Path, service: Precisd) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    server = Prometheus(program, tmp_path, Operator(service, tmp_path / "data.log").address)
    yield server
    server.stop()


def up(data: Any) -> bool:
    """Whether the target was scraped."""
    return [target["health"] for target in data["activeTargets"]] == ["up"]


def use(service: Precisd) -> None:
    """A put, a lookup and a get, so that rates are above zero."""
    with precis.connect(service.address) as cache:
        model = cache.register_model(toy_spec(name="toy"))
        tokens = list(range(100))
        put_all(cache, model, tokens, random_layers(model.spec, 100), keep=0.5)
        cache.get(cache.lookup(model, tokens)).wait()


def test_the_rules_are_evaluated_and_fire(service, prometheus):
    prometheus.wait("targets", up)
    prometheus.wait("rules", lambda data: len(data["groups"]) > 0)
    while any(rule["health"] == "unknown" for rule in prometheus.rules()):
        time.sleep(0.1)
    rules = {rule["name"]: rule for rule in prometheus.rules()}
    assert {rule["health"] for rule in rules.values()} == {"ok"}
    assert {rule["state"] for rule in rules.values()} == {"inactive"}
    service.stop()
    down = prometheus.wait("alerts", lambda data: len(data["alerts"]) > 0)["alerts"]
    assert [alert["labels"]["alertname"] for alert in down] == ["PrecisDown"]


def test_every_panel_of_the_dashboard_has_data(service, prometheus):
    prometheus.wait("targets", up)
    use(service)
    filled = {"$__rate_interval": "20s", "$job": "precis", "$instance": ".*"}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            asked = target["expr"]
            for name, value in filled.items():
                asked = asked.replace(name, value)
            found = prometheus.wait("query", lambda data: data["result"], query=asked)["result"]
            assert all(name in found[0] for name in ("metric", "value")), panel["title"]
