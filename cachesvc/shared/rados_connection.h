// A connection to one pool and namespace of Ceph, and what its errors mean.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/shared/rados_library.h"
#include "cachesvc/shared/rados_tier.h"
#include "precis/status.h"

namespace precis::rados {

// The meaning of an error of librados, which is the negative of an errno. Its message has
// `operation` and `object` in front. The caller itself handles an absent object.
Status failure(int error, const std::string& operation, const std::string& object);

// Thread-safe.
class RadosConnection {
 public:
  // As connect_rados().
  static Result<std::unique_ptr<RadosConnection>> open(const RadosSettings& settings);
  ~RadosConnection();
  RadosConnection(const RadosConnection&) = delete;
  RadosConnection& operator=(const RadosConnection&) = delete;

  const RadosLibrary& library() const { return library_; }
  rados_ioctx_t io() const { return io_; }

 private:
  explicit RadosConnection(const RadosLibrary& library) : library_(library) {}
  Status connect(const RadosSettings& settings);
  Status configure(const RadosSettings& settings);
  Status open_pool(const RadosSettings& settings);
  Status try_write(const RadosSettings& settings);
  Status refused(int error, const RadosSettings& settings) const;
  std::string setting(const char* name) const;

  const RadosLibrary library_;
  rados_t cluster_ = nullptr;
  rados_ioctx_t io_ = nullptr;
};

}  // namespace precis::rados
