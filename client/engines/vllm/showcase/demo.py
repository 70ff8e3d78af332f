"""Precis through vLLM: one instance reads a document, another answers questions about it.

The steps: start a precisd; a prefill instance of `vllm serve` reads the document and ends; restart
the service; plain vLLM reads the document itself; a decode instance, which has never read the
document, answers from the kept entries at three budgets.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from serving import BLOCK_SIZE, Asked, Reader, Server

from precis.demo.service import Precisd, find_precisd

KEEPS = (1.0, 0.3, 0.2)


def main() -> int:
    """Runs the demo; returns 0 if it succeeded."""
    parser = argparse.ArgumentParser(prog="./dev demo vllm", description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=1024, help="length of the document (1024)")
    parser.add_argument("--seed", type=int, default=0, help="of the facts in it")
    parser.add_argument("--document", type=Path, help="a text of your own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes the figures")
    arguments = parser.parse_args()
    reader = Reader()
    asked = reader.document(arguments.tokens, arguments.seed, arguments.document)
    with tempfile.TemporaryDirectory(prefix="precis-vllm-") as folder:
        figures = run(reader, asked, Path(folder))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    exact = figures["budgets"][0]
    if exact["tokens_as_plain"] != exact["tokens"]:
        print("with all entries kept the answers differ from plain vLLM's", file=sys.stderr)
        return 1
    return 0


def run(reader: Reader, asked: Asked, folder: Path) -> dict[str, Any]:
    """Runs all steps; returns the figures for --json."""
    say(f"precisd, and a prefill instance of vllm serve ({len(asked.document)} tokens to read)")
    data = Precisd(find_precisd(), folder / "data")
    with data:
        connector = {"address": data.address}
        with Server(
            reader.folder, folder / "prefill.log", connector | {"store_keep": 1.0}
        ) as prefill:
            first = prefill.ask(asked.document, tokens=1)
            prefill.wait_metric("vllm:precis_stores_total", 1)
            stored = prefill.metric("vllm:precis_store_bytes_total")
            note(f"read in {first.seconds:.2f} s; {stored / 2**20:.1f} MiB stored behind its back")
        say("the prefill instance ends, and precisd is restarted")
        data.stop()
        data.start()
        connector["address"] = data.address
        say("plain vllm serve")
        with Server(
            reader.folder, folder / "plain.log", None, "--no-enable-prefix-caching"
        ) as plain:
            plain.ask(asked.document[:256], tokens=1)  # warm-up
            times = [plain.ask(prompt, tokens=1).seconds for prompt in asked.prompts()]
            exact = [plain.ask(prompt) for prompt in asked.prompts()]
        codes = asked.codes
        result: dict[str, Any] = {
            "model": reader.folder.name,
            "tokens": len(asked.document),
            "block_size": BLOCK_SIZE,
            "plain": {
                "blocks": len(asked.document) // BLOCK_SIZE,
                "ttft_seconds": sorted(times)[len(times) // 2],
                "right": sum(map(reader.right, exact, codes)),
                "asked": len(codes),
            },
            "budgets": [],
        }
        say("a decode instance, which has never seen the document")
        with Server(reader.folder, folder / "decode.log", connector) as decode:
            decode.ask(asked.document[64:320], {"off": True}, tokens=1)  # warm-up
            for keep in KEEPS:
                result["budgets"].append(at_budget(reader, asked, decode, keep, exact))
    show(result)
    return result


def at_budget(
    reader: Reader, asked: Asked, decode: Server, keep: float, exact: list[Any]
) -> dict[str, Any]:
    """Asks the questions at one budget. The first fetches the prefix, the others find it cached."""
    first = decode.ask(asked.prompts()[0], {"keep": keep, "store": False}, tokens=1)
    answers = [decode.ask(p, {"keep": keep, "store": False}) for p in asked.prompts()]
    told = answers[0].told
    if "blocks" not in told:
        raise RuntimeError(f"the decode instance did not take the stored prefix: {told}")
    same = sum(
        a == b
        for x, y in zip(answers, exact, strict=True)
        for a, b in zip(x.tokens, y.tokens, strict=True)
    )
    return {
        "keep": keep,
        "blocks": told["blocks"],
        "entries_share": told["entries_share"],
        "ttft_seconds": first.seconds,
        "right": sum(map(reader.right, answers, asked.codes)),
        "asked": len(answers),
        "tokens_as_plain": same,
        "tokens": sum(len(y.tokens) for y in exact),
    }


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def note(text: str) -> None:
    print(f"    {text}", flush=True)


def show(result: dict[str, Any]) -> None:
    """Prints a table for people."""
    plain = result["plain"]
    print(f"\n    {result['tokens']} tokens, blocks of {result['block_size']}")
    head = ("", "blocks", "entries", "first token", "answers", "tokens as plain")
    rows = [
        ("plain vLLM", plain["blocks"], "100%", f"{plain['ttft_seconds'] * 1e3:.0f} ms",
         f"{plain['right']} of {plain['asked']}", ""),
    ]  # fmt: skip
    for b in result["budgets"]:
        rows.append((
            f"Precis at {b['keep']}", b["blocks"], f"{b['entries_share']:.0%}",
            f"{b['ttft_seconds'] * 1e3:.0f} ms", f"{b['right']} of {b['asked']}",
            f"{b['tokens_as_plain']} of {b['tokens']}",
        ))  # fmt: skip
    for row in (head, *rows):
        print("    " + "".join(f"{cell!s:>17}" for cell in row))
    print(
        "    Blocks: of the engine's KV memory, for the document. First token: its prefix fetched."
    )


if __name__ == "__main__":
    sys.exit(main())
