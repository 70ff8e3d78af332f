#include "cachesvc/shared/s3_answers.h"

#include <algorithm>
#include <array>

namespace precis {
namespace {

constexpr std::size_t kTextBytesMax = 300;

// The text of the next element with this name, and what comes after it.
std::optional<std::string_view> next_text(std::string_view& xml, std::string_view name) {
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  const auto begin = xml.find(open);
  if (begin == std::string_view::npos) return {};
  const auto from = begin + open.size();
  const auto end = xml.find(close, from);
  if (end == std::string_view::npos) return {};
  const std::string_view text = xml.substr(from, end - from);
  xml.remove_prefix(end + close.size());
  return text;
}

std::string short_text(std::string_view xml, std::string_view name) {
  const auto text = next_text(xml, name);
  std::string plain(text ? text->substr(0, kTextBytesMax) : "");
  std::ranges::replace_if(
      plain, [](char c) { return c < ' ' || c == 0x7f; }, ' ');
  return plain;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == '/';
  });
}

// Tells a person what to do about answers 403.
std::string remedy_of(const std::string& code) {
  if (code == "RequestTimeTooSkewed" || code == "RequestExpired") {
    return "; set this machine's clock, which differs too much from that of the storage";
  }
  if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch") {
    return "; compare cluster_s3_keys with the keys of the user, and cluster_s3_region with the "
           "region of the bucket";
  }
  return "; permit the user of cluster_s3_keys to list the bucket, and to get, put and delete its "
         "objects";
}

}  // namespace

Result<ObjectStore::Page> parse_s3_list(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos ||
      xml.find("</ListBucketResult>") == std::string_view::npos) {
    return Status::unavailable("S3: the answer to a list is no list; is there a proxy between?");
  }
  ObjectStore::Page page;
  std::string_view about = xml;
  const auto more = next_text(about, "IsTruncated");
  if (more != "true" && more != "false") {
    return Status::unavailable("S3: the answer to a list does not say whether it is whole");
  }
  page.more = more == "true";
  while (auto content = next_text(xml, "Contents")) {
    const auto name = next_text(*content, "Key");
    if (name && is_name(*name)) page.names.emplace_back(*name);
  }
  return page;
}

S3Error parse_s3_error(std::string_view xml) {
  return {short_text(xml, "Code"), short_text(xml, "Message")};
}

Status s3_failure(long http_status, const S3Error& error, const std::string& what,
                  const std::string& bucket) {
  const std::string& code = error.code;
  std::string text = "S3: " + what + ": " + std::to_string(http_status);
  if (!code.empty()) text += " " + code;
  if (!error.message.empty()) text += " (" + error.message + ")";
  const bool is_full = http_status == 507 || code == "QuotaExceeded" ||
                       code == "InsufficientStorage" ||
                       code.find("StorageFull") != std::string::npos;
  if (is_full) return Status::out_of_space(text);
  if (code == "NoSuchBucket") {
    // Not kNotFound, which is about an object.
    return Status::unavailable(text + "; there is no bucket '" + bucket + "': create it");
  }
  if (http_status == 301 || http_status == 307 || code == "AuthorizationHeaderMalformed") {
    return Status::invalid(text +
                           "; the bucket is in another region or at another host: compare "
                           "cluster_s3_region and cluster_s3");
  }
  if (http_status == 401 || http_status == 403) return Status::denied(text + remedy_of(code));
  if (http_status == 501) return Status::unsupported(text);
  // 409: two requests about one object at a time. 429: slow down.
  const bool may_pass = http_status >= 500 || http_status == 404 || http_status == 408 ||
                        http_status == 409 || http_status == 429 || code == "RequestTimeout" ||
                        code == "SlowDown" || http_status < 400;
  return may_pass ? Status::unavailable(text) : Status::invalid(text);
}

}  // namespace precis
