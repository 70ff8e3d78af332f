"""The picture of a plan that precisctl draws, decoded by the rules of PNG."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

from kv import put_all, random_layers, toy_spec

import precis
from precis.demo.service import Precisd, find_precisd

SQUARE, MARGIN_X, MARGIN_Y = 10, 24, 16


def decode(data: bytes) -> tuple[list[bytes], bytes]:
    """The rows of palette indices, and the palette."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (crc,) = struct.unpack_from(">I", data, at + 8 + size)
        assert crc == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert form == [8, 3, 0, 0, 0]
    raw = zlib.decompress(chunks[b"IDAT"])  # checks the Adler-32 too
    assert len(raw) == (width + 1) * height
    lines = [raw[y * (width + 1) : (y + 1) * (width + 1)] for y in range(height)]
    assert all(line[0] == 0 for line in lines)
    return [line[1:] for line in lines], chunks[b"PLTE"]


def test_the_picture_of_a_plan_has_the_share_of_every_head(tmp_path: Path):
    with Precisd(find_precisd(), tmp_path / "data", "--memory", "512MiB") as service:
        ctl = (str(Path(find_precisd()).with_name("precisctl")), "--address", service.address)
        show = (*ctl, "budget", "show", "--model", "toy", "--png", str(tmp_path / "map.png"))
        with precis.connect(service.address) as cache:
            spec = toy_spec(num_layers=40, num_q_heads=12, num_kv_heads=12, head_dim=8)
            model = cache.register_model(spec)
            empty = subprocess.run(show, capture_output=True, text=True)
            assert empty.returncode != 0 and "no stored segment" in empty.stderr
            segment = put_all(cache, model, range(300), random_layers(spec, 300), keep=0.4)
            plan = cache.segment(segment.id).plan
        subprocess.run(show, check=True, capture_output=True)
        without = subprocess.run((*ctl, "budget", "show", "--png", "x"), capture_output=True)
        assert without.returncode != 0 and b"--model" in without.stderr
        service.stop()
    rows, palette = decode((tmp_path / "map.png").read_bytes())
    assert len(palette) == 3 * 103
    for layer, counts in enumerate(plan):
        for head, count in enumerate(counts):
            x, y = MARGIN_X + head * SQUARE, MARGIN_Y + layer * SQUARE
            square = {rows[y + dy][x + dx] for dy in range(9) for dx in range(9)}
            assert square == {100 * count // 300}
