#include "cachesvc/shared/rados_ops.h"

namespace precis::rados {
namespace {

// Keys as librados takes them.
struct KeyList {
  explicit KeyList(std::size_t count) {
    texts.reserve(count);
    sizes.reserve(count);
  }
  void add(const std::string& key) {
    texts.push_back(key.data());
    sizes.push_back(key.size());
  }
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
};

KeyList list_of(const std::vector<std::string>& keys) {
  KeyList list(keys.size());
  for (const std::string& key : keys) list.add(key);
  return list;
}

}  // namespace

void WriteOp::set(const std::vector<std::pair<std::string, Bytes>>& rows) {
  if (rows.empty()) return;
  KeyList keys(rows.size());
  std::vector<const char*> values;
  std::vector<std::size_t> sizes;
  for (const auto& [key, value] : rows) {
    keys.add(key);
    values.push_back(chars(value));
    sizes.push_back(value.size());
  }
  library_.write_op_omap_set2(op_, keys.texts.data(), values.data(), keys.sizes.data(),
                              sizes.data(), rows.size());
}

void WriteOp::remove(const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  const KeyList list = list_of(keys);
  library_.write_op_omap_rm_keys2(op_, list.texts.data(), list.sizes.data(), keys.size());
}

bool Rows::next(std::string_view& key, Bytes& value) {
  char *key_bytes = nullptr, *value_bytes = nullptr;
  std::size_t key_size = 0, value_size = 0;
  library_->omap_get_next2(iterator_, &key_bytes, &value_bytes, &key_size, &value_size);
  if (key_bytes == nullptr) return false;
  key = {key_bytes, key_size};
  value = {reinterpret_cast<const std::byte*>(value_bytes), value_size};
  return true;
}

void ReadOp::rows_of(const std::vector<std::string>& keys, Rows& rows) {
  const KeyList list = list_of(keys);
  rows.library_ = &library_;
  rows_.push_back(&rows);
  library_.read_op_omap_get_vals_by_keys2(op_, list.texts.data(), keys.size(), list.sizes.data(),
                                          &rows.iterator_, &rows.error_);
}

void ReadOp::rows_after(const std::string& after, const std::string& prefix, std::size_t count,
                        Rows& rows) {
  rows.library_ = &library_;
  rows_.push_back(&rows);
  library_.read_op_omap_get_vals2(op_, after.c_str(), prefix.c_str(), count, &rows.iterator_,
                                  &rows.more_, &rows.error_);
}

int ObjectList::next(std::string& name) {
  if (error_ < 0) return error_;
  const char* text = nullptr;
  const int error = library_.nobjects_list_next(list_, &text, nullptr, nullptr);
  if (error == 0) name = text;
  return error;
}

int ReadOp::operate(const std::string& object) {
  const int error = library_.read_op_operate(op_, from_.io(), object.c_str(), 0);
  if (error < 0) return error;
  for (const Rows* rows : rows_) {
    if (rows->error_ < 0) return rows->error_;
  }
  return 0;
}

}  // namespace precis::rados
