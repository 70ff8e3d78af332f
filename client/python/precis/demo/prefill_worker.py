"""The prefill worker: reads the document, pushes its KV layer by layer, and exits."""

from __future__ import annotations

import sys
import time

import precis
from precis import hf
from precis.eval.models import SMOLLM2

from .worker import Job, tell


def main(path: str) -> None:
    job = Job.load(path)
    start = time.perf_counter()
    hf_model, _ = SMOLLM2.load()
    tell("loaded", seconds=time.perf_counter() - start)
    cache = precis.connect(job.address)
    spec = hf.model_spec(hf_model, SMOLLM2.name, SMOLLM2.revision())
    model = cache.register_model(spec)
    put = cache.begin_put(model, job.tokens, recipe=job.recipe, keep=job.keep)
    read = hf.prefill(
        hf_model,
        job.tokens,
        put,
        progress=lambda layer: tell("layer", done=layer + 1, layers=spec.num_layers),
    )
    start = time.perf_counter()
    segment = put.commit(durability="wal")
    cache.session(job.session, ttl=3600).advance(segment)
    tell(
        "stored",
        segment=segment.id,
        tokens=segment.end - segment.begin,
        original_bytes=segment.original_bytes,
        stored_bytes=segment.bytes,
        kept=segment.kept,
        plan_min=int(segment.plan.min()),
        plan_max=int(segment.plan.max()),
        prefill_seconds=read.seconds,
        push_seconds=read.push_seconds,
        compress_seconds=segment.compress_seconds,
        commit_seconds=time.perf_counter() - start,
    )


if __name__ == "__main__":
    main(sys.argv[1])
