// The implementation of a Put.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "client/src/nodes.h"
#include "client/src/page_movers.h"
#include "client/src/put_piece.h"
#include "client/src/retry.h"
#include "client/src/staging_pool.h"
#include "precis/client.h"

namespace precis {

struct Put::Impl {
  // kInternal if the service's reply does not fit `begin`'s path.
  static Result<std::unique_ptr<Impl>> start(std::shared_ptr<Nodes> nodes,
                                             std::shared_ptr<StagingPool> staging,
                                             std::shared_ptr<PageMovers> movers,
                                             const CallOptions& options, const ModelSpec& model,
                                             msg::BeginPut begin);
  Impl(std::shared_ptr<Nodes> connections, std::shared_ptr<StagingPool> pool,
       std::shared_ptr<PageMovers> page_movers, const CallOptions& opts, const ModelSpec& spec,
       msg::BeginPut begin);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Sends a piece once fewer than kLayersAheadMax are in flight.
  Status start(std::uint32_t layer, const LayerPush& push);
  // Waits for the oldest pieces until only `left` are in flight.
  Status wait(std::size_t left);
  // Ends the put with `failed`. From then on the caller's memory is not read.
  void end(const Status& failed);
  void cancel_all();
  Result<msg::SegmentInfo> commit(Durability durability, double prefill_seconds);

  const std::shared_ptr<Nodes> nodes;          // shared with the client and its other handles
  const std::shared_ptr<StagingPool> staging;  // shared likewise
  const std::shared_ptr<PageMovers> movers;    // shared likewise
  const CallOptions options;
  const ModelSpec model;
  std::shared_ptr<Channel> channel;  // the put ends with this connection
  msg::PutBegun begun;
  Recipe recipe;
  std::vector<std::vector<PieceExtent>> pushed;  // [num_layers]
  Status ended;                                  // not ok once nothing more can be pushed
  bool committed = false;

 private:
  // A piece that was sent and not answered yet.
  struct Ahead {
    Ahead(const CallOptions& options, std::uint32_t layer_index, PutPiece sent)
        : retry(options, "layer"), layer(layer_index), piece(std::move(sent)) {}
    Retry retry;
    std::uint32_t layer;
    PutPiece piece;
    std::shared_ptr<Channel> channel;  // on which it was sent
    Status unsent;                     // the error of sending it; if ok, `call` is valid
    Channel::Call call;
  };

  // A push of keys and values in pages.
  struct Staged {
    std::unique_ptr<StagingPool::Buffer> buffer;  // for its rows and queries
    std::shared_ptr<PageMover> mover;             // copies the rows there
    LayerPush rows;                               // the same push with views of `buffer`
  };
  Result<Staged> make_room(const LayerPush& push);
  void send(Ahead& ahead);
  Status expose_and_send(Ahead& ahead);
  Status answered(Ahead& ahead);
  Status begin(Retry& retry);
  // Starts the same put on another channel, after its channel was lost.
  Status begin_anew(Retry& retry);

  msg::Request request_;  // BeginPut
  std::deque<Ahead> ahead_;
  bool holds_bytes_ = false;  // the service has answered a piece, so it holds bytes of this put
};

}  // namespace precis
