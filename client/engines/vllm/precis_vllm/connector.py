"""vLLM's KV connector, which has a scheduler's half and a worker's half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger

from precis import engines

from .attention import RaggedImpl
from .blocks import RaggedManager
from .metrics import PromMetrics, Stats
from .model import check_engine, model_spec
from .plan import ranks_of
from .scheduler import Scheduler
from .settings import Settings
from .worker import Pages, Worker


def _of(half: str, method: str) -> Callable[..., Any]:
    """A method of vLLM's connector that calls a method of one half with the same arguments."""

    def call(self: PrecisConnector, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(self, half), method)(*args, **kwargs)

    return call


class PrecisConnector(KVConnectorBase_V1, SupportsHMA):
    """Stores prompts in Precis, and lets requests decode over the kept entries.

    Raises:
        ValueError: the settings are wrong, or the engine has an unsupported feature.
        precis.Error: the service refuses this client.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = self._kv_transfer_config
        settings = Settings.read(transfer.kv_connector_extra_config)
        check_engine(vllm_config, kv_cache_config)
        # If a prefix cannot be fetched, the request's prompt is computed.
        transfer.kv_load_failure_policy = "recompute"
        spec = model_spec(vllm_config, settings)
        service = engines.Service(settings, spec, init_logger("vllm.precis"))
        heads = vllm_config.model_config.get_total_num_kv_heads()
        tp = vllm_config.parallel_config.tensor_parallel_size
        self.scheduler: Scheduler | None = None
        self.worker: Worker | None = None
        if role == KVConnectorRole.SCHEDULER:
            size = vllm_config.cache_config.block_size
            self.scheduler = Scheduler(settings, service, size, heads, tp)
        else:
            rank = get_tensor_model_parallel_rank()
            writes = rank % max(1, tp // heads) == 0
            self.worker = Worker(
                settings, service, ranks_of(heads, tp)[rank], min(tp, heads), writes
            )

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a lost push only causes a later miss."""
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """True: attention over ragged prefixes makes new tables for each step."""
        return True

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str:
        """K and V of one head of a block are a page. vLLM asks only if a backend has no layout."""
        return "LBHNC"

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any, **kwargs: Any) -> PromMetrics:
        return PromMetrics(*args, **kwargs)

    def get_kv_connector_stats(self) -> Stats | None:
        return (self.scheduler or self.worker).counts.take()

    # ---- the scheduler's half -------------------------------------------------------------------

    on_new_request = _of("scheduler", "on_new_request")
    get_num_new_matched_tokens = _of("scheduler", "matched")
    update_state_after_alloc = _of("scheduler", "allocated")
    build_connector_meta = _of("scheduler", "step")
    update_connector_output = _of("scheduler", "received")
    request_finished = request_finished_all_groups = _of("scheduler", "finished")

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """Takes the manager that gives requests their blocks."""
        super().bind_kv_cache_manager(kv_cache_manager)
        (manager,) = kv_cache_manager.coordinator.single_type_managers
        if not isinstance(manager, RaggedManager):
            raise ValueError(
                f"the KV cache is managed by {type(manager).__name__}: Precis needs layers of full "
                "attention, by one of vLLM's backends CPU_ATTN, FLASH_ATTN, TRITON_ATTN"
            )
        self.scheduler.manager = manager

    def reset_cache(self) -> bool:
        return True  # the engine's own reset also drops the blocks of prefixes

    # ---- the worker's half ----------------------------------------------------------------------

    start_load_kv = _of("worker", "fetch")
    wait_for_save = _of("worker", "save")
    handle_preemptions = _of("worker", "cancel")

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        config = self._vllm_config
        layer = config.compilation_config.static_forward_context[next(iter(kv_caches))]
        if not isinstance(layer.impl, RaggedImpl):
            raise ValueError(f"Precis does not support the backend of {type(layer.impl).__name__}")
        scales = [
            getattr(config.compilation_config.static_forward_context[name], which, None)
            for name in kv_caches
            for which in ("_q_scale", "_k_scale", "_v_scale")
        ]
        if any(isinstance(scale, torch.Tensor) and scale.numel() > 1 for scale in scales):
            raise ValueError("Precis does not support scales of a KV cache in fp8 for each head")
        pages = Pages(kv_caches, lambda cache: layer.impl.rows(cache, layer))
        if pages.size != config.cache_config.block_size:
            raise ValueError(
                f"the backend splits blocks of {config.cache_config.block_size} tokens into pages "
                f"of {pages.size}, which Precis does not support: set --block-size {pages.size}"
            )
        sequences = config.scheduler_config.max_num_seqs * pages.heads
        if sequences > layer.impl.max_sequences:
            raise ValueError(
                f"{config.scheduler_config.max_num_seqs} requests of {pages.heads} KV heads are "
                f"{sequences} sequences, and the backend's kernels take {layer.impl.max_sequences}:"
                " set a smaller --max-num-seqs"
            )
        self.worker.pages = pages

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        self.worker.bind(connector_metadata)

    def clear_connector_metadata(self) -> None:
        super().clear_connector_metadata()
        self.worker.step = None

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # requests wait for their prefixes before they are scheduled

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        pass  # pushes read the pages after the step

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        return KVConnectorTransferResults(*self.worker.results(finished_req_ids))
