"""A real Prometheus scrapes a real precisd, with the rules and the dashboard of deploy/."""

from __future__ import annotations

import contextlib
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
    """A Prometheus server that scrapes some precisd several times a second."""

    def __init__(self, program: str, folder: Path, targets: list[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "precis", "static_configs": [{"targets": targets}]},
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
        """The data of the API's answer."""
        query = urllib.parse.urlencode(fields)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def wait(self, path: str, good: Callable[[Any], object], **fields: str) -> Any:
        """The first good answer; waits for it for at most a minute."""
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


@contextlib.contextmanager
def scraping(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """A running Prometheus."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    server = Prometheus(program, folder, list(targets))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def prometheus(tmp_path: Path, service: Precisd) -> Iterator[Prometheus]:
    with scraping(tmp_path, Operator(service, tmp_path / "data.log").address) as server:
        yield server


def up(data: Any) -> bool:
    """Whether all targets were scraped."""
    return {target["health"] for target in data["activeTargets"]} == {"up"}


def use(service: Precisd) -> None:
    """Makes a put, a lookup and a get, so that rates are above zero."""
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


JOB = 'job="precis"'
OF_B = f'instance="b:7471", {JOB}'
WORKING = {  # metrics of each node of a cluster without faults
    "precis_cluster_member": "1x120",
    "precis_cluster_nodes": "2x120",
    "precis_cluster_shards": "8192x120",
    "precis_cluster_unshared_bytes": "1000000x120",
    "precis_cluster_shared_failing": "0x120",
    "precis_cluster_lost_segments": "0x120",
}


# Troubles of the node b: the metric, its values by minute, the alert, and its labels.
TROUBLES = [
    ("precis_cluster_member", "0x120", "PrecisNoMember", OF_B),
    ("precis_cluster_shards", "0x120", "PrecisShardsUnowned", JOB),  # nobody owns b's shards
    ("precis_cluster_shards", "_x120", "PrecisShardsUnowned", JOB),  # b is not scraped
    ("precis_cluster_shards", "8192x5 9000x5 " * 12, "PrecisShardsMove", OF_B),
    ("precis_cluster_shared_failing", "1x120", "PrecisSharedFailing", OF_B),
    ("precis_cluster_unshared_bytes", "0+60000000x120", "PrecisUnshared", OF_B),  # 1 MB/s more
    ("precis_cluster_lost_segments", "3x120", "PrecisLostSegments", OF_B),
]


@pytest.mark.parametrize(("metric", "values", "alert", "labels"), [("", "", "", ""), *TROUBLES])
def test_the_rules_of_a_cluster_fire_if_a_node_is_in_trouble_and_only_then(
    tmp_path: Path, metric: str, values: str, alert: str, labels: str
) -> None:
    series = [
        {
            "series": f'{name}{{instance="{node}:7471", {JOB}}}',
            "values": values if (node, name) == ("b", metric) else well,
        }
        for node in ("a", "b")
        for name, well in WORKING.items()
    ]
    # A service without a cluster, in another job, never causes an alert.
    series += [
        {"series": f'{name}{{instance="c:7471", job="alone"}}', "values": values}
        for name, values in (
            ("precis_cluster_member", "1x120"),
            ("precis_cluster_nodes", "0x120"),
            ("precis_cluster_shards", "0x120"),
        )
    ]
    fired = [{"labels": f'{{alertname="{alert}", {labels}}}', "value": 1}] if alert else []
    check_alerts(tmp_path, series, fired)


def check_alerts(folder: Path, series: list[dict[str, str]], fired: list[dict[str, Any]]) -> None:
    """Checks that exactly these alerts fire after 100 minutes of the series."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    expected = {
        "expr": 'sum by (alertname, instance, job) (ALERTS{alertstate="firing"})',
        "eval_time": "100m",
        "exp_samples": fired,
    }
    test = {
        "rule_files": [str(ALERTS)],
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [expected]}],
    }
    (folder / "test.yaml").write_text(json.dumps(test))  # JSON is YAML
    done = subprocess.run(
        [promtool, "test", "rules", folder / "test.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("version", "minutes", "nodes", "fires"),
    [
        ("1.3.0", 120, 2, True),
        ("1.3.0", 30, 2, False),  # an upgrade is going on
        ("1.2.0", 120, 2, False),
        ("1.3.0", 120, 0, False),  # services of one job that are in no cluster
    ],
)
def test_an_alert_fires_if_nodes_of_a_cluster_have_different_versions_for_an_hour(
    tmp_path: Path, version: str, minutes: int, nodes: int, fires: bool
) -> None:
    before = 120 - minutes
    told = {
        f'precis_build_info{{instance="a:7471", {JOB}, version="1.2.0"}}': "1x120",
        f'precis_build_info{{instance="b:7471", {JOB}, version="{version}"}}': (
            f"_x{before} 1x{minutes}" if before else "1x120"
        ),
        f'precis_cluster_nodes{{instance="a:7471", {JOB}}}': f"{nodes}x120",
    }
    shards = 16384 if nodes else 0  # else another alert fires
    told[f'precis_cluster_shards{{instance="a:7471", {JOB}}}'] = f"{shards}x120"
    fired = [{"labels": f'{{alertname="PrecisVersionsDiffer", {JOB}}}', "value": 1}]
    check_alerts(
        tmp_path,
        [{"series": name, "values": values} for name, values in told.items()],
        fired if fires else [],
    )


def test_every_panel_of_the_dashboard_has_data(service, prometheus):
    prometheus.wait("targets", up)
    use(service)
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            asked = filled(target["expr"])
            found = prometheus.wait("query", lambda data: data["result"], query=asked)["result"]
            assert all(name in found[0] for name in ("metric", "value")), panel["title"]


def filled(expression: str, node: str = ".*") -> str:
    """The query that Grafana sends if this node is chosen, or by default if all nodes are."""
    for name, value in (("$__rate_interval", "20s"), ("$job", "precis"), ("$instance", node)):
        expression = expression.replace(name, value)
    return expression


def test_panels_by_node_show_each_node_and_all_together(tmp_path):
    with contextlib.ExitStack() as stack:
        addresses = []
        for name in ("a", "b"):
            node = Precisd(find_precisd(), tmp_path / name, "--admin", "127.0.0.1:0")
            use(stack.enter_context(node))
            addresses.append(Operator(node, tmp_path / f"{name}.log").address)
        server = stack.enter_context(scraping(tmp_path, *addresses))
        server.wait("targets", up)
        panels = json.loads(DASHBOARD.read_text())["panels"]
        by_node = [panel for panel in panels if panel["title"].endswith(", by node")]
        assert len(by_node) >= 5
        for panel in by_node:
            together, each = (target["expr"] for target in panel["targets"])
            both = server.wait("query", lambda data: len(data["result"]) == 2, query=filled(each))[
                "result"
            ]
            assert {found["metric"]["instance"] for found in both} == set(addresses)
            assert len(server.ask("query", query=filled(together))["result"]) == 1
            (one,) = server.ask("query", query=filled(each, addresses[0]))["result"]
            assert one["metric"]["instance"] == addresses[0]
        # No node stores more between the two queries, so the sum is exact.
        stored = {panel["title"]: panel for panel in by_node}["Stored, by node"]["targets"]
        values = [
            [float(found["value"][1]) for found in server.ask("query", query=asked)["result"]]
            for asked in (filled(target["expr"]) for target in stored)
        ]
        assert sum(values[0]) == sum(values[1]) > 0
