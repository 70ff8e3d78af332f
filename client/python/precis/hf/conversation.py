"""A conversation over a store: each turn reads only what is new, and is stored as a segment."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..budget import ALL
from ..errors import Error, NotFound
from .chat import Chat
from .decode import Tokens, refuse_limits
from .live import is_compressed
from .prefill import store, time_on
from .ragged import RaggedCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.streamers import BaseStreamer

    from ..budget import Keep
    from ..cache import Cache, Match, Segment
    from ..model import Model
    from ..session import Session

# A text is the user's next message; messages are dicts with "role" and "content".
Message = str | Sequence[Mapping[str, Any]] | Tokens

# Seconds for which a match stays readable; generation starts to read it at once.
_LEASE_S = 30
# A lookup gets no lease while the segment is being trimmed, so it may have to be made again.
_RESTORES = 4
# These options of generate() make several answers, or read tokens that are not in the answer.
_REFUSED = (
    "assistant_model", "num_beams", "num_return_sequences", "past_key_values",
    "prompt_lookup_num_tokens", "return_dict_in_generate",
)  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation. Its ``str()`` is the text of the answer.

    Attributes:
        text: of the answer, without special tokens; empty without a tokenizer.
        answer: the answer's tokens, with the end-of-text token if the model chose one.
        read: how many tokens before the answer the model read in this turn.
        reused: how many tokens before those were in the live cache or in the store.
        restored: how many of the reused tokens came from the store.
        segment: the stored turn; None if it could not be stored.
        error: the error that prevented storing. The next turn stores this one, too.
        seconds: of the whole turn; `store_seconds` of them were for storing.
    """

    text: str
    answer: list[int] = field(repr=False)
    read: int
    reused: int
    restored: int
    segment: Segment | None = field(repr=False)
    error: Error | None
    seconds: float
    store_seconds: float

    def __str__(self) -> str:
        return self.text


class Conversation:
    """A conversation of many turns with a Transformers model, stored turn by turn.

    ::

        with hf.Conversation(cache, model, hf_model, tokenizer, session="chat", keep=0.5) as chat:
            print(chat.say("What may the holder copy?"))
            print(chat.say("And in short?", temperature=0.7, seed=1))

    The first turn looks the tokens up and gets what is stored of them. Later turns continue the
    live cache, which holds the KV of all tokens since. Each turn is stored as one segment, and the
    session advances to it. A later process resumes from the store: it gives the same `session` and
    the `tokens` of the conversation so far, because the store keeps no tokens.

    At ``keep=1.0``, a resumed conversation answers as the live one would. Below that, it attends to
    the entries that were kept. Not thread-safe.
    """

    def __init__(
        self,
        cache: Cache,
        model: Model,
        hf_model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        session: str | None = None,
        tokens: Tokens = (),
        keep: Keep | None = None,
        read: Keep | None = None,
        recipe: str | None = None,
        durability: Literal["memory", "wal", "fsync", "shared"] = "wal",
        ttl: int | None = None,
        total: Keep | None = None,
        priority: int | None = None,
        ttl_s: float | None = None,
        expect_reuse_in_s: float | None = None,
    ) -> None:
        """Makes no call of the model.

        Args:
            tokenizer: for messages that are text; without one, they are tokens.
            session: the name of the session to advance; None for none. It is made if it is missing.
            tokens: of the conversation so far, as `Conversation.tokens` had them.
            keep, recipe: how turns are compressed; by default the budget and recipe in force, of
                which the session may have its own (Cache.set_budget).
            read: the budget at which stored turns are read; by default all stored entries.
            durability: of the stored turns.
            ttl: of the session, in seconds, as in Cache.session.
            total: of the session, as in Cache.session: the most that all stored turns may take
                together. The service trims old turns first, as the conversation grows, so that new
                turns can have a `keep` that is larger.
            priority, ttl_s, expect_reuse_in_s: of all turns, as in Cache.begin_put. The lookup
                that resumes the conversation and each new turn set them for their segments.

        Raises:
            ValueError: the session has turns, and `tokens` are not those of its conversation; or
                there is a `total` and no session that has it.
        """
        if total is not None and session is None:
            raise ValueError("total: it is kept for a session; give session=, too")
        self._cache, self._model, self._hf_model = cache, model, hf_model
        self._chat = Chat(tokenizer)
        self._read = ALL if read is None else read
        self._hints: dict[str, Any] = {
            "priority": priority, "ttl_s": ttl_s, "expect_reuse_in_s": expect_reuse_in_s,
        }  # fmt: skip
        self._how: dict[str, Any] = {"recipe": recipe, "keep": keep, "durability": durability}
        self._how |= self._hints
        self._how["repeat"] = self._chat.repeat_request()
        self._tokens = [int(token) for token in tokens]
        self._live: RaggedCache | None = None
        self._session = None if session is None else cache.session(session, ttl, total=total)
        self._closed = False
        if self._session is not None and self._session.tip is not None:
            self._check_resumed(self._session)

    def __repr__(self) -> str:
        name = None if self._session is None else self._session.name
        return f"Conversation(session={name!r}, tokens={len(self._tokens)})"

    @property
    def tokens(self) -> list[int]:
        """All tokens so far. A later process resumes the conversation with them."""
        return list(self._tokens)

    @property
    def session(self) -> Session | None:
        """The session that the turns advance."""
        return self._session

    @property
    def live(self) -> RaggedCache | None:
        """The cache of the last turn; None before the first turn and after unload()."""
        return self._live

    def say(
        self,
        message: Message,
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        streamer: BaseStreamer | None = None,
        **options: Any,
    ) -> Turn:
        """Adds a message and the model's answer to it, and stores both.

        Args:
            message: text, which is the user's message; messages for the tokenizer's chat template;
                or tokens, which are added as they are. Text without a chat template is added as it
                is, too.
            temperature: above 0 to sample; by default each token is the most likely one.
            top_p, top_k: as in generate(); they need a temperature.
            seed: of the samples: the same seed gives the same answer.
            streamer: of Transformers, gets the tokens as they come.
            options: other options of Transformers' ``generate()``, for example `eos_token_id`,
                `stop_strings` or `repetition_penalty`. Options for several answers are refused.

        Raises:
            ValueError: an option or a message that does not fit; or the conversation is closed.
            Error: the store did not answer to the lookup or the get. If only storing fails, a
                warning says so, and the turn has the error.
        """
        for name in _REFUSED:
            given = options.get(name)
            one = name.startswith("num_") and given == 1
            if given is not None and given is not False and not one:
                raise ValueError(
                    f"{name}: a turn has one answer, read token by token; for more, call "
                    "hf_model.generate(..., past_key_values=conversation.live.fork())"
                )
        refuse_limits(temperature, top_p, top_k)
        sampling: dict[str, Any] = {"do_sample": temperature > 0}
        limits = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        sampling |= limits if temperature > 0 else dict.fromkeys(limits)
        config = self._hf_model.generation_config
        if config.pad_token_id is None and "pad_token_id" not in options:
            options["pad_token_id"] = 0  # one sequence has no padding; this silences a warning

        def answer(path: list[int], live: RaggedCache) -> list[int]:
            ids = torch.tensor([path], device=self._hf_model.device)
            with _seeded(seed, ids.device):
                out = self._hf_model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    past_key_values=live,
                    max_new_tokens=max_new_tokens,
                    tokenizer=self._chat.tokenizer if "stop_strings" in options else None,
                    streamer=streamer,
                    **sampling,
                    **options,
                )
            return out[0, len(path) :].tolist()

        return self._turn(self._chat.encode(message, self._tokens, answered=True), answer)

    def add(self, message: Message) -> Turn:
        """Adds a message without an answer, for example a system prompt, and stores it."""

        def no_answer(_path: list[int], _live: RaggedCache) -> list[int]:
            return []

        return self._turn(self._chat.encode(message, self._tokens, answered=False), no_answer)

    def fork(self, session: str | None = None) -> Conversation:
        """A conversation that continues this one independently, under a session of its own.

        The fork's session has the total of this one's; without a session, there is none.
        Neither computes nor stores anything, and copies no KV: the live cache is shared until
        either conversation adds tokens.

        Raises:
            Error: a session of that name exists.
        """
        self._check_open()
        other = object.__new__(Conversation)
        other.__dict__.update(self.__dict__)
        other._tokens = list(self._tokens)
        other._live = None if self._live is None else self._live.fork()
        other._session = None
        if session is not None:
            if self._session is not None and self._session.tip is not None:
                other._session = self._session.fork(session)
            else:
                total = None if self._session is None else self._session.total
                other._session = self._cache.session(session, total=total)
        return other

    def unload(self) -> None:
        """Frees the live cache. The next turn gets the stored turns at the budget `read`."""
        self._live = None

    def close(self, remove: bool = False) -> None:
        """Frees the live cache and ends the conversation; the session and its segments stay.

        Args:
            remove: whether to remove the session, too, for example that of a subagent that is done.
                Its segments stay and can be found by their tokens.
        """
        if remove and not self._closed and self._session is not None:
            self._session.remove()
        self._live = None
        self._closed = True

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- a turn ---------------------------------------------------------------------------------

    def _turn(self, new: list[int], answer: Any) -> Turn:
        self._check_open()
        if not new:
            raise ValueError("message: it has no tokens")
        start = time.perf_counter()
        path = self._tokens + new
        if self._live is not None and is_compressed(self._live):  # nothing can be stored from it
            self._live = None
        restored = self._live is None
        live, held, told, times = self._answer(path, answer)
        self._live, self._tokens = live, path + told
        answered = time.perf_counter()
        token_s = (times[1] - times[0]) / (len(path) - held) if times else None
        segment, failed = self._store(live, token_s)
        end = time.perf_counter()
        return Turn(
            text=self._chat.decode(told),
            answer=told,
            read=len(path) - held,
            reused=held,
            restored=held if restored else 0,
            segment=segment,
            error=failed,
            seconds=end - start,
            store_seconds=end - answered,
        )

    def _answer(self, path: list[int], answer: Any) -> tuple[RaggedCache, int, Any, Any]:
        """The cache, how many tokens of the path it held before, the answer, and its times.

        The prefix is read when the answer begins. If it was trimmed since the lookup, it is looked
        up again.
        """
        tries = 0
        while True:
            live = self._restore(path) if self._live is None else self._live
            held = min(live.get_seq_length(), len(path) - 1)
            try:
                with _first_call(self._hf_model) as times:
                    return live, held, answer(path, live), times
            except NotFound:
                tries += 1
                if self._live is not None or tries == _RESTORES:
                    self._live = None
                    raise
            except BaseException as error:
                # A prefix that could not be read is of no use; otherwise the cache is as before.
                _cut(live, held)
                self._live = None if isinstance(error, Error) else live
                raise

    def _restore(self, path: list[int]) -> RaggedCache:
        """A cache over the longest stored prefix of `path`."""
        match = self._find(path) if path else None
        return RaggedCache(self._hf_model, self._cache.get(match) if match else None)

    def _find(self, path: list[int]) -> Match:
        """The stored prefix at the budget `read`, if the session's tip is in it.

        A lookup at a budget skips turns that were computed over fewer entries than it gets. If one
        of the session's own turns is skipped, all that is stored of the path is read.
        """
        how = self._hints | {"keep": self._read, "lease": _LEASE_S}
        session = self._session
        try:
            match = self._cache.lookup(self._model, path, session=session, **how)
        except NotFound:  # the session has expired; its segments may still be stored
            session = None
            match = self._cache.lookup(self._model, path, **how)
        tip = None if self._session is None else self._session.tip
        if tip is None or _has(match, tip):
            return match
        stored = self._cache.lookup(
            self._model, path, lease=_LEASE_S, session=session, **self._hints
        )
        return stored if _has(stored, tip) else match

    def _store(
        self, live: RaggedCache, token_s: float | None
    ) -> tuple[Segment | None, Error | None]:
        """Stores what is not stored yet, and advances the session.

        Args:
            token_s: how long the prefill of a token took in this turn; None: there was none.
        """
        held = live.get_seq_length()
        try:
            segment = self._put(live, token_s)
            if self._session is not None:
                self._session.advance(segment)
        except Error as error:
            warnings.warn(f"the turn is not stored: {error}", stacklevel=4)
            _cut(live, held)
            return None, error
        except BaseException:
            _cut(live, held)
            raise
        return segment, None

    def _put(self, live: RaggedCache, token_s: float | None) -> Segment:
        last = live.stored[-1] if live.stored else None
        if last is not None and last.end == len(self._tokens):  # a message that was stored before
            return last

        def store_from(begin: int) -> Segment:
            # The answer's tokens took longer, but to compute the turn again is one prefill.
            prefill_s = None if token_s is None else token_s * (len(self._tokens) - begin)
            how = {"past": live, "prefill_s": prefill_s, "session": self._session} | self._how
            return store(self._cache, self._model, self._hf_model, self._tokens, **how)[0]

        try:
            return store_from(live.prefix_tokens if last is None else last.end)
        except NotFound:  # a parent was removed meanwhile
            if live.prefix_tokens > 0:
                self._live = None  # a part of its KV is only in the restored prefix
                raise
            live.stored.clear()
            return store_from(0)

    # ---- checks ---------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self!r} is closed; make another one with its tokens to resume it")

    def _check_resumed(self, session: Session) -> None:
        """Raises ValueError if the session's conversation is not that of the tokens."""
        tip = self._cache.segment(session.tip)
        if tip.model != self._model.fingerprint:
            raise ValueError(
                f"session {session.name!r} is a conversation with another model, {tip.model[:12]}; "
                f"this one is {self._model.fingerprint[:12]}"
            )
        if not self._tokens:
            raise ValueError(
                f"session {session.name!r} has a conversation of {tip.end} tokens, and the store "
                "keeps no tokens: give tokens=, which Conversation.tokens had, or another session"
            )
        match = self._cache.lookup(self._model, self._tokens[: tip.end])
        if match.matched_tokens < tip.end and not tip.out_of_service:
            raise ValueError(
                f"tokens: session {session.name!r} has a conversation of {tip.end} tokens, and the "
                f"{len(self._tokens)} given ones have only {match.matched_tokens} in common with "
                "what is stored: they belong to another conversation"
            )


def _cut(live: RaggedCache, length: int) -> None:
    """Makes a cache whole again after a call of the model that did not reach all layers."""
    live.crop(min(length, *(layer.get_seq_length() for layer in live.layers)))


def _has(match: Match, segment: str) -> bool:
    return any(link.segment.id == segment for link in match.links)


@contextlib.contextmanager
def _first_call(hf_model: PreTrainedModel) -> Iterator[list[float]]:
    """Times the first call of the model in the block: its begin and end, or nothing."""
    times: list[float] = []

    def note(*_: object) -> None:
        if len(times) < 2:
            times.append(time_on(hf_model.device))

    with contextlib.ExitStack() as hooks:
        hooks.callback(hf_model.register_forward_pre_hook(note).remove)
        hooks.callback(hf_model.register_forward_hook(note).remove)
        yield times


@contextlib.contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seeds PyTorch within the block; after it, its state of randomness is as before."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)
        yield
