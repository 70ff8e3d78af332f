#include "cachesvc/cluster/agreed_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cachesvc/cluster/json.h"
#include "cachesvc/cluster/view.h"
#include "precis/block_digest.h"

namespace precis::cluster {
namespace {

constexpr std::uint32_t kFormat = 1;
// etcd takes at most 1.5 MiB in a request, and an answer to us has at most 8 MiB.
constexpr std::size_t kInlineBytesMax = 8 << 10, kPartBytes = 512 << 10;
constexpr std::uint32_t kKeysPerPage = 4000, kRowsPerPage = 200;
// The most parts of a value. The largest value is a profile.
constexpr std::size_t kPartsMax = (limits::kProfileBytesMax + (64 << 10)) / kPartBytes + 1;

constexpr char kInline = '=', kInParts = '/';

Status unreadable(const std::string& what) {
  return Status::corruption(what + " in etcd is none of Precis");
}

}  // namespace

AgreedStore::AgreedStore(Etcd& etcd, const std::string& cluster, Runtime& runtime)
    : version_key_(agreed_key(cluster)),
      rows_prefix_("precis-agreed/" + cluster + "/rows/"),
      parts_prefix_("precis-agreed/" + cluster + "/parts/"),
      writer_(std::to_string(runtime.random())),
      etcd_(etcd),
      runtime_(runtime) {}

// ---- reading ------------------------------------------------------------------------------------

Result<AgreedStore::Version> AgreedStore::version() {
  PRECIS_ASSIGN(const Etcd::Rows found, etcd_.read_one(version_key_));
  Version version;
  version.etcd = found.revision;
  if (found.rows.empty()) return version;
  const Etcd::Row& row = found.rows.front();
  const Json json = parsed(row.value);
  const auto field = [&](const char* name) {
    return json.is_object() ? json.find(name) : json.end();
  };
  const auto format = field("format"), complete = field("complete"), by = field("by");
  if (format == json.end() || !format->is_number_unsigned()) return unreadable(version_key_);
  if (*format != kFormat) {
    return Status::unsupported("the settings of the cluster in etcd have the format " +
                               format->dump() + ", this version of precisd reads " +
                               std::to_string(kFormat) + ": run one version on all nodes");
  }
  version.changed = row.revision;
  version.row = row.value;
  version.complete = complete != json.end() && *complete == true;
  if (by != json.end() && by->is_string()) version.by = by->get<std::string>();
  return version;
}

Result<AgreedStore::Index> AgreedStore::list(const Version& at, const Index& before) {
  Index index;
  Etcd::Page page{"", at.etcd, 0, /*keys_only=*/true, kKeysPerPage};
  for (;;) {
    PRECIS_ASSIGN(const Etcd::Rows some, etcd_.read_page(rows_prefix_, page));
    for (const Etcd::Row& row : some.rows) {
      if (!row.key.starts_with(rows_prefix_)) return unreadable("an answer");
      const std::string key = row.key.substr(rows_prefix_.size());
      const auto known = before.find(key);
      const bool same = known != before.end() && known->second.revision == row.revision;
      index[key] = {row.revision, same ? known->second.parts : ""};
    }
    if (some.rows.size() < kKeysPerPage) return index;
    page.after = some.rows.back().key;
  }
}

Result<std::vector<AgreedRow>> AgreedStore::changed(const Version& at, std::uint64_t since,
                                                    Index& index, LeftOut& left_out) {
  std::vector<AgreedRow> rows;
  Etcd::Page page{"", at.etcd, since, /*keys_only=*/false, kRowsPerPage};
  for (;;) {
    PRECIS_ASSIGN(const Etcd::Rows some, etcd_.read_page(rows_prefix_, page));
    for (const Etcd::Row& row : some.rows) {
      if (!row.key.starts_with(rows_prefix_)) return unreadable("an answer");
      const std::string key = row.key.substr(rows_prefix_.size());
      auto value = read_value(row.value, at, index[key]);
      if (value.status().code() == StatusCode::kCorruption) {
        left_out[key] = value.status();
        continue;
      }
      PRECIS_TRY(value.status());
      rows.push_back({key, std::move(*value)});
    }
    if (some.rows.size() < kRowsPerPage) return rows;
    page.after = some.rows.back().key;
  }
}

// The parts are read as they were at that version, because a later change may have removed them.
Result<std::string> AgreedStore::read_value(const std::string& stored, const Version& at,
                                            Listed& listed) {
  if (stored.starts_with(kInline)) return stored.substr(1);
  const std::size_t space = stored.find(' ');
  std::size_t count = 0;
  const char* const end = stored.data() + stored.size();
  const bool is_form = stored.starts_with(kInParts) && space != std::string::npos;
  if (!is_form || std::from_chars(stored.data() + space + 1, end, count).ptr != end ||
      count > kPartsMax) {
    return unreadable("the row of a setting");
  }
  const std::string id = stored.substr(1, space - 1);
  std::string value;
  for (std::size_t part = 0; part < count; ++part) {
    const std::string key = parts_prefix_ + id + "/" + std::to_string(part);
    PRECIS_ASSIGN(const Etcd::Rows found, etcd_.read_one(key, at.etcd));
    if (found.rows.empty() || found.rows.front().value.size() > kPartBytes) {
      return unreadable("the part " + std::to_string(part) + " of a setting");
    }
    value += found.rows.front().value;
  }
  listed.parts = id;
  return value;
}

// ---- writing ------------------------------------------------------------------------------------

// The parts are written before the row that names them. Their ID is of the row's key and value, so
// that another try writes the same ones, and no other row has them.
Result<std::string> AgreedStore::write_value(const AgreedRow& row, Listed& listed) {
  const std::string& value = *row.value;
  if (value.size() <= kInlineBytesMax) return kInline + value;
  if (value.size() > kPartsMax * kPartBytes) {
    return Status::out_of_space("a setting of a cluster has at most " +
                                std::to_string(kPartsMax * kPartBytes >> 20) + " MiB");
  }
  const std::string all = std::to_string(row.key.size()) + " " + row.key + value;
  listed.parts = sha256(std::as_bytes(std::span(all))).hex();
  std::size_t part = 0;
  for (; part * kPartBytes < value.size(); ++part) {
    PRECIS_TRY(etcd_.put(parts_prefix_ + listed.parts + "/" + std::to_string(part),
                         value.substr(part * kPartBytes, kPartBytes)));
  }
  return kInParts + listed.parts + " " + std::to_string(part);
}

// A member of etcd may make the change without answering in time. The next member then reports a
// conflict with this change itself. The row shows that, unless another change came after it.
Result<AgreedStore::Version> AgreedStore::write_rows(const Etcd::Change& change) {
  Version made;
  made.row = change.puts.front().value;
  made.by = writer_;
  const auto revision = etcd_.write_all(change);
  if (revision.ok()) {
    made.changed = *revision;
    return made;
  }
  const bool is_conflict = revision.status().code() == StatusCode::kConflict;
  if (is_conflict && !etcd_.was_repeated()) return revision.status();
  const auto now = version();
  if (now.ok() && now->row == made.row) return now;
  return Status::unavailable("etcd: " + revision.status().message());
}

Result<AgreedStore::Version> AgreedStore::write(std::uint64_t over,
                                                const std::vector<AgreedRow>& rows, bool complete,
                                                Index& index) {
  if (rows.size() > kRowsPerChange) {
    return Status::out_of_space("a change of a cluster's settings has at most " +
                                std::to_string(kRowsPerChange) + " rows, and this one has " +
                                std::to_string(rows.size()) + ": change less at a time");
  }
  const Json version = {{"format", kFormat},
                        {"complete", complete},
                        {"by", writer_},
                        {"change", std::to_string(runtime_.random())}};
  Etcd::Change change{{version_key_, "", over}, {{version_key_, version.dump(), 0}}, {}};
  Index written;
  for (const AgreedRow& row : rows) {
    if (row.value) {
      PRECIS_ASSIGN(std::string stored, write_value(row, written[row.key]));
      change.puts.push_back({rows_prefix_ + row.key, std::move(stored), 0});
    } else {
      change.removed.push_back(rows_prefix_ + row.key);
    }
  }
  PRECIS_ASSIGN(Version made, write_rows(change));
  made.complete = complete;
  for (const AgreedRow& row : rows) {
    const Listed old = index[row.key], now = row.value ? written[row.key] : Listed();
    if (row.value) {
      index[row.key] = {made.changed, now.parts};
    } else {
      index.erase(row.key);
    }
    if (old.parts.empty() || old.parts == now.parts) continue;
    // A node that still reads these parts reads them at an earlier revision.
    static_cast<void>(etcd_.remove_below(parts_prefix_ + old.parts + "/"));
  }
  return made;
}

}  // namespace precis::cluster
