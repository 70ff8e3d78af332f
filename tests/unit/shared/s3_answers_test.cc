// Answers of S3, and the way in which a node's configuration names a bucket.
#include "cachesvc/shared/s3_answers.h"

#include <catch2/catch.hpp>
#include <random>

#include "cachesvc/shared/s3_settings.h"

namespace {

using namespace precis;
using Catch::Matchers::Contains;

constexpr char kList[] =
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<Name>bucket</Name><Prefix>p/</Prefix><IsTruncated>true</IsTruncated>"
    "<Contents><Key>p/a-1.s</Key><Size>6</Size></Contents>"
    "<Contents><Size>6</Size><Key>p/not&amp;ours</Key></Contents>"
    "<Contents><Key>p/b_2</Key></Contents></ListBucketResult>";

Status failure(long status, const std::string& code) {
  return s3_failure(status, {code, "why"}, "GET bucket/o", "bucket");
}

}  // namespace

TEST_CASE("the names in an answer of S3 are read", "[unit][shared]") {
  const auto page = parse_s3_list(kList).value();
  CHECK(page.names == std::vector<std::string>{"p/a-1.s", "p/b_2"});
  CHECK(page.more);
  for (const std::string text :
       {"", "<html>login</html>", "<ListBucketResult>", "<ListBucketResult></ListBucketResult>"}) {
    CHECK(parse_s3_list(text).status().code() == StatusCode::kUnavailable);
  }
  const auto empty =
      parse_s3_list("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
          .value();
  CHECK(empty.names.empty());
  CHECK_FALSE(empty.more);
}

TEST_CASE("damaged answers of S3 give names of the known form or an error", "[unit][shared]") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kList;
    for (std::uint64_t n = random() % 8; n > 0; --n) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) text[at] = static_cast<char>(random());
      if (random() % 3 == 0) text.erase(at, random() % 40);
      if (text.empty()) break;
    }
    const auto page = parse_s3_list(text);
    if (!page.ok()) continue;
    for (const std::string& name : page->names) {
      CHECK(name.find_first_of("<>&\"' \n") == std::string::npos);
    }
    const S3Error error = parse_s3_error(text);
    CHECK(error.code.size() <= 300);
  }
}

TEST_CASE("an error of S3 says what a person can do", "[unit][shared]") {
  const auto error =
      parse_s3_error("<Error><Code>SlowDown</Code><Message>later\n</Message></Error>");
  CHECK(error.code == "SlowDown");
  CHECK(error.message == "later ");
  CHECK(parse_s3_error("nonsense").code.empty());
  const std::vector<std::tuple<long, std::string, StatusCode, std::string>> expected = {
      {503, "SlowDown", StatusCode::kUnavailable, "SlowDown"},
      {500, "", StatusCode::kUnavailable, "500"},
      {409, "ConditionalRequestConflict", StatusCode::kUnavailable, "409"},
      {429, "", StatusCode::kUnavailable, "429"},
      {507, "", StatusCode::kOutOfSpace, "507"},
      {403, "QuotaExceeded", StatusCode::kOutOfSpace, "QuotaExceeded"},
      {403, "RequestTimeTooSkewed", StatusCode::kPermissionDenied, "clock"},
      {403, "SignatureDoesNotMatch", StatusCode::kPermissionDenied, "cluster_s3_keys"},
      {403, "AccessDenied", StatusCode::kPermissionDenied, "permit"},
      {404, "NoSuchBucket", StatusCode::kUnavailable, "no bucket 'bucket'"},
      {404, "", StatusCode::kUnavailable, "404"},
      {301, "PermanentRedirect", StatusCode::kInvalidArgument, "cluster_s3_region"},
      {400, "EntityTooLarge", StatusCode::kInvalidArgument, "why"},
  };
  for (const auto& [status, code, kind, text] : expected) {
    CAPTURE(status, code);
    CHECK(failure(status, code).code() == kind);
    CHECK_THAT(failure(status, code).message(), Contains(text) && Contains("GET bucket/o"));
  }
}

TEST_CASE("the URL of a bucket has a host and a bucket only", "[unit][shared]") {
  const auto place = parse_s3_url("https://s3.example.com:8333/my-bucket.1").value();
  CHECK(place.encrypted);
  CHECK(place.authority == "s3.example.com:8333");
  CHECK(place.bucket == "my-bucket.1");
  CHECK_FALSE(parse_s3_url("http://[::1]:80/abc")->encrypted);
  for (const std::string url :
       {"", "ftp://h/bucket", "http://h", "http://h/", "http:///bucket", "http://h/a/b",
        "http://h/ab", "http://h/Bucket", "http://user@h/bucket", "http://h/b?x=y", "http://h/a..b",
        "http://h/bucket/", "http://h h/bucket", "http://h/-bucket", "http://h/buck%2fet",
        "file:///etc/passwd", "http://h\r\n/bucket"}) {
    CAPTURE(url);
    CHECK(parse_s3_url(url).status().code() == StatusCode::kInvalidArgument);
  }
  CHECK(check_s3_region("eu-central-1").ok());
  for (const std::string region : {"", "a b", "us:east", "A"}) {
    CHECK_FALSE(check_s3_region(region).ok());
  }
}

TEST_CASE("keys of S3 are read as AWS's files have them, and no message has them",
          "[unit][shared]") {
  const auto keys = parse_s3_keys(
                        "[default]\r\n aws_access_key_id=AK/1 \r\naws_secret_access_key = s+e/c=\n"
                        "[other]\naws_access_key_id = other\n")
                        .value();
  CHECK(keys.id == "AK/1");
  CHECK(keys.secret == "s+e/c=");
  for (const std::string text :
       {"", "aws_access_key_id = hidden", "aws_access_key_id = hid den\naws_secret_access_key = s",
        "aws_access_key_id = hid:den\naws_secret_access_key = hidden"}) {
    const Status status = parse_s3_keys(text).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), !Contains("hid"));
  }
  CHECK_THAT(read_s3_keys("/does/not/exist").status().message(),
             Contains("cluster_s3_keys: cannot read /does/not/exist"));
}
