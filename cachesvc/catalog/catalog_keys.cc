#include "cachesvc/catalog/catalog_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <system_error>

#include "precis/shards.h"

namespace precis {
namespace {

constexpr std::string_view kQuarantinePrefix = "quarantine/";
constexpr std::string_view kRevisionPrefix = "budget revision/";
constexpr std::string_view kTenantPrefix = "tenant/";
constexpr std::string_view kProjectionPrefix = "projection/";

template <typename Name>  // SegmentId or Digest
std::string_view raw(const Name& name) {
  return {reinterpret_cast<const char*>(name.bytes.data()), name.bytes.size()};
}

std::string big_endian(std::uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::uint64_t from_big_endian(std::string_view digits) {
  std::uint64_t n = 0;
  for (const char digit : digits) n = n << 8 | static_cast<unsigned char>(digit);
  return n;
}

std::string four_digits(std::uint32_t shard) {
  std::string text(4, '0');
  for (std::size_t i = text.size(); i-- > 0; shard /= 16) text[i] = "0123456789abcdef"[shard % 16];
  return text;
}

template <typename Number>
std::optional<Number> number_in(std::string_view text, int base = 10) {
  Number number = 0;
  if (text.size() > 1 && text.starts_with('0') && base == 10) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string tenant_key(std::string_view tenant, std::string_view rest) {
  std::string key = big_endian(static_cast<std::uint32_t>(tenant.size()));
  key.append(tenant).append(rest);
  return key;
}

struct TenantKey {
  std::string_view tenant, rest;
};
std::optional<TenantKey> tenant_in(std::string_view key) {
  if (key.size() < 4) return std::nullopt;
  const std::uint64_t size = from_big_endian(key.substr(0, 4));
  key.remove_prefix(4);
  if (key.size() < size) return std::nullopt;
  return TenantKey{key.substr(0, size), key.substr(size)};
}

std::optional<Digest> digest_in(std::string_view bytes) {
  Digest digest;
  if (bytes.size() < digest.bytes.size()) return std::nullopt;
  std::memcpy(digest.bytes.data(), bytes.data(), digest.bytes.size());
  return digest;
}

}  // namespace

std::string segment_key(const SegmentId& id) { return std::string(raw(id)); }

std::string payload_key(const SegmentId& id, std::uint32_t layer) {
  return segment_key(id) + big_endian(layer);
}

std::string object_name(const SegmentRow& row, std::uint32_t layer) {
  PRECIS_CHECK(row.shard.has_value());
  return four_digits(*row.shard) + "-" + row.id.hex() + "-" + std::to_string(row.created_unix_ms) +
         "-" + std::to_string(row.plan.total()) + "-" + std::to_string(layer);
}

std::optional<ObjectName> object_in(std::string_view name) {
  std::array<std::string_view, 5> parts;
  for (std::string_view& part : parts) {
    const std::size_t end = &part == &parts.back() ? name.size() : name.find('-');
    if (end == std::string_view::npos) return std::nullopt;
    part = name.substr(0, end);
    name.remove_prefix(std::min(name.size(), end + 1));
  }
  const auto shard = number_in<std::uint32_t>(parts[0], 16);
  const auto created = number_in<std::uint64_t>(parts[2]),
             entries = number_in<std::uint64_t>(parts[3]);
  const auto layer = number_in<std::uint32_t>(parts[4]);
  if (!shard || *shard >= kShards || parts[0] != four_digits(*shard)) return std::nullopt;
  auto segment = parse_segment_id(parts[1]);
  if (!segment.ok() || segment->hex() != parts[1]) return std::nullopt;
  if (!created || !entries || !layer) return std::nullopt;
  return ObjectName{*shard, *segment, *created, *layer};
}

std::string model_key(std::string_view tenant, const Digest& fingerprint) {
  return tenant_key(tenant, raw(fingerprint));
}

std::string projection_key(std::string_view tenant, const Digest& fingerprint,
                           std::uint32_t layer) {
  return model_key(tenant, fingerprint) + big_endian(layer);
}

std::string shared_projection_key(std::string_view tenant, const Digest& fingerprint,
                                  std::uint32_t layer) {
  return std::string(kProjectionPrefix) + projection_key(tenant, fingerprint, layer);
}

bool is_shared_projection_key(std::string_view meta_key) {
  return meta_key.starts_with(kProjectionPrefix);
}

std::string profile_key(std::string_view tenant, const Digest& fingerprint, std::string_view name) {
  return model_key(tenant, fingerprint).append(name);
}

std::string session_key(std::string_view tenant, std::string_view name) {
  return tenant_key(tenant, name);
}

std::string budget_key(std::string_view tenant, const std::optional<Digest>& model,
                       std::string_view session) {
  if (session.empty()) return tenant_key(tenant, model ? raw(*model) : std::string_view());
  return tenant_key(tenant, raw(Digest{})).append(session);
}

std::string revision_key(std::string_view tenant, std::uint64_t number) {
  const auto high = static_cast<std::uint32_t>(number >> 32),
             low = static_cast<std::uint32_t>(number);
  return std::string(kRevisionPrefix)
      .append(tenant_key(tenant, big_endian(high) + big_endian(low)));
}

bool is_revision_key(std::string_view meta_key) { return meta_key.starts_with(kRevisionPrefix); }

std::string stored_tenant_key(std::string_view name) {
  return std::string(kTenantPrefix).append(tenant_key(name, ""));
}

bool is_stored_tenant_key(std::string_view meta_key) { return meta_key.starts_with(kTenantPrefix); }

std::optional<ModelName> model_in(std::string_view key) {
  const auto parts = tenant_in(key);
  const auto fingerprint = parts ? digest_in(parts->rest) : std::nullopt;
  if (!fingerprint) return std::nullopt;
  return ModelName{std::string(parts->tenant), *fingerprint,
                   std::string(parts->rest.substr(fingerprint->bytes.size()))};
}

std::optional<ProjectionName> shared_projection_in(std::string_view meta_key) {
  if (!is_shared_projection_key(meta_key)) return std::nullopt;
  auto name = model_in(meta_key.substr(kProjectionPrefix.size()));
  if (!name || name->rest.size() != 4) return std::nullopt;
  return ProjectionName{std::move(name->tenant), name->fingerprint,
                        static_cast<std::uint32_t>(from_big_endian(name->rest))};
}

std::optional<BudgetName> budget_in(std::string_view key) {
  const auto parts = tenant_in(key);
  if (!parts) return std::nullopt;
  BudgetName name{std::string(parts->tenant), {}};
  if (parts->rest.empty()) return name;
  const auto model = digest_in(parts->rest);
  if (!model) return std::nullopt;
  name.scope.session = parts->rest.substr(model->bytes.size());
  const bool is_session = *model == Digest{};
  if (is_session == name.scope.session.empty()) return std::nullopt;
  if (!is_session) name.scope.model = *model;
  return name;
}

std::optional<RevisionName> revision_in(std::string_view meta_key) {
  if (!is_revision_key(meta_key)) return std::nullopt;
  const auto parts = tenant_in(meta_key.substr(kRevisionPrefix.size()));
  if (!parts || parts->rest.size() != 8) return std::nullopt;
  return RevisionName{std::string(parts->tenant), from_big_endian(parts->rest)};
}

std::optional<std::string> stored_tenant_in(std::string_view meta_key) {
  if (!is_stored_tenant_key(meta_key)) return std::nullopt;
  const auto parts = tenant_in(meta_key.substr(kTenantPrefix.size()));
  if (!parts || !parts->rest.empty()) return std::nullopt;
  return std::string(parts->tenant);
}

std::string quarantine_key(const SegmentId& id) {
  return std::string(kQuarantinePrefix).append(raw(id));
}

std::optional<SegmentId> quarantined_segment(std::string_view meta_key) {
  SegmentId id;
  if (!meta_key.starts_with(kQuarantinePrefix)) return std::nullopt;
  meta_key.remove_prefix(kQuarantinePrefix.size());
  if (meta_key.size() != id.bytes.size()) return std::nullopt;
  std::memcpy(id.bytes.data(), meta_key.data(), id.bytes.size());
  return id;
}

Status bad_cursor(std::string_view after, std::string_view of) {
  return Status::invalid("after has " + std::to_string(after.size()) +
                         " B and is not the end of a page of " + std::string(of) +
                         "; give `next` of the previous page");
}

}  // namespace precis
