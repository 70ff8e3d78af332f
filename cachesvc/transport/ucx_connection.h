// A user's handle on a UcxLink: destroying it closes the link.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/transport/transport.h"
#include "cachesvc/transport/ucx_exposure.h"
#include "cachesvc/transport/ucx_link.h"

namespace precis {

class UcxConnection final : public Connection {
 public:
  UcxConnection(std::shared_ptr<UcxLink> link, std::string peer)
      : link_(std::move(link)), peer_(std::move(peer)) {}
  ~UcxConnection() override { link_->close(); }

  void start(Handlers handlers) override { link_->start(std::move(handlers)); }
  void send(std::vector<std::byte> message) override { link_->send(std::move(message)); }
  void close() override { link_->close(); }
  std::size_t unsent_bytes() const override { return link_->unsent_bytes(); }
  std::optional<std::chrono::steady_clock::time_point> stalled_since() const override {
    return link_->stalled_since();
  }
  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
            const Registration& local, Completion done) override {
    link_->bulk(BulkTransfer::Kind::kPull, from, offset, {into}, local, std::move(done));
  }
  void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
            std::uint64_t offset, Completion done) override {
    link_->bulk(BulkTransfer::Kind::kPush, to, offset, as_local(from), local, std::move(done));
  }
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override {
    return link_->read_in_place(region);
  }
  Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                           MutableBytes memory) override {
    PRECIS_TRY(check_part(memory, registration.bytes()));
    return std::unique_ptr<Exposure>(
        std::make_unique<UcxExposure>(link_, static_cast<UcxMemory&>(registration), memory));
  }
  std::string description() const override { return link_->description(); }
  std::string peer() const override { return peer_; }

 private:
  const std::shared_ptr<UcxLink> link_;
  const std::string peer_;
};

}  // namespace precis
