"""precis.profile on a model with sliding windows: what no later query sees is worth nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from precis import hf
from precis.profile.__main__ import main
from precis.profile.oracle import Oracle, value_norms
from precis.profile.probe import repeated_attention


def test_in_a_layer_with_a_window_only_queries_that_see_an_entry_count(tiny_model):
    from precis.eval import models
    from precis.eval.subject import Judge, Reading

    reading = Reading(Judge(models.load(str(tiny_model))), [5 + 7 * i % 30 for i in range(100)])
    judge, window = reading.judge, 64
    assert judge.windows == [window, None, None]
    worth = repeated_attention(reading)
    assert worth[0, :, : 100 - window].eq(0).all() and worth[1].gt(0).all()
    seen = []
    with reading.cache.observed(lambda layer, keys, _, queries: seen.append((keys, queries))):
        hf.forward(judge.hf_model, [*judge.repeat_request, *reading.tokens], reading.cache)
    reading.cache.crop(100)
    keys, queries = seen[0]
    keys = torch.cat([reading.layers[0][0], keys], dim=1).double()
    position = 100 + torch.arange(queries.shape[1])[:, None]
    distance = position - torch.arange(keys.shape[1])
    hidden = (distance < 0) | (distance >= window)
    shares = torch.stack(
        [
            (head.double() @ keys[h // 2].T * 16**-0.5).masked_fill(hidden, -torch.inf).softmax(-1)
            for h, head in enumerate(queries)
        ]
    )
    want = shares[..., :100].amax(dim=1).view(2, 2, 100).mean(dim=1)
    assert torch.allclose(worth[0].double(), want, rtol=1e-3, atol=1e-7)
    oracle = Oracle(reading)
    oracle.add_repetition()
    norms = value_norms(reading.layers[0][1], judge.projection_tensors[0]).double()
    want = (shares[..., :100].amax(dim=1) * norms).view(2, 2, 100).amax(dim=1)
    assert torch.allclose(oracle.worth[0].double(), want, rtol=1e-3, atol=1e-9)
    assert oracle.worth[0, :, : 100 - window].eq(0).all() and oracle.worth[1].gt(0).all()
    answered = Oracle(reading)
    answered.add_answer([20, 9, 14], tokens=4)
    assert answered.worth[0, :, : 103 - window].eq(0).all() and answered.worth[1].gt(0).all()


@pytest.mark.parametrize("worth", ["oracle", "repetition", "scores"])
@pytest.mark.parametrize("recipe", ["lukv(keydiff)", "headkv(keydiff, sinks=4, recent=1)"])
def test_budgets_of_a_model_with_windows_keep_what_is_seen(
    recipe, worth, tiny_model, text_file, tmp_path
):
    out = tmp_path / "mine.json"
    arguments = ["build", "--model", str(tiny_model), "--text", str(text_file), "--out", str(out)]
    arguments += ["--recipe", recipe, "--worth", worth, "--contexts", "1", "--tokens", "150"]
    assert main(arguments) == 0
    table = np.array(json.loads(out.read_text())["table"]).reshape(-1, 3, 2)
    if recipe == "lukv(keydiff)":  # at 19%, little but the 86 hidden entries of one layer is pruned
        assert table[18, 0] == pytest.approx(86 / 150, abs=0.04)
        assert table[18, 1:].mean() < 0.03
    else:  # 63 of the 145 ranked tokens are seen
        assert (table[0, 0] <= 63 / 145).all() and table[0, 0].any()
