// What stands behind a Put.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "client/src/link.h"
#include "client/src/put_piece.h"
#include "precis/client.h"

namespace precis {

struct Put::Impl {
  // kInternal if what the service began is no put of `begin`'s path.
  static Result<std::unique_ptr<Impl>> start(std::shared_ptr<Link> link, const CallOptions& options,
                                             const ModelSpec& model, msg::BeginPut begin);
  Impl(std::shared_ptr<Link> way, const CallOptions& opts, const ModelSpec& spec,
       msg::BeginPut begin);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status push(std::uint32_t layer, const LayerPush& push);
  Result<msg::SegmentInfo> commit(Durability durability);

  const std::shared_ptr<Link> link;  // shared with the client and its other handles
  const CallOptions options;
  const ModelSpec model;
  std::shared_ptr<Channel> channel;  // that the put is of, and ends with
  msg::PutBegun begun;
  Recipe recipe;
  std::vector<std::vector<PieceExtent>> pushed;  // [num_layers]
  Status ended;                                  // not ok once nothing more can be pushed
  bool committed = false;

 private:
  Status send(std::uint32_t layer, const LayerPush& push);
  Status send_once(std::uint32_t layer, const LayerPush& push, const Retry& retry);
  Status begin(Retry& retry);
  // The same put on another channel, after the one it was on was lost.
  Status begin_anew(Retry& retry);

  msg::Request request_;  // BeginPut
};

}  // namespace precis
