// The two means of bulk transfer that UCX offers: active messages, which work everywhere and on
// which both sides take part, and one-sided operations, for networks that have them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/transport/ucx_link.h"

namespace precis {

// Both halves of bulk transfer by messages: the server's (move) and the client's answers. UCX
// fetches large ones straight to where they belong, by rendezvous, and copies small ones there.
class UcxMessageBulk final : public BulkMeans {
 public:
  explicit UcxMessageBulk(UcxLink& link) : link_(link) {}
  BulkQueue::Limits limits() const override;
  void move(BulkChunk chunk, BulkQueue::Ended ended) override;
  void lose(const Status& reason) override;
  std::string name() const override { return link_.streams() ? "stream" : "active messages"; }

  // Of the stream (bulk_stream.h), which carries the bytes instead where there is one.
  Result<MutableBytes> begin(const AmHeader& header);
  void end(const AmHeader& header);

  // Not OK if the peer broke the protocol.
  Status on_message(const AmHeader& header, const UcxInbound& inbound);

 private:
  // A chunk of ours until the peer has answered and UCX has let go of its memory.
  struct Op {
    BulkChunk chunk;
    BulkQueue::Ended ended;
    bool in_hand = false;  // UCX reads or writes the memory
    std::optional<Status> result;
  };
  static void settle(const std::shared_ptr<Op>& op);

  void start_pull(const std::shared_ptr<Op>& op, std::uint64_t number);
  void start_push(const std::shared_ptr<Op>& op, std::uint64_t number);
  Status on_pull_request(const AmHeader& header);
  Status on_pull_data(const AmHeader& header, const UcxInbound& inbound);
  Status on_push_data(const AmHeader& header, const UcxInbound& inbound);
  Status on_done(const AmHeader& header, const UcxInbound& inbound);
  void send_done(std::uint64_t number, const Status& status);

  Result<std::shared_ptr<Op>> take_pull(const AmHeader& header, std::size_t size_bytes);

  UcxLink& link_;
  // What the stream is receiving: a push, or a pull's answer.
  std::optional<RegionTable::Access> incoming_;
  std::shared_ptr<Op> answered_;  // shared as below
  // Shared with UCX's callbacks, which may come after the link has given an op up.
  std::map<std::uint64_t, std::shared_ptr<Op>> waiting_;
  std::uint64_t next_op_ = 1;
};

// ucp_get and ucp_put: only where the hardware does them. Where UCX emulates them (TCP, and shared
// memory it did not allocate) they are several times slower than messages.
class UcxOneSidedBulk final : public BulkMeans {
 public:
  explicit UcxOneSidedBulk(UcxLink& link) : link_(link) {}
  BulkQueue::Limits limits() const override;
  void move(BulkChunk chunk, BulkQueue::Ended ended) override;
  Status on_region(const AmHeader& header) override;
  std::string name() const override { return "one-sided"; }

  // Whether one of the lanes of an endpoint, as UCX prints them, is one-sided in hardware.
  static bool possible(std::string_view lanes);

 private:
  struct Region {
    std::size_t under_way = 0;
    bool revoked = false;
  };
  void leave(std::uint64_t region);

  UcxLink& link_;
  std::map<std::uint64_t, Region> regions_;  // what the client has announced and not revoked
};

}  // namespace precis
