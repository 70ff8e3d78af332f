// The shared tier in a real S3: SeaweedFS. Another one can be tested with PRECIS_TEST_S3 (its URL),
// PRECIS_TEST_S3_KEYS (a file) and the argument ~[seaweedfs].
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/catch_runner.h"
#include "tests/integration/s3_cases.h"
#include "tests/integration/s3_server.h"
#include "tests/integration/tier_writers.h"
#include "tests/unit/shared/shared_tier_contract.h"
#include "tests/unit/transport/certificate.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

std::unique_ptr<S3Server> server;  // of all tests; main() makes it, unless another S3 is tested
const char* const other_url = std::getenv("PRECIS_TEST_S3");
const char* const other_keys = std::getenv("PRECIS_TEST_S3_KEYS");

}  // namespace

S3Settings precis::testing::s3_settings(const std::string& space) {
  if (server) return server->settings(space);
  S3Settings settings;
  settings.url = other_url;
  settings.keys_file = other_keys;
  settings.space = space;
  return settings;
}

TEST_CASE("what prevents a connection to S3 is told", "[integration][s3][seaweedfs]") {
  auto settings = server->settings("refused");
  SECTION("the secret is wrong") {
    settings.keys_file = server->keys_file("precis", "other-secret");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("cluster_s3_keys"));
  }
  SECTION("nobody has the key") {
    settings.keys_file = server->keys_file("nobody", "other-secret");
    CHECK(failure_of(settings).code() == StatusCode::kPermissionDenied);
  }
  SECTION("the user may only read") {
    settings.keys_file = server->keys_of_reader();
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("permit the user"));
  }
  SECTION("the bucket is absent") {
    settings.url.replace(settings.url.rfind('/'), std::string::npos, "/other");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("there is no bucket 'other'"));
  }
  SECTION("the URL is none") {
    settings.url = "127.0.0.1/bucket";
    CHECK(failure_of(settings).code() == StatusCode::kInvalidArgument);
  }
  SECTION("the file with the keys is absent") {
    settings.keys_file = "/does/not/exist";
    CHECK_THAT(failure_of(settings).message(), Contains("/does/not/exist"));
  }
  SECTION("nobody answers") {
    settings.url = "http://127.0.0.1:1/bucket";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("127.0.0.1:1"));
  }
}

TEST_CASE("S3 is reached over TLS, and only the right one", "[integration][s3][seaweedfs]") {
  const TestDir dir;
  const S3Server encrypted(precis::test::make_certificate(dir.path()));
  auto settings = encrypted.settings("tls");
  const auto tier = connect_to(settings);
  REQUIRE(tier->write_object("object", bytes_of("value")).ok());
  settings.ca = "system";
  CHECK(failure_of(settings).code() == StatusCode::kPermissionDenied);
  settings.ca = "/does/not/exist.pem";
  CHECK_THAT(failure_of(settings).message(), Contains("cluster_s3_ca"));
}

TEST_CASE("no write is lost when SeaweedFS is killed and started again",
          "[integration][s3][seaweedfs]") {
  TierWriters writers(connect_to(server->settings("killed")));
  writers.await_more();
  server->kill();
  server->start();
  writers.await_more();
  CHECK(writers.unavailable() > 0);
  writers.check();
}

TEST_CASE("writes to an S3 that hangs fail in time, and can be made again",
          "[integration][s3][seaweedfs]") {
  auto settings = server->settings("hangs");
  settings.timeout = std::chrono::milliseconds(1500);
  TierWriters writers(connect_to(settings));
  writers.await_more();
  server->signal(SIGSTOP);
  while (writers.unavailable() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server->signal(SIGCONT);
  writers.await_more();
  writers.check();
}

int main(int argc, char** argv) {
  const bool is_other = other_url != nullptr && other_keys != nullptr;
  if (!is_other && !S3Server::available()) {
    std::printf("skipped: ./dev test installs SeaweedFS\n");
    return 77;
  }
  if (!is_other) server = std::make_unique<S3Server>();
  const int code = run_test_cases(argc, argv);
  server.reset();
  return code;
}
