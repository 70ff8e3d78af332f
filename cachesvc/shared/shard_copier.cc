#include "cachesvc/shared/shard_copier.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace precis {
namespace {

// Later rows replace earlier ones.
void append(const SharedBatch& later, SharedBatch& to) {
  std::set<std::string_view> changed(later.deletes.begin(), later.deletes.end());
  for (const auto& [key, value] : later.puts) changed.insert(key);
  std::erase_if(to.puts, [&](const auto& put) { return changed.contains(put.first); });
  std::erase_if(to.deletes, [&](const std::string& key) { return changed.contains(key); });
  to.puts.insert(to.puts.end(), later.puts.begin(), later.puts.end());
  to.deletes.insert(to.deletes.end(), later.deletes.begin(), later.deletes.end());
}

}  // namespace

Status ShardCopier::name(const ShardMark& mark, const std::string& node) {
  ShardMark named = mark;
  named.node = node;
  const std::array change{SharedTier::Change{shard_, mark, named}};
  const Status changed = tier_.change_marks(change);
  return changed.code() == StatusCode::kConflict ? Status::moved(changed.message()) : changed;
}

void ShardCopier::begin(std::vector<Upload> changes) {
  changes_ = std::move(changes);
  written_.assign(changes_.size(), 0);
}

ShardCopier::Copied ShardCopier::copy(const ShardMark& mark) {
  Copied copied;
  SharedBatch rows;
  std::map<std::string, std::uint64_t> removed;  // sizes by name
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const Upload& each = changes_[i];
    Status objects = write_objects(each, written_[i]);
    const bool is_gone =
        objects.code() == StatusCode::kCorruption || objects.code() == StatusCode::kNotFound;
    if (!objects.ok() && !is_gone) return {std::move(objects), {}, {}};
    if (is_gone) objects = Status::corruption(objects.message());
    for (const auto& [key, value] : each.rows.puts) {
      if (is_gone) unshared_.insert(key);
      if (!is_gone && !each.added.empty()) unshared_.erase(key);
    }
    for (const std::string& key : each.rows.deletes) unshared_.erase(key);
    if (objects.ok()) {
      if (unshared_.empty()) {
        append(each.rows, rows);
      } else {  // a later change of such a row must not share it: others would miss the bytes
        SharedBatch shared = each.rows;
        std::erase_if(shared.puts, [&](const auto& put) { return unshared_.contains(put.first); });
        append(shared, rows);
      }
      // A segment that is put again within a millisecond has objects of the same names.
      for (const Upload::Object& object : each.added) removed.erase(object.name);
      for (const Upload::Object& object : each.removed) removed[object.name] = object.size_bytes;
    }
    copied.each.push_back(std::move(objects));
  }
  copied.status = tier_.write(shard_, mark, rows);
  if (!copied.status.ok()) return copied;
  copied.removed = remove_objects(removed);
  changes_.clear();
  return copied;
}

Status ShardCopier::write_objects(const Upload& change, std::size_t& written) {
  for (; written < change.added.size(); ++written) {
    if (is_abandoned_) return Status::unavailable("given up");
    const Upload::Object& object = change.added[written];
    if (!change.values || written >= change.values->size()) {
      return Status::corruption("the local copy of " + object.name + " is gone");
    }
    std::vector<std::byte> value(object.size_bytes);
    PRECIS_TRY((*change.values)[written]->read_into(value));
    PRECIS_TRY(tier_.write_object(object.name, value));
  }
  return {};
}

// Ends at the first failure, so that a storage that does not answer stops nobody for long.
Status ShardCopier::remove_objects(const std::map<std::string, std::uint64_t>& sizes) {
  for (const auto& [object, size_bytes] : sizes) {
    if (is_abandoned_) return Status::moved("given up");
    PRECIS_TRY(tier_.remove_object(object, size_bytes));
  }
  return {};
}

}  // namespace precis
