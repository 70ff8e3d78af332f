// precisd with TLS and real certificates: which clients are refused, and how certificates are
// renewed.
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
  // With `mutual`, clients must show their certificates. Paths are relative to the configuration's
  // folder.
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

TEST_CASE("renewed certificates are taken up at SIGHUP, and those who are connected stay",
          "[integration]") {
  const Certificates files;
  OperatedService service(files.dir, files.config(/*mutual=*/true));
  const auto connect = [&](const std::string& ca) {
    ConnectOptions options = files.trusting(ca, files.client);
    options.retry = false;
    return Client::connect(service.address(), options);
  };
  const std::string old_ca = files.dir.path("old.pem");
  fs::copy_file(files.server.ca, old_ca);
  const auto there = connect(old_ca).value();

  files.make("server");
  CHECK(connect(old_ca).ok());  // until the service reloads
  service.reload();
  CHECK_THAT(service.log(), Contains("the TLS files were read again") &&
                                Contains("configuration reloaded changed=0 wait_for_restart=0"));
  CHECK_FALSE(connect(old_ca).ok());
  CHECK(connect(files.server.ca).ok());
  CHECK(there->status().ok());

  // A key that does not fit the certificate, and removed mutual TLS: nothing changes.
  fs::copy_file(files.client.key, files.server.key, fs::copy_options::overwrite_existing);
  service.reload();
  CHECK_THAT(service.log(), Contains("configuration not reloaded") &&
                                Contains("precisd.toml:3: tls_key: cannot use " + files.server.key +
                                         ": key values mismatch"));
  files.make("server");
  service.write_config(files.config(/*mutual=*/false));
  service.reload();
  CHECK_THAT(service.log(), Contains("there is no tls_client_ca any more: any client"));
  CHECK_FALSE(connect(files.server.ca).ok());
  CHECK(there->status().ok());
}

TEST_CASE("a file of TLS that is not there is named with its line", "[integration]") {
  const Certificates files;
  OperatedService service(files.dir, files.config(/*mutual=*/false));
  fs::remove(files.server.key);
  service.reload();
  CHECK_THAT(service.log(), Contains("precisd.toml:3: tls_key: cannot read " + files.server.key +
                                     ": No such file or directory"));
  const auto wrong = Client::connect(service.address(), files.trusting("/no/ca.pem")).status();
  CHECK(wrong == Status::invalid("tls_ca: cannot read /no/ca.pem: No such file or directory"));
}

}  // namespace
