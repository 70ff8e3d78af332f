r"""Precis for vLLM: requests decode over compressed prefixes, and prompts are stored for them.

vLLM loads this plug-in in every process of an engine, by the entry point group
``vllm.general_plugins``. One flag turns it on::

    vllm serve MODEL --kv-transfer-config \
        '{"kv_connector": "PrecisConnector", "kv_role": "kv_both"}'

How it works: with vLLM's layout LBHNC, K and V of one (layer, block, KV head) are a separate page.
A block of a model with L layers and H KV heads is then L*H pages, and a prefix whose heads keep
different numbers of entries takes ceil(pages / (L*H)) blocks: a head may use pages of other layers
and heads.

- settings.py: the operator's settings, and the options of a request. The parts shared with other
  plug-ins, above all the access to the service, are precis.engines.
- plan.py: which pages a prefix takes, and where they are. Only arithmetic, without vLLM.
- blocks.py: the scheduler's block manager, which gives such a request its blocks.
- scheduler.py: which requests use a stored prefix, and which prompts are stored.
- worker.py: fetches prefixes into pages, pushes prompts from pages.
- attention.py: passes each KV head to vLLM's kernels as a separate sequence; attention_cpu.py and
  attention_gpu.py have the differences between backends.
- connector.py: the functions that vLLM calls; model.py: which engines are supported; metrics.py:
  the counters in vLLM's /metrics.
"""

from __future__ import annotations

NAME = "PrecisConnector"
BACKENDS = {
    "CPU_ATTN": "attention_cpu.RaggedCpuBackend",
    "FLASH_ATTN": "attention_gpu.RaggedFlashBackend",
    "TRITON_ATTN": "attention_gpu.RaggedTritonBackend",
}


def register() -> None:
    """Registers the connector by its name, and the attention backends that it needs."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME in KVConnectorFactory._registry:  # vLLM may load a plug-in twice in one process
        return
    KVConnectorFactory.register_connector(NAME, "precis_vllm.connector", NAME)
    # They replace the backends of vLLM's own names, because its CPU platform always uses CPU_ATTN.
    # Without the connector they behave as vLLM's backends.
    for name, backend in BACKENDS.items():
        register_backend(AttentionBackendEnum[name], f"precis_vllm.{backend}")
