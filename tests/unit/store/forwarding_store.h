// Stores that forward all calls to another one; tests override single functions.
#pragma once

#include "cachesvc/store/store.h"

namespace precis::testing {

class ForwardingRows : public RowStore {
 public:
  // `rows` outlives it.
  explicit ForwardingRows(RowStore& rows) : rows_(rows) {}
  Status write(const RowBatch& batch, Durability durability) override {
    return rows_.write(batch, durability);
  }
  Status harden() override { return rows_.harden(); }
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return rows_.get(table, key);
  }
  Status scan(Table table, const VisitRow& row) override { return rows_.scan(table, row); }
  Result<std::unique_ptr<RowSnapshot>> snapshot() override { return rows_.snapshot(); }

 private:
  RowStore& rows_;
};

class ForwardingStore : public Store {
 public:
  // `store` outlives it.
  explicit ForwardingStore(Store& store) : store_(&store) {}
  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return store_->stage(std::move(value));
  }
  Status write(const StoreBatch& batch, Durability durability) override {
    return store_->write(batch, durability);
  }
  Status harden() override { return store_->harden(); }
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return store_->get(table, key);
  }
  Result<std::vector<std::byte>> read(const std::string& key) override { return store_->read(key); }
  Status read_into(const std::string& key, MutableBytes into) override {
    return store_->read_into(key, into);
  }
  std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                          bool may_wait) override {
    return store_->keep(keys, may_wait);
  }
  std::uint64_t held_bytes(const std::string& prefix) override {
    return store_->held_bytes(prefix);
  }
  std::uint64_t payload_bytes() override { return store_->payload_bytes(); }
  Status scan(Table table, const RowStore::VisitRow& row) override {
    return store_->scan(table, row);
  }
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override { return store_->snapshot(); }
  StoreStats stats() override { return store_->stats(); }
  std::vector<std::string> take_dropped() override { return store_->take_dropped(); }
  std::optional<RecoveryDoubt> doubt() override { return store_->doubt(); }
  Status accept_loss() override { return store_->accept_loss(); }
  StoreHealth health() override { return store_->health(); }

 protected:
  ForwardingStore() = default;
  void forward_to(Store& store) { store_ = &store; }

 private:
  Store* store_ = nullptr;
};

}  // namespace precis::testing
