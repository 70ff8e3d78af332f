"""Files named by the user are read up to a limit."""

import pytest

import precis
from precis import files
from precis.eval.texts import own_texts


def test_a_file_is_read_whole_up_to_its_limit(tmp_path):
    file = tmp_path / "text"
    file.write_text("caf\u00e9\n", encoding="utf-8")
    assert files.read_text(file, 6) == "caf\u00e9\n"
    with pytest.raises(ValueError, match="more than 5 bytes"):
        files.read_text(file, 5)
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        files.read_text(file, 6)


def test_what_never_ends_is_refused(tmp_path):
    with pytest.raises(ValueError, match="/dev/zero has more than"):
        files.read_text("/dev/zero", 1 << 20)
    with pytest.raises(ValueError, match="/dev/zero has more than"):
        own_texts([type(tmp_path)("/dev/zero")])
    cache = precis.open(tmp_path / "cache", memory_bytes=64 << 20)
    with pytest.raises(precis.InvalidArgument, match="/dev/zero has more than 8388608 bytes"):
        cache.add_profile("/dev/zero")
