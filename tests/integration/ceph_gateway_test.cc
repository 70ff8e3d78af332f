// The shared tier in the S3 of a real Ceph: the cases of s3_cases.cc, and what the gateway is asked
// beyond them.
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>

#include "tests/catch_runner.h"
#include "tests/integration/ceph_gateway.h"
#include "tests/integration/s3_cases.h"
#include "tests/integration/tier_writers.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

std::unique_ptr<CephGateway> gateway;  // of all tests; main() makes it

}  // namespace

S3Settings precis::testing::s3_settings(const std::string& space) {
  return gateway->settings(space);
}

TEST_CASE("what prevents a connection to Ceph's gateway is told", "[integration][s3][ceph]") {
  auto settings = gateway->settings("refused");
  SECTION("the secret is wrong") {
    settings.keys_file = gateway->keys_file("precis", "other-secret");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("cluster_s3_keys with the keys of the user"));
  }
  SECTION("nobody has the key") {
    settings.keys_file = gateway->keys_file("nobody", "other-secret");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("cluster_s3_keys with the keys of the user"));
  }
  SECTION("the bucket is absent") {
    settings.url.replace(settings.url.rfind('/'), std::string::npos, "/other");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("there is no bucket 'other'"));
  }
}

TEST_CASE("no write is lost when Ceph's gateway is killed and started again",
          "[integration][s3][ceph]") {
  TierWriters writers(connect_to(gateway->settings("killed")));
  writers.await_more();
  gateway->kill();
  gateway->start();
  writers.await_more();
  CHECK(writers.unavailable() > 0);
  writers.check();
}

int main(int argc, char** argv) {
  if (!CephGateway::available()) {
    std::printf(
        "skipped: it needs root and the Debian packages ceph-mon, ceph-osd, librados2 and "
        "radosgw\n");
    return 77;
  }
  gateway = std::make_unique<CephGateway>();
  const int code = run_test_cases(argc, argv);
  gateway.reset();
  return code;
}
