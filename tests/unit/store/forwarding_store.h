// A store that forwards all calls to another one; tests override single functions.
#pragma once

#include "cachesvc/store/store.h"

namespace precis::testing {

class ForwardingStore : public Store {
 public:
  // `store` outlives it.
  explicit ForwardingStore(Store& store) : store_(store) {}
  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return store_.stage(std::move(value));
  }
  Status write(const StoreBatch& batch, Durability durability) override {
    return store_.write(batch, durability);
  }
  Status harden() override { return store_.harden(); }
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return store_.get(table, key);
  }
  Status read_into(Table table, const std::string& key, MutableBytes into) override {
    return store_.read_into(table, key, into);
  }
  std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                          bool may_wait) override {
    return store_.keep(keys, may_wait);
  }
  Status scan(Table table,
              const std::function<Status(std::string_view key, Bytes value)>& row) override {
    return store_.scan(table, row);
  }
  StoreStats stats() override { return store_.stats(); }
  std::vector<std::string> take_dropped() override { return store_.take_dropped(); }
  std::optional<RecoveryDoubt> doubt() override { return store_.doubt(); }
  Status accept_loss() override { return store_.accept_loss(); }
  StoreHealth health() override { return store_.health(); }

 private:
  Store& store_;
};

}  // namespace precis::testing
