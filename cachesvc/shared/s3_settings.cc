#include "cachesvc/shared/s3_settings.h"

#include <algorithm>
#include <string_view>

#include "precis/limits.h"
#include "precis/read_file.h"

namespace precis {
namespace {

constexpr std::size_t kKeyBytesMax = 256, kRegionBytesMax = 64, kAuthorityBytesMax = 255;

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

bool is_bucket(std::string_view text) {
  return text.size() >= 3 && text.size() <= 63 && is_lower_or_digit(text.front()) &&
         is_lower_or_digit(text.back()) && text.find("..") == std::string_view::npos &&
         std::ranges::all_of(text,
                             [](char c) { return is_lower_or_digit(c) || c == '-' || c == '.'; });
}

bool is_authority(std::string_view text) {
  constexpr std::string_view kMore = ".-:[]";
  return !text.empty() && text.size() <= kAuthorityBytesMax && text.front() != ':' &&
         text.back() != ':' && std::ranges::all_of(text, [&](char c) {
           return is_letter_or_digit(c) || kMore.find(c) != std::string_view::npos;
         });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Printable, and without a colon: libcurl would take what is before it for the whole name.
bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kKeyBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f && c != ':'; });
}

}  // namespace

Result<S3Place> parse_s3_url(const std::string& url) {
  std::string_view rest = url;
  S3Place place;
  place.encrypted = rest.starts_with("https://");
  if (!place.encrypted && !rest.starts_with("http://")) rest = {};
  rest.remove_prefix(std::min<std::size_t>(rest.size(), place.encrypted ? 8 : 7));
  const auto slash = rest.find('/');
  place.authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) place.bucket = rest.substr(slash + 1);
  if (is_authority(place.authority) && is_bucket(place.bucket)) return place;
  return Status::invalid("'" + url +
                         "' is not http://HOST:PORT/BUCKET or https://HOST/BUCKET, with a bucket "
                         "of 3 to 63 lower-case letters, digits, dots and hyphens");
}

Result<S3Keys> parse_s3_keys(const std::string& text) {
  S3Keys keys;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = trimmed(line.substr(0, equals));
    // The first of several profiles is used.
    std::string* const to = name == "aws_access_key_id"       ? &keys.id
                            : name == "aws_secret_access_key" ? &keys.secret
                                                              : nullptr;
    if (to != nullptr && to->empty()) *to = trimmed(line.substr(equals + 1));
  }
  if (is_key(keys.id) && is_key(keys.secret)) return keys;
  return Status::invalid(
      "must have the lines 'aws_access_key_id = ...' and 'aws_secret_access_key = ...'");
}

Result<S3Keys> read_s3_keys(const std::string& file) {
  if (file.empty()) return Status::invalid("give the file with the keys of the bucket's user");
  const auto text = read_file(file, limits::kCredentialBytesMax);
  if (!text.ok()) return text.status().with_context("cluster_s3_keys");
  auto keys = parse_s3_keys(*text);
  return keys.ok() ? keys : keys.status().with_context("cluster_s3_keys: " + file);
}

Status check_s3_region(const std::string& region) {
  const bool is_region =
      !region.empty() && region.size() <= kRegionBytesMax &&
      std::ranges::all_of(region, [](char c) { return is_lower_or_digit(c) || c == '-'; });
  return is_region ? Status()
                   : Status::invalid("'" + region +
                                     "' is no region: it has lower-case letters, digits and "
                                     "hyphens, such as us-east-1");
}

}  // namespace precis
