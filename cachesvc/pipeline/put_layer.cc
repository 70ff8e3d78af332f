#include "cachesvc/pipeline/put_layer.h"

#include <utility>

namespace precis {

void PutLayer::advance(LayerState from) {
  PRECIS_CHECK(state_ == from);
  state_ = static_cast<LayerState>(static_cast<int>(from) + 1);
}

void PutLayer::begin(std::unique_ptr<StagedLayer> of, EventLoop& loop) {
  advance(LayerState::kAwaited);
  rows = std::move(of);
  taking_memory = std::make_unique<Gate>(loop, 1);
}

void PutLayer::stage() { advance(LayerState::kClaimed); }

void PutLayer::compress() {
  advance(LayerState::kStaged);
  drop_rows();
}

void PutLayer::write() { advance(LayerState::kCompressed); }

std::shared_ptr<Arena::Buffer> PutLayer::commit() {
  advance(LayerState::kWritten);
  return std::move(records);
}

void PutLayer::drop_rows() {
  rows.reset();
  projection.reset();
}

}  // namespace precis
