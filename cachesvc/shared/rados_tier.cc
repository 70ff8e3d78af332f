#include "cachesvc/shared/rados_tier.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "cachesvc/shared/rados_keys.h"
#include "cachesvc/shared/rados_ops.h"
#include "cachesvc/shared/shard_marks.h"

namespace precis {
namespace {

using namespace rados;

// Rows of one read. Ceph returns at most 1024 a step, unless set otherwise.
constexpr std::size_t kReadRowsMax = 4096;
constexpr std::size_t kStepRowsMax = 1024;
constexpr char kSizeAttribute[] = "size";

std::uint32_t one_group(std::span<const std::uint32_t> shards) {
  for (const std::uint32_t shard : shards) {
    PRECIS_CHECK(shard < kShards && group_of(shard) == group_of(shards.front()));
  }
  return group_of(shards.front());
}

// A list of rows that is read in several operations.
struct Listing {
  std::string prefix;
  std::uint32_t shard = 0;
  std::string after;  // the last key that was read
};

class RadosTier final : public SharedTier {
 public:
  RadosTier(std::unique_ptr<RadosConnection> connection, std::size_t piece_bytes)
      : connection_(std::move(connection)), piece_bytes_(piece_bytes) {}

  Result<std::vector<std::optional<ShardMark>>> marks(
      std::span<const std::uint32_t> shards) override;
  Status change_marks(std::span<const Change> changes) override;
  Status scan(std::span<const std::uint32_t> shards, const Visit& row) override;
  Status write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) override;
  Status write_object(const std::string& name, Bytes value) override;
  Status read_object(const std::string& name, MutableBytes into) override;
  Status remove_object(const std::string& name, std::uint64_t size_bytes) override;
  Status list_objects(const VisitObject& object) override;
  Result<std::vector<std::optional<std::vector<std::byte>>>> rows(
      std::uint32_t shard, std::span<const std::string> keys) override;
  Status write_common(const SharedBatch& batch) override;
  Status scan_common(const std::function<Status(std::string_view, Bytes)>& row) override;

 private:
  Status scan(const std::string& object, std::vector<Listing> listings, const Visit& row);
  Status read_page(const std::string& object, std::vector<Listing>& listings, const Visit& row);
  Status read_piece(const std::string& name, std::size_t piece, MutableBytes into,
                    std::size_t all_bytes);
  std::size_t pieces_of(std::uint64_t bytes) const {
    return std::max<std::size_t>(1, (bytes + piece_bytes_ - 1) / piece_bytes_);
  }

  const std::unique_ptr<RadosConnection> connection_;
  const std::size_t piece_bytes_;
};

void add_rows(WriteOp& op, const std::string& prefix, const SharedBatch& batch) {
  std::vector<std::pair<std::string, Bytes>> puts;
  puts.reserve(batch.puts.size());
  for (const auto& [key, value] : batch.puts) {
    puts.emplace_back(prefix + without_zeros(key), Bytes(value));
  }
  op.set(puts);
  std::vector<std::string> deletes;
  deletes.reserve(batch.deletes.size());
  for (const std::string& key : batch.deletes) deletes.push_back(prefix + without_zeros(key));
  op.remove(deletes);
}

Result<std::vector<std::optional<ShardMark>>> RadosTier::marks(
    std::span<const std::uint32_t> shards) {
  std::vector<std::optional<ShardMark>> found(shards.size());
  if (shards.empty()) return found;
  const std::string object = rows_object(one_group(shards));
  std::vector<std::string> keys;
  for (const std::uint32_t shard : shards) keys.push_back(mark_key(shard));
  Rows rows;
  ReadOp op(*connection_);
  op.rows_of(keys, rows);
  const int error = op.operate(object);
  if (error == -ENOENT) return found;
  if (error < 0) return failure(error, "read the marks in", object);
  std::string_view key;
  Bytes value;
  while (rows.next(key, value)) {
    auto mark = decode_mark(value);
    if (!mark.ok()) return mark.status().with_context(object + " " + std::string(key));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) found[i] = *mark;
    }
  }
  return found;
}

Status RadosTier::change_marks(std::span<const Change> changes) {
  if (changes.empty()) return {};
  std::vector<std::uint32_t> shards;
  std::vector<std::vector<std::byte>> marks_to;
  for (const Change& change : changes) {
    shards.push_back(change.shard);
    marks_to.push_back(encode(change.to));
  }
  const std::string object = rows_object(one_group(shards));
  WriteOp op(*connection_);
  op.create();
  std::vector<std::pair<std::string, Bytes>> puts;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto& from = changes[i].from;
    op.compare(mark_key(shards[i]), from ? encode(*from) : std::vector<std::byte>());
    puts.emplace_back(mark_key(shards[i]), marks_to[i]);
  }
  op.set(puts);
  const int error = op.operate(object);
  if (error == 0) return {};
  if (error != -ECANCELED) return failure(error, "change the marks in", object);
  PRECIS_ASSIGN(const auto now, marks(shards));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (now[i] != changes[i].to) return other_mark(shards[i], now[i]);
  }
  return {};
}

Status RadosTier::write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) {
  const std::string object = rows_object(one_group({&shard, 1}));
  ShardMark to = from;
  ++to.sequence;
  const auto new_mark = encode(to);
  WriteOp op(*connection_);
  op.compare(mark_key(shard), encode(from));
  add_rows(op, row_prefix(shard), batch);
  op.set({{mark_key(shard), Bytes(new_mark)}});
  const int error = op.operate(object);
  if (error == 0) return {};
  if (error != -ECANCELED && error != -ENOENT) return failure(error, "write rows to", object);
  PRECIS_ASSIGN(const auto now, marks({&shard, 1}));
  if (now.front() == to) return {};  // this batch was applied before
  return other_holder(shard, now.front());
}

Status RadosTier::scan(std::span<const std::uint32_t> shards, const Visit& row) {
  if (shards.empty()) return {};
  std::vector<Listing> listings;
  for (const std::uint32_t shard : shards) listings.push_back({row_prefix(shard), shard, ""});
  return scan(rows_object(one_group(shards)), std::move(listings), row);
}

Status RadosTier::scan(const std::string& object, std::vector<Listing> listings, const Visit& row) {
  while (!listings.empty()) {
    const Status read = read_page(object, listings, row);
    if (!read.ok()) return read;
  }
  return {};
}

// Reads some rows of each listing in one operation, and leaves in `listings` those that have more.
Status RadosTier::read_page(const std::string& object, std::vector<Listing>& listings,
                            const Visit& row) {
  const std::size_t count =
      std::clamp<std::size_t>(kReadRowsMax / listings.size(), 1, kStepRowsMax);
  std::deque<Rows> pages;
  ReadOp op(*connection_);
  for (const Listing& listing : listings) {
    op.rows_after(listing.after, listing.prefix, count, pages.emplace_back());
  }
  const int error = op.operate(object);
  if (error == -ENOENT) listings.clear();  // nothing was written yet
  if (error < 0 && error != -ENOENT) return failure(error, "read rows of", object);
  std::vector<Listing> unfinished;
  for (std::size_t i = 0; i < listings.size(); ++i) {
    Listing& listing = listings[i];
    std::string_view text;
    Bytes value;
    while (pages[i].next(text, value)) {
      const auto key = with_zeros(text.substr(std::min(text.size(), listing.prefix.size())));
      if (!key || !text.starts_with(listing.prefix)) {
        return Status::corruption("Ceph: a key in " + object + " is not as this project writes it");
      }
      PRECIS_TRY(row(listing.shard, *key, value));
      listing.after = text;
    }
    if (pages[i].more()) unfinished.push_back(std::move(listing));
  }
  listings = std::move(unfinished);
  return {};
}

Result<std::vector<std::optional<std::vector<std::byte>>>> RadosTier::rows(
    std::uint32_t shard, std::span<const std::string> keys) {
  std::vector<std::optional<std::vector<std::byte>>> values(keys.size());
  if (keys.empty()) return values;
  const std::string object = rows_object(group_of(shard));
  std::vector<std::string> wanted;
  for (const std::string& key : keys) wanted.push_back(row_prefix(shard) + without_zeros(key));
  Rows found;
  ReadOp op(*connection_);
  op.rows_of(wanted, found);
  const int error = op.operate(object);
  if (error == -ENOENT) return values;  // nothing was written yet
  if (error < 0) return failure(error, "read rows of", object);
  std::string_view key;
  Bytes value;
  while (found.next(key, value)) {
    const auto at = std::ranges::find(wanted, key);
    if (at != wanted.end()) values[at - wanted.begin()].emplace(value.begin(), value.end());
  }
  return values;
}

Status RadosTier::write_object(const std::string& name, Bytes value) {
  // The first piece comes last: while it is absent, so is the object.
  for (std::size_t piece = pieces_of(value.size()); piece-- > 0;) {
    const std::string object = piece_name(name, piece);
    const Bytes rest = value.subspan(piece * piece_bytes_);
    WriteOp op(*connection_);
    op.write_full(rest.first(std::min(rest.size(), piece_bytes_)));
    if (piece == 0) op.set_attribute(kSizeAttribute, std::to_string(value.size()));
    const int error = op.operate(object);
    if (error < 0) return failure(error, "write", object);
  }
  return {};
}

Status RadosTier::read_piece(const std::string& name, std::size_t piece, MutableBytes into,
                             std::size_t all_bytes) {
  const std::string object = piece_name(name, piece);
  const std::string all = std::to_string(all_bytes);
  std::uint64_t size = 0;
  std::size_t read = 0;
  ReadOp op(*connection_);
  if (piece == 0) op.compare_attribute(kSizeAttribute, all);
  op.size(size);
  if (!into.empty()) op.read(into, read);
  const int error = op.operate(object);
  if (error == -ENOENT) return Status::not_found("Ceph: read " + object + ": there is none");
  if (error < 0 && error != -ECANCELED) return failure(error, "read", object);
  if (error == -ECANCELED || size != into.size() || read != into.size()) {
    return Status::corruption("Ceph: read " + object + ": the object's size is not " + all +
                              " bytes");
  }
  return {};
}

Status RadosTier::read_object(const std::string& name, MutableBytes into) {
  for (std::size_t piece = 0; piece < pieces_of(into.size()); ++piece) {
    const MutableBytes rest = into.subspan(piece * piece_bytes_);
    const Status read =
        read_piece(name, piece, rest.first(std::min(rest.size(), piece_bytes_)), into.size());
    if (read.ok()) continue;
    if (piece == 0 || read.code() != StatusCode::kNotFound) return read;
    // Another call may be removing the object, and it removes the first piece first.
    MutableBytes first = into.first(piece_bytes_);
    const Status again = read_piece(name, 0, first, into.size());
    return again.ok() ? Status::corruption(read.message()) : again;
  }
  return {};
}

Status RadosTier::remove_object(const std::string& name, std::uint64_t size_bytes) {
  for (std::size_t piece = 0; piece < pieces_of(size_bytes); ++piece) {
    const std::string object = piece_name(name, piece);
    const int error = connection_->library().remove(connection_->io(), object.c_str());
    if (error < 0 && error != -ENOENT) return failure(error, "remove", object);
  }
  return {};
}

// Reads only names, because the size of each piece would take a request.
Status RadosTier::list_objects(const VisitObject& object) {
  ObjectList list(*connection_);
  std::string name;
  for (;;) {
    const int error = list.next(name);
    if (error == -ENOENT) return {};
    if (error < 0) return failure(error, "list", "all objects");
    const auto piece = piece_in(name);
    if (piece) PRECIS_TRY(object(piece->object, (piece->number + 1) * piece_bytes_));
  }
}

Status RadosTier::write_common(const SharedBatch& batch) {
  WriteOp op(*connection_);
  op.create();
  add_rows(op, kCommonPrefix, batch);
  const int error = op.operate(kCommonObject);
  return error < 0 ? failure(error, "write rows to", kCommonObject) : Status();
}

Status RadosTier::scan_common(const std::function<Status(std::string_view, Bytes)>& row) {
  return scan(kCommonObject, {{kCommonPrefix, 0, ""}},
              [&](std::uint32_t, std::string_view key, Bytes value) { return row(key, value); });
}

}  // namespace

Result<std::unique_ptr<SharedTier>> connect_rados(const RadosSettings& settings) {
  PRECIS_ASSIGN(auto connection, RadosConnection::open(settings));
  return std::unique_ptr<SharedTier>(
      std::make_unique<RadosTier>(std::move(connection), settings.piece_bytes));
}

}  // namespace precis
