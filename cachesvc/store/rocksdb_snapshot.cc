#include "cachesvc/store/rocksdb_snapshot.h"

#include <memory>

#include "cachesvc/store/rocksdb_options.h"
#include "cachesvc/store/rocksdb_store.h"

namespace precis {

Result<std::vector<std::byte>> get_row(rocksdb::DB& db, const rocksdb::ReadOptions& how,
                                       rocksdb::ColumnFamilyHandle* family, Table table,
                                       const std::string& key) {
  rocksdb::PinnableSlice value;
  const auto status = db.Get(how, family, key, &value);
  if (!status.ok()) return from_rocksdb(status, key_text(table, key));
  const auto* const data = reinterpret_cast<const std::byte*>(value.data());
  return std::vector<std::byte>(data, data + value.size());
}

Status scan_rows(rocksdb::DB& db, rocksdb::ReadOptions how, rocksdb::ColumnFamilyHandle* family,
                 Table table, const RowStore::VisitRow& row) {
  how.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(how, family));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const rocksdb::Slice value = it->value();
    PRECIS_TRY(row({it->key().data(), it->key().size()},
                   {reinterpret_cast<const std::byte*>(value.data()), value.size()}));
  }
  return from_rocksdb(it->status(),
                      "scanning " + std::string(kFamilyNames[static_cast<std::size_t>(table)]));
}

}  // namespace precis
