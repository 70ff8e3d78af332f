// precisd with TLS, by real certificates: who is refused, and how they are renewed.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/integration/operated_service.h"
#include "tests/unit/transport/certificate.h"

namespace {

namespace fs = std::filesystem;
using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

// Certificates of the service and of its clients, beside its configuration.
struct Certificates {
  TempDir dir;
  const TlsFiles server = make("server"), client = make("client");

  TlsFiles make(const std::string& name) const {
    fs::create_directories(dir.path(name));
    return test::make_certificate(dir.path(name));
  }
  // With `mutual`, clients must show theirs.
  // Its paths are of the configuration's folder.
  static std::string config(bool mutual) {
    return std::string("audit_log = \"stderr\"\n") +
           "tls_cert = \"server/cert.pem\"\ntls_key = \"server/key.pem\"\n" +
           (mutual ? "tls_client_ca = \"client/cert.pem\"\n" : "");
  }
  ConnectOptions trusting(const std::string& ca, const TlsFiles& own = {}) const {
    ConnectOptions options;
    options.tls_ca = ca;
    options.tls_cert = own.cert;
    options.tls_key = own.key;
    options.timeout_ms = 5000;
    return options;
  }
};

TEST_CASE("a client that mutual TLS refuses is in the log, the audit log and the count",
          "[integration]") {
  const Certificates files;
  OperatedService service(files.dir, files.config(/*mutual=*/true));
  ConnectOptions stranger = files.trusting(files.server.ca);
  stranger.retry = false;
  CHECK_FALSE(Client::connect(service.address(), stranger).ok());
  const auto known =
      Client::connect(service.address(), files.trusting(files.server.ca, files.client)).value();
  CHECK_THAT(service.log(),
             Contains("client refused from=127.0.0.1:") &&
                 Contains("status=\"permission_denied: TLS: it showed no certificate\"") &&
                 Contains("\"outcome\": \"permission_denied\", \"why\": \"TLS: it showed no"));
  const msg::Stats stats = known->stats().value();
  for (const auto& row : stats.rows) {
    if (row.name == "precis_connections_refused_total") CHECK(row.value == 1);
  }
}

}  // namespace
