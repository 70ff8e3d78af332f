"""The admin port of a real precisd: metrics, probes and the API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from admin_port import Operator, samples
from kv import put_all, random_layers, toy_profile, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

ALERTS = Path(__file__).parents[2] / "deploy/prometheus/alerts.yaml"
DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/precis.json"


def precisctl(operator: Operator, *words: str):
    """The JSON that precisctl prints."""
    program = shutil.which("precisctl")
    command = [program, "--address", operator.service.address, "--json", *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


# ---- metrics and probes -------------------------------------------------------------------------


def test_metrics_have_every_stat_and_real_histograms(operator):
    status, headers, text = operator.ask("/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = samples(text)
    for name in precisctl(operator, "stats"):
        assert name in found or f'{name}{{tenant="default"}}' in found, name
    labels = 'tenant="default",model="toy"'
    for name in ("lookup", "get_first_layer", "get", "put", "commit"):
        family = f"precis_{name}_seconds"
        tier = ',tier="memory"' if "get" in name else ""
        with_all = f'{labels}{tier},transport="shm"'
        assert found[f"{family}_count{{{with_all}}}"] == 1
        assert found[f'{family}_bucket{{{with_all},le="+Inf"}}'] == 1
        assert found[f"{family}_sum{{{with_all}}}"] > 0
    assert found[f'precis_hits_total{{{labels},tier="memory",transport="shm"}}'] == 1
    assert found[f'precis_hit_tokens_total{{{labels},tier="memory",transport="shm"}}'] == 100
    assert found[f'precis_asked_tokens_total{{{labels},transport="shm"}}'] == 100
    served = found[f'precis_served_bytes_total{{{labels},tier="memory",transport="shm"}}']
    assert served == found["precis_pushed_bytes_total"] > 0
    assert found['precis_wait_seconds_count{resource="memory"}'] == 0
    fingerprint = precisctl(operator, "model", "ls")["models"][0]["fingerprint"][:12]
    labels = f'tenant="default",model="toy",fingerprint="{fingerprint}"'
    assert found[f"precis_model_segments{{{labels}}}"] == 1
    assert found['precis_segments{tenant="default"}'] == 1


def test_what_the_disk_or_tcp_has_served_is_told_apart(tmp_path):
    flags = ("--admin", "127.0.0.1:0", "--listen-unix", "off")
    with Precisd(find_precisd(), tmp_path / "data", *flags) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            put_all(cache, model, list(range(100)), random_layers(model.spec, 100), keep=0.5)
        service.stop()
    with Precisd(find_precisd(), tmp_path / "data", *flags) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            for _ in range(2):  # from the disk, then from memory
                cache.get(cache.lookup(model, list(range(100)))).wait()
            cache.lookup(model, [7] * 100)  # a miss
            with precis.open(tmp_path / "other") as elsewhere:
                unknown = elsewhere.register_model(toy_spec(name="unknown"))
            with pytest.raises(precis.NotFound):
                cache.lookup(unknown, [1] * 50)
        found = samples(Operator(service, tmp_path / "data.log").ask("/metrics")[2])
        service.stop()
    labels = 'tenant="default",model="toy"'
    for tier in ("disk", "memory"):
        with_all = f'{labels},tier="{tier}",transport="tcp"'
        assert found[f"precis_hits_total{{{with_all}}}"] == 1
        assert found[f"precis_get_seconds_count{{{with_all}}}"] == 1
        assert found[f"precis_get_first_layer_seconds_count{{{with_all}}}"] == 1
    assert found[f'precis_asked_tokens_total{{{labels},transport="tcp"}}'] == 300
    # A model that nobody has registered appears in no label.
    assert found['precis_lookup_seconds_count{tenant="default",transport="tcp"}'] == 1


def test_promtool_finds_nothing_wrong_with_the_metrics(operator):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    text = operator.ask("/metrics")[2]
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alert_rules_name_metrics_that_exist(operator):
    rules = ALERTS.read_text()
    found = {name.split("{")[0] for name in samples(operator.ask("/metrics")[2])}
    named = set(re.findall(r"precis_\w+", " ".join(re.findall(r"expr: (.*)", rules))))
    assert named and named <= found, named - found


def test_the_dashboard_asks_prometheus_for_metrics_that_exist(operator):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) >= 10 and all(panel["description"] for panel in panels)
    found = {name.split("{")[0] for name in samples(operator.ask("/metrics")[2])}
    named = set(re.findall(r"precis_\w+", " ".join(asked)))
    assert named and named <= found, named - found


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
    assert operator.api("sessions/chat/pin", "PUT", {"pinned": False}, status=400)
    assert operator.api("sessions/chat")["pinned"] is True
    assert operator.api("sessions/chat/pin", "DELETE")["pinned"] is False
    path = f"prefixes/{segment['id']}/retention"
    set_ = operator.api(path, "PUT", {"priority": 70, "ttl_seconds": 60})
    assert (set_["id"], set_["priority"], set_["ttl_seconds"]) == (segment["id"], 70, 60)
    assert operator.api(path, "PUT", {"ttl_seconds": 0})["priority"] == 70
    assert "priority" in operator.api(path, "PUT", {"priority": 101}, status=400)["message"]
    assert operator.api(path, "PUT", {}, status=400)["error"] == "invalid_argument"
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


def test_revisions_are_compared(operator):
    first = operator.api("budgets", "PUT", {"keep": 0.21})["effective"]["version"]
    last = operator.api("budgets", "PUT", {"keep": 0.22, "recipe": "knorm"})["effective"]["version"]
    diff = operator.api(f"budgets/diff?from={first}&to={last}")
    assert (diff["from"], diff["to"]) == (first, last)
    (change,) = diff["changes"]
    assert change["scope"] == {"model": None, "session": ""}
    assert (change["before"]["keep"]["value"], change["after"]["keep"]["value"]) == (0.21, 0.22)
    assert operator.api(f"budgets/diff?from={last}")["changes"] == []
    whole = operator.api("budgets/diff")
    assert whole["from"] is None and whole["changes"][0]["after"]["recipe"] == "knorm"
    assert "no revision" in operator.api(f"budgets/diff?to={last + 1}", status=404)["message"]
    operator.api("budgets", "PUT", {"keep": None, "recipe": None})


def test_a_table_of_layers_and_heads_is_set_over_http(tmp_path):
    with Precisd(find_precisd(), tmp_path / "data", "--admin", "127.0.0.1:0") as service:
        operator = Operator(service, tmp_path / "data.log")
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="toy"))
            layers = random_layers(model.spec, 300)
            whole = put_all(cache, model, range(300), layers, keep=1.0, recipe="keydiff")
            table = {
                "model": model.fingerprint,
                "recipe": "keydiff",
                "table": "0=0.8, 1-2=0.2\n2.1=0.4  # the head that looks back",
            }
            dry = operator.api("budgets", "PUT", table | {"dry_run": True})["next_put"]
            assert (dry["segment"], dry["tokens"], dry["note"]) == (whole.id, 300, "")
            assert len(dry["kept_mass"]) == 3 and max(dry["kept_mass"]) <= 1
            assert operator.api("profiles")["profiles"] == []
            set_to = operator.api("budgets", "PUT", table)
            assert "next_put" not in set_to
            (profile,) = operator.api("profiles")["profiles"]
            assert set_to["effective"]["recipe"].count(profile["name"]) == 1
            put = put_all(cache, model, range(300), layers, recipe=None)
            assert put.bytes == dry["stored_bytes"]
            # Every head keeps its protected tokens first; the shares divide the rest.
            wanted = [[240, 240], [60, 60], [60, 120]]
            assert abs(cache.segment(put.id).plan.astype(int) - wanted).max() <= 3

            wrong = operator.api("budgets", "PUT", table | {"table": "0-2=0.5\n1.7=1"}, status=400)
            assert "line 2: '1.7=1': the model has KV heads 0 to 1" in wrong["message"]
            path = f"models/{model.fingerprint}/profiles/{profile['name']}"
            other = operator.api(path)["profile"]
            other["table"] = [1.0] * len(other["table"])
            operator.api("profiles", "POST", {"profile": other})  # of the same name
            operator.api("budgets", "PUT", table)
            assert operator.api("profiles")["profiles"][0]["digest"] == profile["digest"]
            for number in range(63):  # with the profile of the first table, this is the limit
                share = f"0-2={0.1 + number / 100}"
                operator.api("budgets", "PUT", table | {"table": share})
            for dry_run in (True, False):
                last = table | {"table": "0-2=0.99", "dry_run": dry_run}
                told = operator.api("budgets", "PUT", last, status=429)["message"]
                assert "remove one first" in told
            assert len(operator.api("profiles")["profiles"]) == 64
            operator.api(f"models/{model.fingerprint}/profiles/{profile['name']}", "DELETE")
            del table["model"]
            told = operator.api("budgets", "PUT", table, status=400)["message"]
            assert "for one model: give the model" in told
            with pytest.raises(precis.InvalidArgument, match="nothing for heads of layer 1, 2"):
                cache.set_budget(model=model, recipe="keydiff", table="0=0.5")
            budgets = cache.set_budget(model=model, recipe="keydiff", table="0-2=64")
            assert budgets.effective.keep == precis.entries(64)
        service.stop()


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
    sample = {"model": "0" * 64, "segment": "0" * 32, "name": "none", "node": "none"}
    sample["revision"] = "999"
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
            if "/tenants" in path or "/backup" in path or path.endswith("/drain"):
                assert status == 403 and "role admin" in answer["message"], (method, path, text)
            elif (method, path) == ("put", "/api/v1/sessions/{name}"):  # makes a session
                assert status == 200 and operator.ask(asked, "DELETE")[0] == 200, text
            elif "{" in path or status != 200:
                # The request reached its handler: nothing of that name is stored, or a value is
                # missing. A path that is not served has another message.
                assert status in (400, 404), (method, path, text)
                assert "no such path" not in answer["message"]
            else:
                assert status == 200, (method, path, text)
