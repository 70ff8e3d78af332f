"""Other weights are another model to the store, whatever path they were loaded from."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import SEED
from tiny_models import SHAPE
from transformers import (
    AutoModelForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

import precis
from precis import hf
from precis.hf import weight_files
from precis.hf.weight_marks import PIECE_BYTES, marks_of


def build(seed: int = SEED, **changes: object) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(vocab_size=100, **(SHAPE | changes))).eval()


def load(folder, **options: object) -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def revision(model) -> str:
    return hf.model_spec(model).revision


@pytest.fixture
def folder(tmp_path) -> Path:
    """The folder of a model whose weights are in several files."""
    path = tmp_path / "model"
    build().save_pretrained(path, max_shard_size="20KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


def test_other_weights_under_the_same_path_are_never_served_the_first_ones(cache, folder):
    tokens = list(range(64))
    first = load(folder)
    model = cache.register_model(hf.model_spec(first))
    hf.store(cache, model, first, tokens, keep=1.0)
    assert cache.lookup(model, tokens).matched_tokens == 64
    shutil.rmtree(folder)
    build(seed=1).save_pretrained(folder)
    other = cache.register_model(hf.model_spec(load(folder)))
    assert other.fingerprint != model.fingerprint
    assert not cache.lookup(other, tokens)
    shutil.rmtree(folder)
    build().save_pretrained(folder)
    again = cache.register_model(hf.model_spec(load(folder)))
    assert cache.lookup(again, tokens).matched_tokens == 64


def test_the_same_weights_have_one_revision_in_any_process_place_and_form(folder, tmp_path):
    want = revision(load(folder))
    assert want.startswith("weights-") and len(want) == 40
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    program = (
        "import sys, transformers\nfrom precis import hf\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "print(hf.model_spec(model).revision)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(moved)], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == want
    one_file = tmp_path / "one"
    load(folder).save_pretrained(one_file)
    assert revision(load(one_file)) == want
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert revision(load(link)) == want
    assert revision(build()) == want  # only in memory
    assert hf.model_spec(load(folder)) == hf.model_spec(load(moved)) == hf.model_spec(build())


def change_one_element(model) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] += 1e-3


def swap_rows(model) -> None:
    """The sums over the whole tensor stay the same."""
    rows = model.model.embed_tokens.weight.data
    rows[[7, 40]] = rows[[40, 7]]


def swap_rows_beside_each_other(model) -> None:
    rows = model.model.embed_tokens.weight.data
    rows[[6, 7]] = rows[[7, 6]]


def merge_an_adapter(model) -> None:
    for layer in model.model.layers:
        weight = layer.self_attn.q_proj.weight
        weight.data += 0.01 * torch.randn(len(weight), 2) @ torch.randn(2, weight.shape[1])


def replace_a_parameter(model) -> None:
    norm = model.model.norm
    norm.weight = torch.nn.Parameter(norm.weight.detach().clone() * 2)


def change_an_epsilon(model) -> None:
    model.config.rms_norm_eps = 1e-3


@pytest.mark.parametrize(
    "change",
    [
        change_one_element,
        swap_rows,
        swap_rows_beside_each_other,
        merge_an_adapter,
        replace_a_parameter,
        change_an_epsilon,
    ],
)
def test_weights_that_were_changed_after_loading_are_other_weights(folder, change):
    model = load(folder)
    before = revision(model)
    kept = copy.deepcopy(model)
    change(model)
    assert revision(model) != before
    assert revision(kept) == before


def mark(tensor: torch.Tensor) -> str:
    return dict(marks_of([("one", tensor)]))["one"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1024, 32), (512, 512), (8, 128), (PIECE_BYTES // 8, 16)])
def test_no_bytes_change_places_unseen(dtype, shape):
    torch.manual_seed(SEED)
    tensor = torch.randn(shape).to(dtype)
    seen = {mark(tensor)}
    for one, other in ((0, 1), (6, 7), (0, len(tensor) - 1)):
        swapped = tensor.clone()
        swapped[[one, other]] = swapped[[other, one]]
        seen.add(mark(swapped))
    words = tensor.reshape(-1, 8 // tensor.element_size())
    seen.add(mark(words.flip(0).reshape(shape)))
    seen.add(mark(tensor.reshape(-1)))
    assert len(seen) == 6


def test_a_mark_is_of_the_elements_however_they_lie_in_memory():
    tensor = torch.arange(600.0).reshape(20, 30)
    assert mark(tensor.t().contiguous().t()) == mark(tensor)
    assert mark(torch.cat([torch.zeros(1), tensor.reshape(-1)])[1:].view(20, 30)) == mark(tensor)
    assert mark(torch.zeros(0)) != mark(torch.zeros(0, 2))
    names = [str(i) for i in range(200)]
    marks = dict(marks_of((name, torch.full((3,), float(name))) for name in names))
    assert list(marks) == names and len(set(marks.values())) == 200


SMALL = SHAPE | {"vocab_size": 64, "intermediate_size": 32, "pad_token_id": None}
NO_CHUNKS = {
    "layer_types": ["full_attention"] * SHAPE["num_hidden_layers"],
    "num_local_experts": 2,
    "intermediate_size_mlp": 32,
    "floor_scale": 1,
    "no_rope_layers": [0] * SHAPE["num_hidden_layers"],
}


@pytest.mark.parametrize(
    ("kind", "config", "one", "other"),
    [
        (OlmoForCausalLM, OlmoConfig, {"clip_qkv": None}, {"clip_qkv": 0.05}),
        (
            Starcoder2ForCausalLM,
            Starcoder2Config,
            {"norm_epsilon": 1e-5},
            {"norm_epsilon": 0.1},
        ),
        (
            Llama4ForCausalLM,
            Llama4TextConfig,
            NO_CHUNKS | {"attn_temperature_tuning": True},
            NO_CHUNKS | {"attn_temperature_tuning": False},
        ),
    ],
)
def test_a_setting_that_changes_k_or_v_makes_another_revision(kind, config, one, other):
    keys, revisions = [], []
    for settings in (one, other):
        torch.manual_seed(SEED)
        model = kind(config(**SMALL | settings)).eval()
        revisions.append(revision(model))
        with torch.no_grad():
            cache = model(torch.tensor([[1, 2, 3, 4]])).past_key_values
        keys.append([layer.keys for layer in cache.layers])
    assert not all(torch.equal(a, b) for a, b in zip(*keys, strict=True))
    assert revisions[0] != revisions[1]


def test_a_setting_that_leaves_k_and_v_alone_makes_no_other_revision(folder):
    model = load(folder)
    want = revision(model)
    config = model.config
    config.use_cache, config.output_hidden_states, config.eos_token_id = False, True, 7
    config.architectures, config.initializer_range = ["Other"], 0.5
    assert revision(model) == want


def test_the_dtype_of_the_weights_counts_and_not_only_that_of_the_store(folder):
    whole, half = load(folder), load(folder, dtype=torch.bfloat16)
    assert hf.model_spec(whole, dtype="bf16").revision != hf.model_spec(half).revision


def test_adapters_count_with_how_they_are_applied():
    peft = pytest.importorskip("peft")
    base = revision(build())

    def adapted(alpha: int):
        torch.manual_seed(SEED)
        config = peft.LoraConfig(r=2, lora_alpha=alpha, target_modules=["q_proj"])
        return peft.get_peft_model(build(), config).base_model.model

    one, same, stronger = adapted(4), adapted(4), adapted(8)
    assert revision(one) == revision(same) != base
    assert revision(stronger) != revision(one)
    lora = one.model.layers[0].self_attn.q_proj
    lora.enable_adapters(False)
    assert revision(one) != revision(same)


def test_a_revision_that_is_given_stands_in_place_of_the_weights():
    first, other = build(), build(seed=1)
    assert hf.model_spec(first, "m", "r1") == hf.model_spec(other, "m", "r1")
    meta = build().to("meta")
    assert hf.model_spec(meta, revision="r1").revision == "r1"


def test_no_name_is_a_path_of_this_machine(folder, tmp_path, monkeypatch):
    assert hf.model_spec(load(folder)).name == "LlamaForCausalLM"
    monkeypatch.chdir(tmp_path)
    assert hf.model_spec(load("model")).name == "LlamaForCausalLM"
    assert hf.model_spec(build()).name == "LlamaForCausalLM"
    snapshot = tmp_path / "hub/models--some-lab--small-model/snapshots/0123abcd"
    shutil.copytree(folder, snapshot)
    assert hf.model_spec(load(snapshot)).name == "some-lab/small-model"
    loaded = load(folder)
    loaded.config.name_or_path, loaded.config._commit_hash = "some-lab/small-model", "0123abcd"
    assert hf.model_spec(loaded).name == "some-lab/small-model"
    loaded.config._commit_hash = None  # so the name may be a path, relative to another folder
    assert hf.model_spec(loaded).name == "LlamaForCausalLM"


def test_dtypes_are_taken_by_the_names_that_numpy_and_torch_have_and_others_refused():
    model = build()
    assert hf.model_spec(model, revision="r", dtype="float16").dtype == "f16"
    assert precis.ModelSpec("m", 1, 1, 1, 8, dtype="bfloat16").dtype == "bf16"
    with pytest.raises(ValueError, match="dtype: 'fp8', must be bf16, f16 or f32"):
        hf.model_spec(model, revision="r", dtype="fp8")


# ---- weights that are not whole in memory: their files are read ---------------------------------


def record_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.precis-weights")


def test_weights_that_were_moved_out_of_memory_are_those_of_their_files(folder, monkeypatch):
    want = revision(load(folder))
    away = load(folder).to("meta")
    assert revision(away) == want
    for file in folder.glob("*.safetensors"):
        assert json.loads(record_of(file).read_text())["marks"]
    # From the second time on only the records are read.
    monkeypatch.setattr(weight_files, "_read", None)
    assert revision(away) == want


def test_a_record_beside_a_file_counts_only_for_that_file_and_whole(folder):
    away = load(folder).to("meta")
    want = revision(away)
    file = sorted(folder.glob("*.safetensors"))[0]
    whole = record_of(file).read_text()
    for torn in ("", whole[:-40], whole[: len(whole) // 2], "[]", "null", "{}", "\x00" * 64):
        record_of(file).write_text(torn)
        assert revision(away) == want
        assert record_of(file).read_text() == whole
    lie = json.loads(whole)
    lie["marks"] = dict.fromkeys(lie["marks"], "0" * 32)
    record_of(file).write_text(json.dumps(lie))
    assert revision(away) == want


def test_a_file_of_the_same_size_and_mtime_in_its_place_is_another(folder, tmp_path):
    away = load(folder).to("meta")
    want = revision(away)
    build(seed=1).save_pretrained(tmp_path / "other", max_shard_size="20KB")
    for file in folder.glob("*.safetensors"):
        before = file.stat()
        replacement = tmp_path / "other" / file.name
        assert replacement.stat().st_size == before.st_size
        file.write_bytes(replacement.read_bytes())  # the same inode, too
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert revision(away) == revision(load(tmp_path / "other")) != want


def test_where_the_folder_cannot_be_written_the_record_is_in_the_users_cache(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    away = load(folder).to("meta")
    real = weight_files.tempfile.mkstemp

    def refuse(dir: Path, prefix: str) -> tuple[int, str]:  # also for root, who may write anywhere
        if dir == folder:
            raise PermissionError(13, "Permission denied")
        return real(dir=dir, prefix=prefix)

    monkeypatch.setattr(weight_files.tempfile, "mkstemp", refuse)
    want = revision(away)
    shards = len(list(folder.glob("*.safetensors")))
    assert len(list((tmp_path / "home/precis").iterdir())) == shards
    assert not list(folder.glob(".*"))
    monkeypatch.setattr(weight_files, "_read", None)
    assert revision(away) == want


def test_a_link_of_a_hubs_cache_is_remembered_beside_what_it_leads_to(folder, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/0123"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for index, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, blobs / f"{index:04}")
        (snapshot / file.name).symlink_to(blobs / f"{index:04}")
    assert revision(load(snapshot).to("meta")) == revision(load(folder))
    assert list(blobs.glob(".*.precis-weights")) and not list(snapshot.glob(".*"))


def test_weights_that_are_nowhere_to_be_read_ask_for_a_revision(folder):
    away = load(folder).to("meta")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ValueError, match=r"not whole in this process's memory.*name the revision"):
        hf.model_spec(away)
    with pytest.raises(ValueError, match="name the revision"):
        hf.model_spec(build().to("meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_weights_on_a_gpu_have_the_revision_of_those_in_host_memory():
    assert revision(build().to("cuda")) == revision(build())
