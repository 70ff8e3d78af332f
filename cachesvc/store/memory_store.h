// The store's contract in plain maps, for tests: failures and crashes on demand.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "cachesvc/store/store.h"

namespace precis {

class MemoryStore final : public Store {
 public:
  Status write(const StoreBatch& batch, Durability durability) override;
  Status harden() override;
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override;
  Status read_into(Table table, const std::string& key, MutableBytes into) override;
  Status scan(Table table,
              const std::function<Status(std::string_view key, Bytes value)>& row) override;
  StoreStats stats() override;

  // The next write changes nothing and returns `status`.
  void fail_next_write(Status status);
  // The worst that a crash of the machine may leave: writes at kMemory since the last harden() are
  // gone, those at kWal or better are there.
  void crash();

 private:
  using Rows = std::map<std::string, std::vector<std::byte>, std::less<>>;
  using Tables = std::array<Rows, kTableCount>;
  const std::vector<std::byte>* find(Table table, const std::string& key) const;

  std::mutex mutex_;
  // Guarded by mutex_.
  Tables tables_;
  Tables durable_;  // what a crash leaves
  std::optional<Status> fail_next_;
};

}  // namespace precis
