// Moves bulk bytes by RDMA hardware, between memory that both sides have registered. The client's
// processor takes no part; the hardware checks the client's keys.
//
// A client withdraws memory with the words of its window (shared_window.h), which this side also
// reads and writes by RDMA: active = 1; is the region open? transfer; active = 0. All these
// operations go over one connection, in order.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/transport/mover.h"

namespace precis {

// Server memory that transfers may use.
class RdmaRegistration final : public Registration {
 public:
  RdmaRegistration(MutableBytes bytes, MemorySpace space, std::unique_ptr<RdmaMemory> memory)
      : bytes_(bytes), space_(space), memory_(std::move(memory)) {}
  MutableBytes bytes() const override { return bytes_; }
  MemorySpace space() const override { return space_; }
  const RdmaMemory& memory() const { return *memory_; }

 private:
  const MutableBytes bytes_;
  const MemorySpace space_;
  const std::unique_ptr<RdmaMemory> memory_;
};

class RdmaMover final : public Mover, public std::enable_shared_from_this<RdmaMover> {
 public:
  struct Window {
    std::uint64_t address;
    std::string key;
  };
  // `device` must outlive the mover; `peer` is connected. The mover keeps `stream` open while an
  // operation is in progress. kOutOfSpace if its own words cannot be registered, or another error
  // of register_memory().
  static Result<std::shared_ptr<RdmaMover>> make(RdmaDevice& device, std::shared_ptr<RdmaPeer> peer,
                                                 Window window, std::shared_ptr<DataStream> stream);

  const char* name() const override { return "rdma"; }
  bool supports(const Registration& local, const RemoteRegion& remote) const override;
  BulkLimits limits() const override;
  void post(BulkChunk chunk, Ended ended) override;
  void cancel(const Status& why) override;

 private:
  struct Waiting {
    BulkChunk chunk;
    Ended ended;
  };
  // One region in use in a slot. The slot's next region waits for the end of this one.
  struct Use {
    enum class State { kMapping, kMapped, kUnmapping };
    State state = State::kMapping;
    std::uint64_t region = 0;
    std::size_t chunks = 0;  // in progress
    std::vector<Waiting> waiting;
  };
  RdmaMover(RdmaDevice& device, std::shared_ptr<RdmaPeer> peer, Window window,
            std::shared_ptr<DataStream> stream);
  RdmaRemote slot_word(std::uint32_t slot, std::size_t offset) const;
  Bytes word(std::size_t index) const;
  void set_active(std::uint32_t slot, bool active, RdmaPeer::Done done);
  void read_open(std::uint32_t slot, RdmaPeer::Done done);
  void enter(std::uint32_t slot);
  void entered(std::uint32_t slot, const Status& status);
  void start(std::uint32_t slot, Waiting waiting);
  void leave(std::uint32_t slot);
  void note(const Status& status);

  RdmaDevice& device_;
  const Window window_;
  const std::shared_ptr<DataStream> stream_;  // its end tells the client that no region is in use
  std::vector<std::uint64_t> words_;          // zero, one, then the values read, by slot
  std::unique_ptr<RdmaMemory> words_memory_;
  const std::shared_ptr<RdmaPeer> peer_;  // destroyed before the words
  std::unordered_map<std::uint32_t, Use> uses_;
  Status canceled_;
};

}  // namespace precis
