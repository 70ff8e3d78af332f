"""A scripted agent of many turns on a real model: ``python -m precis.demo.agents``.

The agent checks invoices, one short turn each. Two subagents fork its conversation on the way.
Halfway the agent ends and precisd is restarted: the agent resumes from the store. Each turn prints
what it read, reused and stored. Exits non-zero, with the reason, if anything fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import precis
from precis.eval.models import SMOLLM2
from precis.extras import exit_status

from . import operator_view
from .service import Precisd, find_precisd
from .view import View, duration, size

if TYPE_CHECKING:
    from precis import hf

# Threads that spin while they wait would take processor time from the service.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_SYSTEM = (
    "You check the invoices of a small company. Each message is the result of a tool. Answer in "
    "one short line. An invoice above 5000 needs a second signature. An invoice older than 60 days "
    "is late. A supplier that is not on the list is new: hold the invoice until someone called. "
    "The list: Adler, Brandt, Castellan, Duval, Eriksen, Falk, Grimaldi, Holm."
)
_SUPPLIERS = ("Adler", "Brandt", "Castellan", "Duval", "Ivanova", "Falk", "Jansen", "Holm")
_HELPERS = {"signatures": "Which invoices need a second signature?", "suppliers": "Who is new?"}
_HELPER_TURNS = 4


@dataclass(frozen=True)
class Row:
    """The figures of one turn."""

    who: str
    turn: int
    tokens_in: int
    """Tokens of the whole conversation before the answer."""
    read: int
    reused: int
    restored: int
    answered: int
    stored_bytes: int
    original_bytes: int
    seconds: float


class Agents:
    """Runs the turns, prints them, and keeps their figures."""

    def __init__(self, options: argparse.Namespace, view: View) -> None:
        self._options, self._view = options, view
        self._hf_model, self._tokenizer = SMOLLM2.load()
        self._random = random.Random(options.seed)
        self.rows: list[Row] = []

    def start(self, service: Precisd, tokens: Sequence[int] = ()) -> hf.Conversation:
        """The agent's conversation: a new one, or the one with these tokens."""
        from precis import hf

        cache = precis.connect(service.address)
        spec = hf.model_spec(self._hf_model, SMOLLM2.name, SMOLLM2.revision())
        return hf.Conversation(
            cache,
            cache.register_model(spec),
            self._hf_model,
            self._tokenizer,
            session="agent",
            tokens=tokens,
            keep=self._options.keep,
            read=self._options.read,
            recipe=self._options.recipe,
        )

    def work(self, agent: hf.Conversation, turns: Sequence[int], helpers: dict[int, str]) -> None:
        """Some of the agent's turns. `helpers`: the subagent that starts after a turn."""
        for turn in turns:
            if turn == 1:
                self._record("agent", 0, agent.add([{"role": "system", "content": _SYSTEM}]))
            self._say("agent", turn, agent, self._invoice(turn))
            if (name := helpers.get(turn)) is not None:
                with agent.fork(name) as helper:
                    for i in range(1, _HELPER_TURNS + 1):
                        asked = _HELPERS[name] if i == 1 else f"{self._invoice(turn + i)} And now?"
                        self._say(name, i, helper, asked)

    def prefill_seconds(self, tokens: list[int]) -> float:
        """The time to read a whole conversation from nothing, for comparison."""
        from precis import hf

        start = time.perf_counter()
        hf.prefill(self._hf_model, tokens)
        return time.perf_counter() - start

    def _invoice(self, number: int) -> str:
        draw = self._random
        return (
            f"Invoice {number}: {draw.choice(_SUPPLIERS)}, {draw.randrange(100, 9000)} euros, "
            f"{draw.randrange(1, 90)} days old."
        )

    def _say(self, who: str, turn: int, talk: hf.Conversation, text: str) -> None:
        said = talk.say(
            text,
            max_new_tokens=self._options.answer,
            temperature=0.7,
            top_p=0.9,
            seed=self._options.seed + len(self.rows),
        )
        self._record(who, turn, said)

    def _record(self, who: str, turn: int, said: hf.Turn) -> None:
        if said.error is not None:
            raise said.error
        row = Row(
            who,
            turn,
            said.reused + said.read,
            said.read,
            said.reused,
            said.restored,
            len(said.answer),
            said.segment.bytes,
            said.segment.original_bytes,
            said.seconds,
        )
        self.rows.append(row)
        source = "restored" if row.restored else "live"
        self._view.say(
            f"{who:10} {turn:2}  in {row.tokens_in:5}  reused {row.reused:5} ({source})  "
            f"read {row.read:3}  stored {size(row.stored_bytes):>9}  {duration(row.seconds):>8}  "
            f"{' '.join(str(said).split())}"
        )


def _total(who: str, rows: Sequence[Row]) -> dict[str, Any]:
    sums = {
        name: sum(getattr(row, name) for row in rows)
        for name in ("tokens_in", "read", "restored", "answered", "stored_bytes", "original_bytes")
    }
    return {"who": who, "turns": len(rows), **sums, "seconds": sum(row.seconds for row in rows)}


def _table(view: View, totals: Sequence[dict[str, Any]]) -> None:
    names = ["", "turns", "tokens in", "read", "from the store", "stored", "of", "seconds"]
    cells = [
        [
            total["who"],
            str(total["turns"]),
            str(total["tokens_in"]),
            str(total["read"]),
            str(total["restored"]),
            size(total["stored_bytes"]),
            size(total["original_bytes"]),
            f"{total['seconds']:.1f}",
        ]
        for total in totals
    ]
    view.table(names, cells)


def _show(service: Precisd, options: argparse.Namespace, view: View) -> None:
    view.step("What an operator sees: precisctl top, and the page of the admin port")
    for line in operator_view.top(service).splitlines():
        view.say(line)
    if options.page is not None:
        address = operator_view.admin_address(service.log())
        operator_view.save_page(address, options.page)
        view.say(f"a picture of the page is in {options.page}")


def _arguments(arguments: Sequence[str] | None, prog: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    parser.add_argument("--precisd", metavar="PATH", help="the service [from the PATH]")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also writes the figures")
    parser.add_argument(
        "--page", metavar="FILE", type=Path, help="also writes a picture of the operator's page"
    )
    parser.add_argument("--turns", type=int, default=40, help="of the agent [%(default)s]")
    parser.add_argument("--answer", type=int, default=12, help="tokens, at most [%(default)s]")
    parser.add_argument("--recipe", default="global_kvdiff", help="[%(default)s]")
    parser.add_argument("--keep", default="0.5", help="how much of a turn is stored [%(default)s]")
    parser.add_argument("--read", help="how much is read after the restart [all that is stored]")
    parser.add_argument("--seed", type=int, default=0, help="[%(default)s]")
    options = parser.parse_args(arguments)
    if options.turns < 4:
        parser.error("--turns must be 4 or more: two subagents and a restart are on the way")
    return options


def _tell(options: argparse.Namespace, view: View, scratch: Path) -> dict[str, Any]:
    precis.canonical_recipe(options.recipe)  # a wrong recipe is refused before anything starts
    half, quarter = options.turns // 2, options.turns // 4
    view.step(f"{SMOLLM2.name}: an agent of {options.turns} turns, in a session of precisd")
    agents = Agents(options, view)
    flags = ("--admin", "127.0.0.1:0")
    with Precisd(options.precisd or find_precisd(), scratch / "data", *flags) as service:
        with agents.start(service) as agent:
            agents.work(agent, range(1, half + 1), {quarter: "signatures"})
            tokens = agent.tokens
        view.step(
            f"The agent ends, precisd restarts, and the agent resumes its {len(tokens)} tokens"
        )
        service.stop()
        service.start()
        with agents.start(service, tokens) as agent:
            agents.work(agent, range(half + 1, options.turns + 1), {half + quarter: "suppliers"})
            tokens, turns = agent.tokens, agent.session.turns
        _show(service, options, view)
        service.stop()
    prefill = agents.prefill_seconds(tokens)
    rows = agents.rows
    whos = ["agent", *_HELPERS]
    totals = [_total(who, [row for row in rows if row.who == who]) for who in whos]
    totals.append(_total("all", rows))
    every = totals[-1]
    view.step(f"{options.recipe}, keep {options.keep}: what was read and stored")
    _table(view, totals)
    view.say(
        f"{every['tokens_in']} tokens went into {every['turns']} turns, and the model read "
        f"{every['read']} of them"
    )
    view.say(
        f"the agent's {len(tokens)} tokens take {duration(prefill)} to read from nothing; its "
        f"session is at turn {turns}"
    )
    return {
        "model": SMOLLM2.name,
        "recipe": options.recipe,
        "keep": options.keep,
        "tokens": len(tokens),
        "session_turns": turns,
        "prefill_seconds": prefill,
        "totals": totals,
        "turns": [vars(row) for row in rows],
    }


def main(arguments: Sequence[str] | None = None, prog: str = "precis.demo.agents") -> int:
    """Returns the exit status."""
    options = _arguments(arguments, prog)

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="precis-demo-") as scratch:
            figures = _tell(options, View(), Path(scratch))
        if options.json is not None:
            options.json.write_text(json.dumps(figures, indent=2) + "\n")

    return exit_status(prog, work)


if __name__ == "__main__":
    sys.exit(main())
