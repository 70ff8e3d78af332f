"""A copy of a stopped service's data directory is a backup, and can move to another machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

SPEC = toy_spec("backed-up")
TURNS = (list(range(300)), list(range(500)))  # the second continues the first
SMALL = ("--memory", "512MiB")


def run_ctl(service: Precisd, *command: str) -> subprocess.CompletedProcess[str]:
    program = Path(find_precisd()).with_name("precisctl")
    call = [program, "--address", service.address, *command]
    return subprocess.run(call, capture_output=True, text=True)


def list_rows(cache: precis.Cache) -> list[tuple]:
    """Id, parent, budget and bytes of every segment."""
    return sorted((row.id, row.parent, row.keep, row.bytes) for row in cache.segments())


def copy(source: Path, target: Path) -> None:
    """Copies a data directory as docs/guides/operations.md says."""
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


def served(cache: precis.Cache, keep: float) -> list[bytes]:
    """All bytes of a get of the longer path at a budget."""
    prefix = cache.get(cache.lookup(cache.register_model(SPEC), TURNS[-1], keep=keep))
    return [
        np.ascontiguousarray(getattr(entries, name)).tobytes()
        for layer in prefix.layers
        for entries in layer.heads
        for name in ("positions", "seats", "scores", "keys", "values")
    ]


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, list[list[bytes]], list[tuple]]:
    """The directory of a stopped service, what it served at two budgets, and its segments."""
    folder = tmp_path / "data"
    with Precisd(find_precisd(), folder, *SMALL) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(SPEC)
            session = cache.session("agent")
            for seed, tokens in enumerate(TURNS):
                layers = random_layers(SPEC, len(tokens), seed)
                with cache.begin_put(model, tokens, recipe="global_kvdiff", keep=0.5) as put:
                    for index, (keys, values) in enumerate(layers):
                        put.layer(index, keys[:, put.begin :], values[:, put.begin :])
                    session.advance(put.commit())
            session.pin()
            cache.set_budget(keep=0.25)
            reads = [served(cache, keep) for keep in (0.5, 0.2)]
            rows = list_rows(cache)
        service.stop()
    return folder, reads, rows


def test_a_copy_serves_the_same_from_another_folder(stored, tmp_path: Path) -> None:
    folder, reads, rows = stored
    backup = tmp_path / "backup"
    copy(folder, backup)
    shutil.rmtree(folder)  # nothing of the copy may need it
    with Precisd(find_precisd(), backup, *SMALL) as service:
        checked = run_ctl(service, "fsck")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with precis.connect(service.address) as cache:
            assert [served(cache, keep) for keep in (0.5, 0.2)] == reads
            (session,) = cache.sessions()
            assert (session.name, session.turns, session.pinned) == ("agent", 2, True)
            assert cache.budgets().effective.keep == precis.ratio(0.25)
            assert list_rows(cache) == rows
        service.stop()


def test_a_backup_is_not_changed_by_what_is_put_after_it(stored, tmp_path: Path) -> None:
    folder, reads, rows = stored
    backup = tmp_path / "backup"
    copy(folder, backup)
    other = list(range(1000, 1100))
    with Precisd(find_precisd(), folder, *SMALL) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(SPEC)
            put_all(cache, model, other, random_layers(SPEC, len(other)))
            root = next(id for id, parent, *_ in rows if parent is None)
            cache.session("agent").unpin()
            assert run_ctl(service, "prefix", "rm", root, "--recursive").returncode == 0
        service.stop()
    shutil.rmtree(folder)
    copy(backup, folder)  # restored
    with Precisd(find_precisd(), folder, *SMALL) as service:
        with precis.connect(service.address) as cache:
            assert [served(cache, keep) for keep in (0.5, 0.2)] == reads
            assert cache.lookup(cache.register_model(SPEC), other).matched_tokens == 0
        service.stop()


def test_a_copy_that_lacks_a_file_is_found_by_fsck_and_serves_no_damage(
    stored, tmp_path: Path
) -> None:
    folder, _, rows = stored
    backup = tmp_path / "backup"
    copy(folder, backup)
    lost = next((backup / "payload").glob("*.extents"))
    lost.unlink()
    with Precisd(find_precisd(), backup, *SMALL) as service:
        checked = run_ctl(service, "fsck")
        assert checked.returncode == 1
        assert f"payload file {lost.name} is missing" in checked.stdout
        assert re.search(rf"of {len(rows)} segments", checked.stderr)
        with precis.connect(service.address) as cache:
            match = cache.lookup(cache.register_model(SPEC), TURNS[-1])
            assert match.matched_tokens == 0
        service.stop()


def test_a_copy_that_lacks_a_file_of_rows_does_not_start(stored, tmp_path: Path) -> None:
    folder, _, _ = stored
    backup = tmp_path / "backup"
    copy(folder, backup)
    lost = next(backup.glob("*.sst"))
    lost.unlink()
    with pytest.raises(RuntimeError, match=f"{lost.stem}.*damaged: restore a copy"):
        Precisd(find_precisd(), backup, *SMALL).start()
