// Values of a metric by labels. Their number is bounded, because clients choose the models and
// operators the tenants. One thread, the loop's, changes and reads them.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <string>

namespace precis {

// The labels of a request; an empty one is left out.
struct RequestLabels {
  std::string tenant;
  std::string model;      // its name
  std::string tier;       // "memory", or "disk" if a part had to be read from there
  std::string transport;  // Connection::transport()
  auto operator<=>(const RequestLabels&) const = default;
};

template <typename Value>
class Labeled {
 public:
  static constexpr std::size_t kRowsMax = 256, kTenantRowsMax = 32, kTenantsMax = 256;
  static constexpr const char* kOther = "other";
  using Rows = std::map<RequestLabels, Value>;

  // Returns the row of these labels. Beyond kTenantRowsMax rows of a tenant or kRowsMax in all, it
  // is the tenant's row whose other labels are kOther; beyond kTenantsMax of these, tenants share
  // one.
  Value& at(const RequestLabels& labels) {
    const auto found = rows_.find(labels);
    if (found != rows_.end()) return found->second;
    if (rows_.size() < kRowsMax && rows_of(labels.tenant) < kTenantRowsMax) return rows_[labels];
    RequestLabels rest{labels.tenant, kOther, kOther, kOther};
    if (rows_.size() >= kRowsMax + kTenantsMax && !rows_.contains(rest)) rest.tenant = kOther;
    return rows_[rest];
  }
  const Rows& rows() const { return rows_; }

 private:
  std::size_t rows_of(const std::string& tenant) const {
    std::size_t count = 0;
    for (auto row = rows_.lower_bound({tenant, {}, {}, {}});
         row != rows_.end() && row->first.tenant == tenant; ++row) {
      ++count;
    }
    return count;
  }

  Rows rows_;
};

}  // namespace precis
