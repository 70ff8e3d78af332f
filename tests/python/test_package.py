"""The Debian packages: their files and fields, and the service and client that are unpacked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "file", "cpack")  # of deploy/debian-packages.txt, [package]
missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}")


def printed(*command: str | Path, **more) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def version() -> str:
    project = re.search(r"project\(precis VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    return project[1]


class Package:
    """One .deb, unpacked into a folder."""

    def __init__(self, deb: Path, folder: Path) -> None:
        self.root = folder
        self.fields = {
            line.split(": ", 1)[0]: line.split(": ", 1)[1]
            for line in printed("dpkg-deb", "-f", deb).splitlines()
            if ": " in line and not line.startswith(" ")
        }
        self.listing = printed("dpkg-deb", "-c", deb).splitlines()
        printed("dpkg-deb", "-x", deb, folder)
        self.control = folder.with_suffix(".control")
        printed("dpkg-deb", "-e", deb, self.control)
        self.files = {f"/{p.relative_to(folder)}" for p in folder.rglob("*") if not p.is_dir()}

    def find(self, name: str) -> Path:
        (found,) = self.root.rglob(name)
        return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Package]:
    """The packages of the build that these tests run with, by name."""
    build = Path(find_precisd()).parents[1]
    folder = tmp_path_factory.mktemp("packages")
    printed("cmake", "--build", build, "--target", "installed")
    fast = "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"
    printed("cpack", "--config", build / "CPackConfig.cmake", "-B", folder / "out", "-D", fast)
    debs = (folder / "out").glob("*.deb")
    return {deb.name.split("_")[0]: Package(deb, folder / deb.stem) for deb in debs}


def test_the_packages_say_what_they_are_and_need(packages: dict[str, Package]) -> None:
    assert set(packages) == {"precis", "libprecis-dev"}
    for name, package in packages.items():
        assert package.fields["Package"] == name
        assert package.fields["Version"] == f"{version()}-1"
        assert package.fields["Architecture"] == printed("dpkg", "--print-architecture").strip()
        # dpkg-shlibdeps has found the libraries that the programs link.
        for library in ("libc6", "libssl3", "librocksdb7.8"):
            assert library in package.fields["Depends"]
        # Files belong to root, and only root may write them.
        assert all(re.match(r"[-dl][r-][w-].([r-]-.){2} root/root|l", x) for x in package.listing)
    assert "systemd-sysusers" in packages["precis"].fields["Depends"]
    for header in ("libcapnp-dev", "libspdlog-dev"):
        assert header in packages["libprecis-dev"].fields["Depends"]


def test_the_service_package_has_the_programs_unit_user_and_configuration(
    packages: dict[str, Package],
) -> None:
    precis_package = packages["precis"]
    assert precis_package.files >= {
        "/etc/precis/precisd.toml",
        "/usr/bin/precisctl",
        "/usr/bin/precisd",
        "/usr/lib/systemd/system/precisd.service",
        "/usr/lib/sysusers.d/precis.conf",
        "/usr/share/bash-completion/completions/precisctl",
        "/usr/share/doc/precis/changelog.Debian.gz",
        "/usr/share/doc/precis/copyright",
        "/usr/share/man/man1/precisctl.1.gz",
        "/usr/share/man/man8/precisd.8.gz",
    }
    assert not [f for f in precis_package.files if f.endswith((".a", ".h", ".so", ".cmake"))]
    # An upgrade asks before it replaces a configuration that the operator has changed.
    conffiles = (precis_package.control / "conffiles").read_text().split()
    assert conffiles == sorted(f for f in precis_package.files if f.startswith("/etc/"))
    # The unit starts the package's program as the user that the package creates.
    unit = precis_package.find("precisd.service").read_text()
    (start,) = re.findall(r"^ExecStart=(\S+) --config (\S+) ", unit, re.MULTILINE)
    assert set(start) <= precis_package.files
    (user,) = re.findall(r"^User=(\S+)$", unit, re.MULTILINE)
    assert re.search(rf"^u {user} ", precis_package.find("precis.conf").read_text(), re.MULTILINE)
    for script in ("postinst", "prerm", "postrm"):
        printed("sh", "-n", precis_package.control / script)


def test_the_unpacked_service_runs_with_the_configuration_that_the_package_brings(
    packages: dict[str, Package], tmp_path: Path
) -> None:
    root = packages["precis"].root
    configuration = root / "etc/precis/precisd.toml"
    with Precisd(
        str(root / "usr/bin/precisd"), tmp_path / "data", "--config", str(configuration)
    ) as service:
        with precis.connect(service.address) as cache:
            model = cache.register_model(toy_spec(name="packaged"))
            tokens = list(range(64))
            segment = put_all(cache, model, tokens, random_layers(model.spec, len(tokens)))
            assert cache.lookup(model, tokens).matched_tokens == len(tokens)
        ctl = (root / "usr/bin/precisctl", "--address", service.address, "--json")
        rows = json.loads(printed(*ctl, "prefix", "ls"))
        assert segment.id in json.dumps(rows)
        service.stop()


def test_a_c_program_is_compiled_and_runs_with_the_client_package(
    packages: dict[str, Package], tmp_path: Path
) -> None:
    client = packages["libprecis-dev"]
    assert {"/usr/include/precis/client.h", "/usr/include/precis/precis.h"} <= client.files
    assert client.find("precisConfig.cmake").exists()
    flags = printed(
        "pkg-config",
        "--cflags",
        "--libs",
        "precis",
        env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(client.find("precis.pc").parent)},
    ).split()
    program = tmp_path / "program"
    printed("cc", "-std=c99", ROOT / "tests/unit/client/c_test.c", *flags, "-o", program)
    libraries = client.find("libprecis.so").parent
    printed(program, tmp_path / "cache", env={"LD_LIBRARY_PATH": str(libraries)})


def test_every_declared_version_is_the_builds() -> None:
    declared = {
        "client/python/pyproject.toml": r'^version = "(\S+)"',
        "client/python/precis/__init__.py": r'^__version__ = "(\S+)"',
    }
    for name, pattern in declared.items():
        (said,) = re.findall(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert said == version(), name
