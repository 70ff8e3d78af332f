#include "cachesvc/shared/s3_tier.h"

#include <span>
#include <string>
#include <utility>

namespace precis {
namespace {

// A storage that ignores If-None-Match would let two nodes write one record, and lose one of them.
Status check_creation(ObjectStore& store, const std::string& prefix) {
  const std::string name = prefix + "/probe";
  const Bytes content = std::as_bytes(std::span("Precis tries here whether an object is kept"));
  for (int n = 0; n < 2; ++n) {
    const auto created = store.create(name, content);
    if (created.status().code() == StatusCode::kOutOfSpace) return {};  // it can still be read
    PRECIS_TRY(created.status());
    if (!*created) return {};
  }
  return Status::unsupported(
      "S3: the storage replaces an object that was to be created only if it is absent "
      "(If-None-Match: *); use one that knows such requests");
}

}  // namespace

Result<std::unique_ptr<SharedTier>> connect_s3(const S3Settings& settings, LogTierSettings logs) {
  PRECIS_ASSIGN(auto store, make_s3_store(settings));
  const std::string prefix = "precis-" + settings.space;
  PRECIS_TRY(store->list(prefix + "/log/", "").status());
  PRECIS_TRY(store->remove(prefix + "/none"));  // tests the permission to remove
  PRECIS_TRY(check_creation(*store, prefix));
  logs.prefix = prefix;
  return make_log_tier(std::move(store), std::move(logs));
}

}  // namespace precis
