#include "client/src/transport/client_rdma.h"

#include <utility>

namespace precis {

std::unique_ptr<ClientRdma> ClientRdma::make(std::shared_ptr<RdmaDevice> device) {
  auto peer = device->make_peer();
  if (!peer.ok()) return nullptr;
  return std::make_unique<ClientRdma>(std::move(device), std::move(*peer));
}

RdmaTurn ClientRdma::offer() const {
  const RdmaAddress& mine = peer_->address();
  return {.device = mine.device, .endpoint = mine.endpoint, .window_key = ""};
}

Result<RdmaTurn> ClientRdma::join(const RdmaTurn& answer, MutableBytes window) {
  if (window_ != nullptr) return Status::invalid("RDMA is joined already");
  if (answer.endpoint.empty()) return Status::unavailable("the server has no RDMA to give");
  PRECIS_ASSIGN(window_, device_->register_memory(window, MemorySpace::kHost));
  PRECIS_TRY(peer_->connect({answer.device, answer.endpoint}));
  RdmaTurn ready;
  ready.window = reinterpret_cast<std::uintptr_t>(window.data());
  ready.window_key = window_->key();
  joined_ = true;
  return ready;
}

void ClientRdma::close() {
  joined_ = false;
  peer_->close();
  closed_ = true;
}

std::string RdmaRegistered::key() {
  if (!device_) return "";
  const std::lock_guard lock(mutex_);
  if (!std::exchange(tried_, true)) {
    if (auto made = device_->register_memory(bytes_, MemorySpace::kHost); made.ok()) {
      memory_ = std::move(*made);
    }
  }
  return memory_ ? memory_->key() : "";
}

}  // namespace precis
