// A store over rows and payload in memory.
#pragma once

#include <chrono>
#include <memory>

#include "cachesvc/store/joined_store.h"
#include "tests/unit/store/forwarding_store.h"
#include "tests/unit/store/memory_payload.h"
#include "tests/unit/store/memory_rows.h"

namespace precis::testing {

struct MemoryMachine {
  SystemClock clock;
  MemoryRows rows;
  MemoryValues payload;
  std::unique_ptr<Store> open() {
    const OpenPayload open_payload = [this](std::span<const Extent> live) {
      return std::unique_ptr<PayloadStore>(std::make_unique<MemoryPayload>(payload, live));
    };
    return join_store(std::make_unique<ForwardingRows>(rows), open_payload, 0,
                      {std::make_unique<ThreadExecutor>("compactor", 1), clock, {}})
        .value();
  }
};

class MemoryStore final : public MemoryMachine, public ForwardingStore {
 public:
  MemoryStore() { reopen(); }
  // See MemoryRows. After a crash the store is opened again; nobody may use it meanwhile.
  void fail_next_write(Status status) { rows.fail_next_write(std::move(status)); }
  std::size_t unsynced() const { return rows.unsynced(); }
  void crash() {
    opened_.reset();
    rows.crash();
    reopen();
  }
  void lose_power(std::size_t logged) {
    opened_.reset();
    rows.lose_power(logged);
    reopen();
  }

 private:
  void reopen() {
    opened_ = open();
    forward_to(*opened_);
  }
  std::unique_ptr<Store> opened_;
};

}  // namespace precis::testing
