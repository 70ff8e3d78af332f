// Objects of a bucket of S3, and its answers.
#include <algorithm>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cachesvc/shared/log_record.h"
#include "cachesvc/shared/s3_answers.h"
#include "cachesvc/shared/s3_settings.h"
#include "precis/little_endian.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"

namespace precis::fuzz {
namespace {

const LogPlace kPlace{"log", 3};

// The bytes with a checksum that matches their content (log_record.cc), so that mutated bytes are
// read.
std::vector<std::byte> mended(Bytes input) {
  constexpr std::size_t kHead = 8, kCheck = 8;
  std::vector<std::byte> bytes(input.begin(), input.end());
  if (bytes.size() < kHead + kCheck) return bytes;
  LeReader reader(Bytes(bytes).subspan(4));
  const auto seed = std::uint64_t{reader.get<std::uint16_t>()} << 16 | reader.get<std::uint16_t>();
  std::vector<std::byte> check;
  put_le(check, static_cast<std::uint64_t>(XXH3_64bits_withSeed(
                    bytes.data() + kHead + kCheck, bytes.size() - kHead - kCheck, seed)));
  std::copy(check.begin(), check.end(), bytes.begin() + kHead);
  return bytes;
}

template <typename T>
bool check_place(Bytes input, Result<T> (*decode)(const LogPlace&, Bytes)) {
  const auto decode_here = [&](Bytes bytes) { return decode(kPlace, bytes); };
  for (const std::vector<std::byte>& bytes :
       {std::vector<std::byte>(input.begin(), input.end()), mended(input)}) {
    const Result<T> first = decode_here(bytes);
    if (!first.ok()) {
      refused(first.status());
      continue;
    }
    const std::vector<std::byte> again = encode(kPlace, *first);
    const Result<T> second = decode_here(again);
    PRECIS_CHECK(second.ok());
    PRECIS_CHECK(encode(kPlace, *second) == again);
    if (std::ranges::equal(bytes, input)) return true;
  }
  return false;
}

bool run_record(Bytes input) { return check_place<LogRecord>(input, decode_record); }
bool run_snapshot(Bytes input) { return check_place<LogState>(input, decode_snapshot); }

// Every accepted name is one that the service could have written.
bool run_list(Bytes input) {
  const auto page = parse_s3_list(as_text(input));
  (void)parse_s3_error(as_text(input));
  if (!page.ok()) return refused(page.status());
  for (const std::string& name : page->names) {
    PRECIS_CHECK(!name.empty() && name.find_first_of("<>&\"% \n") == std::string::npos);
  }
  return true;
}

// No accepted key has a character that could end a header.
bool run_keys(Bytes input) {
  const auto keys = parse_s3_keys(std::string(as_text(input)));
  if (!keys.ok()) return refused(keys.status());
  PRECIS_CHECK(keys->id.find_first_of(": \r\n") == std::string::npos);
  PRECIS_CHECK(keys->secret.find_first_of(" \r\n") == std::string::npos);
  return true;
}

Inputs record_seeds(std::uint64_t) {
  const ShardMark mark{1, 2, false, "node", "instance"};
  LogRecord record{{{7, {}, mark}, {71, mark, mark}}, 7, {}};
  record.rows.puts = {{"key", bytes_of("value")}};
  record.rows.deletes = {"gone"};
  return {encode(kPlace, record), encode(kPlace, LogRecord{})};
}
Inputs snapshot_seeds(std::uint64_t) {
  LogState state;
  state.marks[7] = {1, 2, true, "node", "instance"};
  state.rows[{7, "key"}] = bytes_of("value");
  return {encode(kPlace, state), encode(kPlace, LogState())};
}
Inputs list_seeds(std::uint64_t) {
  return {
      bytes_of("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/1</Key>"
               "</Contents></ListBucketResult>")};
}
Inputs keys_seeds(std::uint64_t) {
  return {bytes_of("[default]\naws_access_key_id = A\naws_secret_access_key = b/c\n")};
}

constexpr Target kTargets[] = {
    {"read_log_record", run_record, record_seeds},
    {"read_log_snapshot", run_snapshot, snapshot_seeds},
    {"read_s3_list", run_list, list_seeds},
    {"read_s3_keys", run_keys, keys_seeds},
};

}  // namespace

std::span<const Target> log_targets() { return kTargets; }

}  // namespace precis::fuzz
