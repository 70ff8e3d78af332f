"""precis.hf.Conversation: turns over a live cache, resumed from the store, forked and stored."""

from __future__ import annotations

import time
import weakref

import pytest
import torch
from conftest import SEED
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.generation.streamers import BaseStreamer

import precis
from precis import hf
from precis.hf.chat import Chat
from precis.hf.pusher import Pusher

BOUND = 1e-3  # max abs difference of logits in float32
NEW = 8
TEMPLATE = (  # in words of the tokenizer
    "{% set marks = {'system': 'The', 'user': 'What', 'assistant': 'Repeat'} %}"
    "{% for m in messages %}{{ marks[m.role] }} {{ m.content }} .\n{% endfor %}"
    "{% if add_generation_prompt %}Repeat {% endif %}"
)
PROBE = [3, 9, 4, 7]


@pytest.fixture(scope="module")
def hf_model(tiny_llama):
    model = AutoModelForCausalLM.from_pretrained(tiny_llama).eval()
    model.generation_config.eos_token_id = None
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_llama):
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.chat_template = None
    return tokenizer


@pytest.fixture
def store(tmp_path):
    with precis.open(tmp_path / "cache") as cache:
        yield cache


@pytest.fixture
def talk(store, hf_model, request):
    """Makes conversations at keep 1.0, unless told otherwise."""
    model = store.register_model(hf.model_spec(hf_model, name=request.node.nodeid[-200:]))

    def start(session="chat", tokens=(), keep=1.0, tokenizer=None, **options):
        return hf.Conversation(
            store, model, hf_model, tokenizer, session=session, tokens=tokens, keep=keep, **options
        )

    start.model = model
    return start


def words(count: int, seed: int = SEED) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 25, (count,), generator=generator).tolist()


def logits(conversation: hf.Conversation, hf_model) -> torch.Tensor:
    """Logits over the live cache. With random weights, equal tokens would prove little."""
    return hf.forward(hf_model, PROBE, conversation.live.fork())


def plain(hf_model, tokens: list[int]) -> torch.Tensor:
    return hf.forward(hf_model, tokens + PROBE, hf.RaggedCache(hf_model))[-len(PROBE) :]


def near(some: torch.Tensor, others: torch.Tensor) -> bool:
    return bool((some - others).abs().max() <= BOUND)


def test_turns_answer_as_transformers_does_and_read_only_what_is_new(talk, store, hf_model):
    chat = talk()
    path: list[int] = []
    for i, count in enumerate((90, 7, 30)):
        message = words(count, i)
        turn = chat.say(message, max_new_tokens=NEW)
        path += message
        ids = torch.tensor([path])
        theirs = hf_model.generate(
            ids, max_new_tokens=NEW, do_sample=False, attention_mask=torch.ones_like(ids)
        )
        assert turn.answer == theirs[0, len(path) :].tolist()
        assert (turn.read, turn.reused, turn.restored) == (count, len(path) - count, 0)
        begin = len(path) - count
        path += turn.answer
        assert (turn.segment.begin, turn.segment.end) == (begin, len(path))
        assert turn.error is None
        assert chat.tokens == path
        assert near(logits(chat, hf_model), plain(hf_model, path))
    tip = store.session("chat")
    assert (tip.turns, tip.tip, tip.tip_end) == (3, turn.segment.id, len(path))


@pytest.mark.parametrize("folder", ["tiny_llama", "tiny_model"])
def test_a_resumed_conversation_goes_on_as_the_live_one(folder, request, tmp_path):
    hf_model = AutoModelForCausalLM.from_pretrained(request.getfixturevalue(folder)).eval()
    spec = hf.model_spec(hf_model)

    def turns(cache, tokens, messages):
        model = cache.register_model(spec)
        with hf.Conversation(cache, model, hf_model, session="a", tokens=tokens, keep=1.0) as chat:
            said = [chat.say(message, max_new_tokens=NEW) for message in messages]
            return said, chat.tokens, logits(chat, hf_model)

    messages = [words(90, 1), words(12, 2), words(20, 3)]
    with precis.open(tmp_path / "live") as cache:
        live, _, expected = turns(cache, (), messages)
    tokens, tip = [], None
    for i, message in enumerate(messages):
        with precis.open(tmp_path / "resumed") as cache:  # a service of its own for each turn
            (turn,), tokens, found = turns(cache, tokens, [message])
            assert turn.answer == live[i].answer
            assert turn.restored == turn.reused == live[i].reused
            assert turn.read == len(message)
            assert turn.segment.parent == tip
            tip = turn.segment.id
            assert cache.session("a").turns == i + 1
    assert near(found, expected)


def test_below_keep_1_a_resumed_conversation_reads_what_was_kept(talk, store, hf_model):
    how = {"recipe": "global_kvdiff(min_entries=8)", "keep": 0.5}
    chat = talk(**how)
    chat.say(words(90), max_new_tokens=NEW)
    again = talk(tokens=chat.tokens, read=0.3, **how)
    message = words(9, 2)
    turn = again.say(message, max_new_tokens=NEW)
    match = store.lookup(talk.model, chat.tokens, keep=0.3)
    by_hand = hf.RaggedCache(hf_model, store.get(match))
    assert turn.answer == list(hf.generate(hf_model, message, by_hand, NEW, stop=()))
    assert turn.segment.parent_read == precis.ratio(0.3)
    hf.forward(hf_model, turn.answer[-1:], by_hand)
    found = logits(again, hf_model)
    assert near(found, hf.forward(hf_model, PROBE, by_hand))
    assert not near(found, plain(hf_model, again.tokens))
    # The turn was computed over few entries. Its own session finds it at any budget.
    more = talk(tokens=again.tokens, **how)
    turn = more.say(message, max_new_tokens=NEW)
    assert (turn.restored, turn.error) == (len(again.tokens), None)


def test_the_live_cache_serves_the_next_turn_without_a_get(talk, monkeypatch):
    chat = talk(tokens=())
    chat.say(words(40), max_new_tokens=NEW)

    def refuse(*_args, **_options):
        raise AssertionError("a live conversation asks the store for nothing")

    for name in ("lookup", "get"):
        monkeypatch.setattr(precis.Cache, name, refuse)
    turn = chat.say(words(5, 2), max_new_tokens=NEW)
    assert turn.restored == 0 < turn.reused
    chat.unload()
    with pytest.raises(AssertionError):
        chat.say(words(5, 2))


def test_forks_go_on_independently(talk, store, hf_model):
    chat = talk()
    first = chat.say(words(70), max_new_tokens=NEW)
    before = chat.tokens
    count = len(store.segments(talk.model))
    forks = [chat.fork("left"), chat.fork("right"), chat.fork()]
    assert len(store.segments(talk.model)) == count
    assert forks[0].live.layers[0].keys.data_ptr() == chat.live.layers[0].keys.data_ptr()
    for i, one in enumerate([chat, *forks]):
        turn = one.say(words(6 + i, 10 + i), max_new_tokens=NEW)
        assert (turn.reused, turn.restored, turn.read) == (len(before), 0, 6 + i)
        assert turn.segment.parent == first.segment.id
    for i, one in enumerate([chat, *forks]):
        assert one.tokens[: len(before) + 6 + i] == before + words(6 + i, 10 + i)
        assert near(logits(one, hf_model), plain(hf_model, one.tokens))
    assert [forks[2].session, store.session("left").tip_end] == [None, len(forks[0].tokens)]
    again = talk("right", tokens=forks[1].tokens)
    assert again.say(words(4), max_new_tokens=1).restored == len(forks[1].tokens)
    with pytest.raises(precis.Error, match="right"):
        chat.fork("right")


def test_turns_have_the_hints_of_their_conversation(talk, store):
    first = talk(priority=80, ttl_s=60).say(words(30), max_new_tokens=NEW).segment
    assert (first.priority, first.ttl_seconds, first.expected_unix_ms) == (80, 60, 0)
    tokens = talk("other", priority=20, expect_reuse_in_s=60)
    turn = tokens.say(words(30) + words(9, 2), max_new_tokens=NEW)
    assert turn.segment.priority == 20 and turn.segment.expected_unix_ms > 0


def test_a_conversation_outlives_its_session(talk, store):
    chat = talk("short", ttl=1)
    before = chat.say(words(30), max_new_tokens=NEW)
    chat.unload()
    while any(session.name == "short" for session in store.sessions()):
        time.sleep(0.05)
    with pytest.warns(UserWarning, match="short"):  # no session to advance
        after = chat.say(words(9, 2), max_new_tokens=NEW)
    assert after.restored == len(chat.tokens) - 9 - NEW
    assert before.segment.id != (after.segment and after.segment.id)


def test_turns_say_how_long_their_prefill_took(talk, store, hf_model):
    chat = talk()
    turn = chat.say(words(60), max_new_tokens=NEW)
    assert 0 < turn.segment.prefill_seconds < turn.seconds
    added = chat.add(words(40, 2))
    assert 0 < added.segment.prefill_seconds < added.seconds
    chat.unload()  # the next turn reads what is stored
    turn = chat.say(words(50, 3), max_new_tokens=NEW)
    assert 0 < turn.segment.prefill_seconds < turn.seconds

    alone, prefilled = hf.store(store, talk.model, hf_model, words(50, 4))
    assert alone.prefill_seconds == pytest.approx(prefilled.read_seconds)
    again, prefilled = hf.store(
        store, talk.model, hf_model, words(50, 4), recipe="knorm", past=prefilled.cache
    )
    assert prefilled.read == 1 and again.prefill_seconds == 0  # the cache had the others
    said, _ = hf.store(store, talk.model, hf_model, words(50, 5), prefill_s=7)
    assert said.prefill_seconds == 7


def test_a_seed_gives_the_same_answer_and_another_seed_another(talk):
    chat = talk()
    chat.say(words(50), max_new_tokens=NEW)
    options = {"max_new_tokens": 16, "temperature": 1.5, "top_p": 0.95, "top_k": 40}

    def answer(seed, **more):
        return chat.fork().say(words(5, 2), seed=seed, **(options | more)).answer

    state = torch.get_rng_state()
    one = answer(SEED)
    assert torch.equal(torch.get_rng_state(), state)
    assert answer(SEED) == one
    assert answer(SEED + 1) != one
    assert answer(SEED, temperature=0.01, top_k=0, top_p=1.0) != one
    stop = one[3]
    until = one[: one.index(stop) + 1]
    assert answer(SEED, eos_token_id=stop) == until  # other options are those of generate()


def test_text_goes_through_the_chat_template(talk, tokenizer, tiny_llama):
    template = AutoTokenizer.from_pretrained(tiny_llama)
    template.chat_template = TEMPLATE
    end = template(".").input_ids[0]
    chat = talk(tokenizer=template)
    chat.add([{"role": "system", "content": "any work"}])
    texts = []
    for question in ("the code", "any source"):
        turn = chat.say(question, max_new_tokens=3)
        texts.append(template.decode(turn.answer))
        assert turn.text == template.decode(turn.answer, skip_special_tokens=True)
    chat.say([{"role": "user", "content": "the terms"}], max_new_tokens=1)
    asked = [("system", "any work"), ("user", "the code"), ("assistant", texts[0])]
    asked += [("user", "any source"), ("assistant", texts[1]), ("user", "the terms")]
    messages = [{"role": role, "content": text} for role, text in asked]
    whole = template.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert chat.tokens[:-1] == template(whole, add_special_tokens=False).input_ids
    # An answer that the model has ended itself is not ended twice.
    ended = Chat(template).encode("any", [*chat.tokens, end], answered=True)
    assert template.decode(ended) == "What any . Repeat"
    cut = Chat(template).encode("any", chat.tokens, answered=True)
    assert template.decode(cut) == ". What any . Repeat"
    # Without a template, text follows as it is.
    bare = talk("bare", tokenizer=tokenizer)
    bare.say("the code", max_new_tokens=1)
    assert bare.tokens[:2] == tokenizer("the code").input_ids


def test_a_real_model_resumes_a_chat_as_it_went_on(smollm2, tmp_path):
    hf_model, tokenizer = smollm2
    questions = ["Name two colours.", "And one more?", "Which was the first?"]
    with precis.open(tmp_path / "cache") as cache:
        model = cache.register_model(hf.model_spec(hf_model, name="real", revision="1"))
        how = {"keep": 1.0, "tokenizer": tokenizer}
        with hf.Conversation(cache, model, hf_model, session="live", **how) as chat:
            live = [chat.say(question, max_new_tokens=12) for question in questions]
            tokens = chat.tokens
        again: list[int] = []
        for question, turn in zip(questions, live, strict=True):
            with hf.Conversation(cache, model, hf_model, tokens=again, **how) as chat:
                assert chat.say(question, max_new_tokens=12).text == turn.text
                again = chat.tokens
    assert again == tokens
    messages = []
    for question, turn in zip(questions, live, strict=True):
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": turn.text},
        ]
    said = tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
    assert said.removesuffix("<|im_end|>") == tokenizer.decode(tokens).removesuffix("<|im_end|>")


def test_a_system_prompt_is_shared_by_conversations(talk, store):
    prompt = words(70)
    one, other = talk("one"), talk("other")
    first = one.add(prompt)
    assert (first.answer, first.read, first.text) == ([], 70, "")
    assert other.add(prompt).segment.id == first.segment.id
    assert other.session.tip == first.segment.id
    ways = [chat.say(words(5, i), max_new_tokens=NEW) for i, chat in enumerate((one, other))]
    assert [turn.segment.parent for turn in ways] == [first.segment.id] * 2
    third = talk("third")  # finds the prompt and reads no token of it again
    turn = third.say(prompt + words(9, 3), max_new_tokens=NEW)
    assert (turn.restored, turn.read, turn.segment.parent) == (70, 9, first.segment.id)
    fourth = talk("fourth").say(prompt, max_new_tokens=NEW)  # its last token is read again
    assert (fourth.restored, fourth.read, fourth.segment.begin) == (69, 1, 70)


@pytest.mark.parametrize("recipe", ["snapkv(window=16)", "expected_attention", "kvzip"])
def test_recipes_that_need_more_than_keys_and_values_store_turns(talk, hf_model, recipe):
    chat = talk(recipe=recipe)
    for i in range(3):
        turn = chat.say(words(20, i), max_new_tokens=NEW)
        assert turn.error is None
    again = talk(tokens=chat.tokens)
    again.say(words(3), max_new_tokens=1)
    assert near(logits(again, hf_model), plain(hf_model, again.tokens))


def test_close_frees_the_cache_and_may_remove_the_session(talk, store):
    with talk() as chat:
        turn = chat.say(words(40), max_new_tokens=NEW)
        sub = chat.fork("sub")
        sub.say(words(4), max_new_tokens=NEW)
        sub.close(remove=True)
        sub.close(remove=True)
        live = weakref.ref(chat.live)
    assert live() is None
    assert [session.name for session in store.sessions()] == ["chat"]
    assert store.segment(turn.segment.id).children == 1  # what the subagent stored is still there
    for call in (lambda: chat.say([1]), lambda: chat.add([1]), lambda: chat.fork("x")):
        with pytest.raises(ValueError, match=r"'chat'.* is closed"):
            call()


@pytest.mark.parametrize("recipe", ["global_kvdiff", "snapkv(window=16)"])
def test_an_answer_outlives_a_store_that_fails(talk, monkeypatch, hf_model, recipe):
    chat = talk(recipe=recipe)
    first = chat.say(words(40), max_new_tokens=NEW)
    with monkeypatch.context() as patch:

        def fail(_pusher, layer, *_arrays):
            if layer == 1:  # within a call of the model
                raise precis.Unavailable("the service is away")

        patch.setattr(Pusher, "offer", fail)
        with pytest.warns(UserWarning, match="not stored: the service is away"):
            turn = chat.say(words(9, 2), max_new_tokens=NEW)
        assert isinstance(turn.error, precis.Unavailable)
        assert (turn.segment, len(turn.answer)) == (None, NEW)
    after = chat.say(words(5, 3), max_new_tokens=NEW)
    assert (after.segment.parent, after.segment.begin) == (first.segment.id, first.segment.end)
    assert after.segment.end == chat.session.tip_end == len(chat.tokens)
    assert near(logits(chat, hf_model), plain(hf_model, chat.tokens))


def test_turns_that_were_removed_are_stored_again(talk, store):
    chat = talk()
    first = chat.say(words(40), max_new_tokens=NEW)
    store.remove(first.segment, recursive=True)
    turn = chat.say(words(9, 2), max_new_tokens=NEW)  # the live cache has it all
    assert (turn.segment.begin, turn.error) == (0, None)
    resumed = talk(tokens=chat.tokens)
    kept = resumed.say(words(3), max_new_tokens=NEW).segment
    store.remove(turn.segment, recursive=True)
    with pytest.warns(UserWarning, match="not stored"):  # a part of the path was only in the store
        lost = resumed.say(words(4), max_new_tokens=NEW)
    assert isinstance(lost.error, precis.NotFound)
    last = resumed.say(words(5), max_new_tokens=NEW)
    assert (last.segment.begin, last.restored, last.error) == (0, 0, None)
    assert last.segment.end > kept.end


class Interrupt(BaseStreamer):
    """Interrupts generation at its third call."""

    calls = 0

    def put(self, value):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt

    def end(self):
        pass


@pytest.mark.parametrize("resumed", [False, True])
def test_an_interrupted_turn_leaves_the_conversation_as_it_was(talk, hf_model, resumed):
    chat = talk()
    chat.say(words(40), max_new_tokens=NEW)
    if resumed:
        chat.unload()
    before, message = chat.tokens, words(9, 2)
    with pytest.raises(KeyboardInterrupt):
        chat.say(message, max_new_tokens=NEW, streamer=Interrupt())
    assert (chat.tokens, chat.session.tip_end) == (before, len(before))
    chat.say(message, max_new_tokens=NEW)
    assert near(logits(chat, hf_model), plain(hf_model, chat.tokens))


def test_what_a_conversation_cannot_do_says_so(talk, store, hf_model, tokenizer):
    chat = talk()

    def refused(match, *args, call=chat.say, **options):
        with pytest.raises(ValueError, match=match):
            call(*args, **options)

    refused("text needs a tokenizer", "hello")
    refused("it has no tokens", [])
    refused("top_p: needs a temperature", [1, 2], top_p=0.5)
    refused("num_beams: a turn has one answer", [1, 2], num_beams=2)
    refused("return_dict_in_generate", [1, 2], return_dict_in_generate=True)
    refused("past_key_values", [1, 2], past_key_values=DynamicCache())
    bare = talk("bare", tokenizer=tokenizer)
    refused("messages need a chat template", [{"role": "user", "content": "a"}], call=bare.say)
    assert (chat.tokens, chat.live) == ([], None)
    chat.say(words(70), max_new_tokens=NEW)
    refused("keeps no tokens: give tokens=", call=talk)
    refused("belong to another conversation", tokens=words(90, 2), call=talk)
    refused("belong to another conversation", tokens=chat.tokens[:70], call=talk)
    other = store.register_model(hf.model_spec(hf_model, name="another"))
    refused("with another model", store, other, hf_model, session="chat", call=hf.Conversation)
    with pytest.warns(UserWarning, match="not stored"):  # another client advanced the session
        rival = talk(tokens=chat.tokens)
        rival.say(words(3), max_new_tokens=NEW)
        assert chat.say(words(5), max_new_tokens=NEW).error is not None


def test_turns_get_the_budget_of_their_session(talk, store, hf_model):
    store.session("chat")
    store.set_budget(recipe="global_kvdiff", keep=0.5, session="chat")
    chat = talk(keep=None)
    assert chat.add(words(40)).segment.keep == precis.ratio(0.5)
    helper = chat.fork("helper")  # without a budget of its own
    assert helper.add(words(9, 2)).segment.keep == store.budgets().effective.keep
    stored = hf.store(store, talk.model, hf_model, words(20, 3), session="chat")[0]
    assert stored.keep == precis.ratio(0.5)


def until(condition) -> None:
    """Waits until the service has made the condition true in the background."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the service has not done it within a minute"
        time.sleep(0.001)


@pytest.mark.parametrize("total", [0.3, "400 KiB"])
def test_a_total_bounds_what_all_turns_take_and_keeps_the_newest(talk, store, total):
    def turns():
        return sorted(store.segments(talk.model), key=lambda turn: turn.begin)

    def holds():
        stored = turns()
        if isinstance(total, str):
            return sum(turn.bytes for turn in stored) <= 400 << 10
        # If the total is a share, the others make no room for the newest turn.
        full = sum(turn.original_bytes for turn in stored)
        return sum(turn.bytes for turn in stored[:-1]) <= total * full

    with talk(recipe="global_kvdiff", total=total) as chat:
        for number in range(24):
            segment = chat.say(words(40, seed=number), max_new_tokens=NEW).segment
            assert (segment.trimmed, chat.session.tip) == (None, segment.id)
            # A short conversation may exceed its total by headers and a part of its newest turn.
            if number > 12:
                until(holds)
        newest = turns()[-1]
        assert (newest.id, newest.trimmed) == (segment.id, None)
        shares = [turn.kept / (turn.end - turn.begin) for turn in turns()]
        assert max(shares[:-1]) <= shares[-1] and shares[0] < shares[-1]
        tokens = chat.tokens
    again = talk(tokens=tokens, recipe="global_kvdiff")
    assert again.session.total is not None  # which the session has kept
    assert again.say(words(5), max_new_tokens=2).restored == len(tokens)


def test_a_turn_that_is_trimmed_while_it_is_restored_is_looked_up_again(talk, store, monkeypatch):
    with talk(recipe="global_kvdiff") as chat:
        segment = chat.say(words(40), max_new_tokens=NEW).segment
        tokens = chat.tokens
    lookup, trims = precis.Cache.lookup, [8, 4]

    def trimmed_after(self, *args, **options):
        match = lookup(self, *args, **options | {"lease": 0})
        if trims:
            store.trim(segment.id, keep=precis.entries(trims.pop(0)))
        return match

    monkeypatch.setattr(precis.Cache, "lookup", trimmed_after)
    again = talk(tokens=tokens, recipe="global_kvdiff")
    assert again.say(words(5), max_new_tokens=2).restored == len(tokens)
    assert trims == []


def test_a_total_leaves_what_others_continue(talk, store):
    with talk(recipe="global_kvdiff", total="8 KiB") as chat:
        first = chat.add(words(60)).segment
        talk(session="other", tokens=chat.tokens, recipe="global_kvdiff").add(words(20, seed=9))
        turns = [chat.add(words(20, seed=turn + 20)).segment for turn in range(3)]
        until(lambda: store.segment(turns[1].id).trimmed == precis.ratio(0.05))
        assert store.segment(first.id).trimmed is None
        assert store.segment(turns[2].id).trimmed is None


def test_a_total_is_bytes_or_a_share_of_a_session(talk, store):
    with pytest.raises(precis.InvalidArgument, match="total is 5 entries"):
        talk(total="5 entries")
    with pytest.raises(ValueError, match="total: it is kept for a session"):
        talk(session=None, total=0.3)
    chat = talk(total=0.3)
    assert chat.session.total == chat.fork("helper").session.total == precis.ratio(0.3)
    assert store.session("chat", total=precis.ALL).total is None
