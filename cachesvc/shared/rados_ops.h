// Operations of librados: each has several steps, and Ceph performs all or none of them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/shared/rados_connection.h"
#include "precis/view.h"

namespace precis::rados {

inline const char* chars(Bytes bytes) { return reinterpret_cast<const char*>(bytes.data()); }

class WriteOp {
 public:
  explicit WriteOp(const RadosConnection& to)
      : to_(to), library_(to.library()), op_(library_.create_write_op()) {}
  ~WriteOp() { library_.release_write_op(op_); }
  WriteOp(const WriteOp&) = delete;
  WriteOp& operator=(const WriteOp&) = delete;

  // Does nothing if the object exists.
  void create() { library_.write_op_create(op_, LIBRADOS_CREATE_IDEMPOTENT, nullptr); }
  void write_full(Bytes value) { library_.write_op_write_full(op_, chars(value), value.size()); }
  void set_attribute(const char* name, std::string_view value) {
    library_.write_op_setxattr(op_, name, value.data(), value.size());
  }
  // The operation fails with ECANCELED if the key has another value; an absent one is empty.
  void compare(const std::string& key, Bytes value) {
    library_.write_op_omap_cmp2(op_, key.data(), LIBRADOS_CMPXATTR_OP_EQ, chars(value), key.size(),
                                value.size(), nullptr);
  }
  void set(const std::vector<std::pair<std::string, Bytes>>& rows);
  void remove(const std::vector<std::string>& keys);
  // 0, or the negative of an errno.
  int operate(const std::string& object) {
    return library_.write_op_operate(op_, to_.io(), object.c_str(), nullptr, 0);
  }

 private:
  const RadosConnection& to_;
  const RadosLibrary& library_;
  const rados_write_op_t op_;
};

// Rows that one step of a read operation has read.
class Rows {
 public:
  Rows() = default;
  ~Rows() {
    if (iterator_ != nullptr) library_->omap_get_end(iterator_);
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  // False at the end. The views are valid as long as this object.
  bool next(std::string_view& key, Bytes& value);
  // There are more rows than were read.
  bool more() const { return more_ != 0; }

 private:
  friend class ReadOp;
  const RadosLibrary* library_ = nullptr;
  rados_omap_iter_t iterator_ = nullptr;
  unsigned char more_ = 0;
  int error_ = 0;
};

class ReadOp {
 public:
  explicit ReadOp(const RadosConnection& from)
      : from_(from), library_(from.library()), op_(library_.create_read_op()) {}
  ~ReadOp() { library_.release_read_op(op_); }
  ReadOp(const ReadOp&) = delete;
  ReadOp& operator=(const ReadOp&) = delete;

  // The arguments must live until operate() has returned.
  void size(std::uint64_t& size) { library_.read_op_stat(op_, &size, nullptr, nullptr); }
  // `into` is not empty: librados would read all of the object.
  void read(MutableBytes into, std::size_t& size) {
    library_.read_op_read(op_, 0, into.size(), reinterpret_cast<char*>(into.data()), &size,
                          nullptr);
  }
  // The operation fails with ECANCELED if the attribute has another value.
  void compare_attribute(const char* name, std::string_view value) {
    library_.read_op_cmpxattr(op_, name, LIBRADOS_CMPXATTR_OP_EQ, value.data(), value.size());
  }
  void rows_of(const std::vector<std::string>& keys, Rows& rows);
  // At most `count` rows whose keys begin with `prefix`, in their order, after the key `after`.
  void rows_after(const std::string& after, const std::string& prefix, std::size_t count,
                  Rows& rows);
  // 0, or the negative of an errno.
  int operate(const std::string& object);

 private:
  const RadosConnection& from_;
  const RadosLibrary& library_;
  const rados_read_op_t op_;
  std::vector<Rows*> rows_;
};

// Lists the names of all objects in the namespace, in any order.
class ObjectList {
 public:
  explicit ObjectList(const RadosConnection& of)
      : library_(of.library()), error_(library_.nobjects_list_open(of.io(), &list_)) {}
  ~ObjectList() {
    if (error_ == 0) library_.nobjects_list_close(list_);
  }
  ObjectList(const ObjectList&) = delete;
  ObjectList& operator=(const ObjectList&) = delete;

  // 0, or the negative of an errno; -ENOENT at the end.
  int next(std::string& name);

 private:
  const RadosLibrary& library_;
  rados_list_ctx_t list_ = nullptr;
  const int error_;  // of opening it
};

}  // namespace precis::rados
