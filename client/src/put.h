// What stands behind a Put.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "client/src/channel.h"
#include "client/src/put_piece.h"
#include "precis/client.h"

namespace precis {

struct Put::Impl {
  Impl(std::shared_ptr<Channel> link, ModelSpec spec, msg::PutBegun reply, Recipe parsed);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status push(std::uint32_t layer, const LayerPush& push);
  Status send(std::uint32_t layer, const LayerPush& push);

  const std::shared_ptr<Channel> channel;  // the link lives as long as any handle on it
  const ModelSpec model;
  const msg::PutBegun begun;
  const Recipe recipe;
  std::vector<std::vector<PieceExtent>> pushed;  // [num_layers]
  Status ended;                                  // not ok once nothing more can be pushed
};

}  // namespace precis
