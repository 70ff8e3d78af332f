r"""Precis for vLLM: requests decode over a compressed prefix, and prompts are stored as one.

vLLM loads this plug-in in every process of an engine, by the entry point group
``vllm.general_plugins``. One flag turns it on::

    vllm serve MODEL --kv-transfer-config \
        '{"kv_connector": "PrecisConnector", "kv_role": "kv_both"}'

How it works: with vLLM's layout LBHNC the K and V of one (layer, block, KV head) are a page of
their own. A block is then L*H pages, and a prefix whose heads keep different numbers of entries
takes ceil(pages / (L*H)) blocks, whatever layer and head its pages serve.

- settings.py: what an operator sets, and what a request asks for. What it shares with other
  plug-ins, the way to the service above all, is precis.engines.
- plan.py: which pages a prefix takes, and where they lie. Arithmetic alone.
- blocks.py: the scheduler's block manager, which gives such a request its blocks.
- scheduler.py: which requests stand on a stored prefix, and which prompts are stored.
- worker.py: fetches prefixes into pages, pushes prompts out of pages.
- attention.py: each KV head is a sequence of its own for the stock kernels, whose backends differ
  in attention_cpu.py and attention_gpu.py.
- connector.py: what vLLM calls; model.py: which engines it works in; metrics.py: what vLLM's
  /metrics shows.
"""

from __future__ import annotations

NAME = "PrecisConnector"
BACKENDS = {
    "CPU_ATTN": "attention_cpu.RaggedCpuBackend",
    "FLASH_ATTN": "attention_gpu.RaggedFlashBackend",
    "TRITON_ATTN": "attention_gpu.RaggedTritonBackend",
}


def register() -> None:
    """Makes the connector known by its name, and the attention backends that it needs."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME in KVConnectorFactory._registry:  # vLLM may load a plug-in twice in one process
        return
    KVConnectorFactory.register_connector(NAME, "precis_vllm.connector", NAME)
    # Under vLLM's own names, for its CPU platform takes CPU_ATTN whatever is asked for. They are
    # vLLM's own backends wherever the connector is not configured.
    for name, backend in BACKENDS.items():
        register_backend(AttentionBackendEnum[name], f"precis_vllm.{backend}")
