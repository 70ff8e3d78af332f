"""Tenants that a Python program manages on a real precisd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

CONFIG = '[[tenant]]\nname = "root"\ntoken = "first"\nrole = "admin"\n[[tenant]]\nname = "plain"\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Precisd]:
    config = tmp_path / "precisd.toml"
    config.write_text(CONFIG)
    flags = ("--config", str(config), "--memory", "256MiB")
    with Precisd(find_precisd(), tmp_path / "data", *flags) as running:
        yield running
        running.stop()


def connect(service: Precisd, tenant: str = "root", token: str = "first") -> precis.Cache:
    return precis.connect(service.address, tenant=tenant, token=token)


def store(cache: precis.Cache) -> None:
    model = cache.register_model(toy_spec())
    put_all(cache, model, range(40), random_layers(model.spec, 40), keep=0.5)


def test_a_program_manages_tenants(service):
    with connect(service) as admin:
        issued = admin.tenants.add("red", weight=2, max_disk_bytes=1 << 30)
        assert issued.tenant.role == "writer" and issued.token not in repr(issued)
        with connect(service, "red", issued.token) as red:
            store(red)
            assert {row.name for row in admin.tenants} == {"root", "plain", "red"}
            row = admin.tenants["red"]
            assert (row.weight, row.max_disk_bytes, row.segments) == (2, 1 << 30, 1)
            changed = admin.tenants.change("red", max_puts=3)
            assert (changed.max_puts, changed.weight, changed.max_disk_bytes) == (3, 2, 1 << 30)
            second = admin.tenants.rotate_token("red").token
            assert admin.tenants["red"].tokens == 2
            assert admin.tenants.rotate_token("red", drop_old=True).token == ""
        with pytest.raises(precis.PermissionDenied):
            connect(service, "red", issued.token)
        connect(service, "red", second).close()
        with pytest.raises(precis.Conflict, match="segment"):
            admin.tenants.remove("red")
        assert admin.tenants.remove("red", purge=True) == 1
        with pytest.raises(precis.NotFound):
            admin.tenants["red"]


def test_a_purged_tenant_leaves_no_budget(service):
    with connect(service) as admin:
        first = admin.tenants.add("red")
        with connect(service, "red", first.token) as red:
            red.set_budget(keep=0.1, comment="old")
            assert red.budgets().effective.keep == precis.ratio(0.1)
        admin.tenants.remove("red", purge=True)
        again = admin.tenants.add("red")
        with connect(service, "red", again.token) as red:
            assert red.budgets().effective.keep != precis.ratio(0.1)


def test_others_may_not_manage_tenants(service):
    with connect(service, "plain", "") as plain:
        with pytest.raises(precis.PermissionDenied):
            list(plain.tenants)
        with pytest.raises(precis.PermissionDenied):
            plain.tenants.add("red", role="admin")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"role": "owner"}, "owner"),
        ({"weight": -1}, "weight"),
        ({"max_puts": 2**32}, "max_puts"),
        ({"max_disk_bytes": 1.5}, "max_disk_bytes"),
    ],
)
def test_a_wrong_value_is_refused_and_adds_nothing(service, wrong, told):
    with connect(service) as admin:
        with pytest.raises(precis.InvalidArgument, match=told):
            admin.tenants.add("red", **wrong)
        with pytest.raises(precis.Conflict, match="configuration"):
            admin.tenants.change("plain", weight=2)
        assert {row.name for row in admin.tenants} == {"root", "plain"}
