#include "cachesvc/shared/tiered_store.h"

#include <algorithm>
#include <map>

namespace precis {
namespace {

class TieredStore final : public Store {
 public:
  TieredStore(std::unique_ptr<Store> local, SharedTier& tier, Uploads& uploads)
      : local_(std::move(local)), tier_(tier), uploads_(uploads) {}

  Status write(const StoreBatch& batch, Durability durability) override {
    StoreBatch here = batch;
    for (const StoreBatch::SharedRow& row : batch.shared_rows) {
      if (row.table != Table::kSessions) continue;
      const auto is_it = [&](const auto& each) {
        return each.table == row.table && each.key == row.key;
      };
      std::erase_if(here.puts, is_it);
    }
    PRECIS_TRY(local_->write(here, durability));
    copy_rows(batch);
    return {};
  }

  Status read_shared(const std::string& name, MutableBytes into) override {
    return tier_.read_object(name, into);
  }
  Status write_shared(const std::string& name, Bytes value) override {
    return tier_.write_object(name, value);
  }
  Status remove_shared(const std::string& name, std::uint64_t size_bytes) override {
    return tier_.remove_object(name, size_bytes);
  }

  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return local_->stage(std::move(value));
  }
  Status harden() override { return local_->harden(); }
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return local_->get(table, key);
  }
  Status scan(Table table, const RowStore::VisitRow& row) override {
    return local_->scan(table, row);
  }
  Result<std::vector<std::byte>> read(const std::string& key) override { return local_->read(key); }
  Status read_into(const std::string& key, MutableBytes into) override {
    return local_->read_into(key, into);
  }
  std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                          bool may_wait) override {
    return local_->keep(keys, may_wait);
  }
  std::uint64_t held_bytes(const std::string& prefix) override {
    return local_->held_bytes(prefix);
  }
  std::uint64_t payload_bytes() override { return local_->payload_bytes(); }
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override { return local_->snapshot(); }
  StoreStats stats() override { return local_->stats(); }
  std::vector<std::string> take_dropped() override { return local_->take_dropped(); }
  std::optional<RecoveryDoubt> doubt() override { return local_->doubt(); }
  Status accept_loss() override { return local_->accept_loss(); }
  StoreHealth health() override { return local_->health(); }

 private:
  void copy_rows(const StoreBatch& batch) {
    std::map<std::uint32_t, Upload> uploads;
    for (const StoreBatch::SharedRow& row : batch.shared_rows) {
      SharedBatch& rows = uploads[row.shard].rows;
      std::string key = shared_key(row.table, row.key);
      if (row.value) {
        rows.puts.emplace_back(std::move(key),
                               std::vector<std::byte>(row.value->begin(), row.value->end()));
      } else {
        rows.deletes.push_back(std::move(key));
      }
    }
    std::map<std::uint32_t, std::vector<std::string>> keys;
    for (const StoreBatch::SharedObject& object : batch.added_objects) {
      uploads[object.shard].added.push_back({object.name, object.size_bytes});
      keys[object.shard].push_back(object.key);
    }
    for (const StoreBatch::SharedObject& object : batch.removed_objects) {
      uploads[object.shard].removed.push_back({object.name, object.size_bytes});
    }
    for (auto& [shard, upload] : uploads) {
      // Kept, so that a later change can't take the values away before they are copied.
      if (!upload.added.empty()) upload.values = local_->keep(keys[shard], /*may_wait=*/true);
      uploads_.add(shard, std::move(upload));
    }
  }

  const std::unique_ptr<Store> local_;
  SharedTier& tier_;
  Uploads& uploads_;
};

constexpr std::array kSharedTables{std::pair{Table::kSegments, 's'},
                                   std::pair{Table::kSessions, 'n'}};

}  // namespace

std::string shared_key(Table table, std::string_view key) {
  const auto at = std::ranges::find(kSharedTables, table, [](const auto& e) { return e.first; });
  PRECIS_CHECK(at != kSharedTables.end());
  return at->second + std::string(key);
}

std::optional<std::pair<Table, std::string>> from_shared_key(std::string_view key) {
  if (key.empty()) return std::nullopt;
  const auto at =
      std::ranges::find(kSharedTables, key.front(), [](const auto& e) { return e.second; });
  if (at == kSharedTables.end()) return std::nullopt;
  return std::pair(at->first, std::string(key.substr(1)));
}

std::unique_ptr<Store> make_tiered_store(std::unique_ptr<Store> local, SharedTier& tier,
                                         Uploads& uploads) {
  return std::make_unique<TieredStore>(std::move(local), tier, uploads);
}

}  // namespace precis
