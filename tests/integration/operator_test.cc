// precisd in operation: it reloads and checks its settings, and closes its files to others.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/operated_service.h"
#include "tests/integration/random_kv.h"

namespace {

namespace fs = std::filesystem;
using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr char kRed[] = "[[tenant]]\nname = \"red\"\ntoken = \"first\"\n";

ConnectOptions as(const std::string& tenant, const std::string& token) {
  ConnectOptions options;
  options.tenant = tenant;
  options.token = token;
  return options;
}

std::string level(const std::string& name) { return "log_level = \"" + name + "\"\n"; }

// ---- SIGHUP -------------------------------------------------------------------------------------

TEST_CASE("SIGHUP has a running service take up tenants, limits and the level of its log",
          "[integration]") {
  const TempDir dir;
  OperatedService service(dir, level("warn") + kRed);
  const auto connect = [&](const std::string& tenant, const std::string& token) {
    return Client::connect(service.address(), as(tenant, token)).status().code();
  };
  CHECK(connect("blue", "second") == StatusCode::kPermissionDenied);
  const auto red = Client::connect(service.address(), as("red", "first")).value();
  const Model model = red->register_model(tiny_model()).value();
  CHECK_THAT(service.log(), !Contains("model registered"));  // no line below the level

  service.write_config(level("info") + "max_puts = 1\nsilent_client_ms = 999\n" + kRed +
                       "[[tenant]]\nname = \"blue\"\ntoken = \"second\"\n");
  service.reload();
  CHECK(connect("blue", "second") == StatusCode::kOk);
  CHECK_THAT(service.log(), Contains("setting changed key=max_puts was=1024 is=1") &&
                                Contains("setting changed key=\"tenant blue\"") &&
                                Contains("setting changed key=log_level was=warn is=info") &&
                                Contains("configuration reloaded changed=4 wait_for_restart=0"));
  // A connected client stays, and gets the new limit.
  CHECK(red->status().ok());
  const auto other = Client::connect(service.address(), as("red", "first")).value();
  const auto first = red->begin_put(model, std::vector<TokenId>(100, 1));
  REQUIRE(first.ok());
  const Status second =
      other->with_deadline(1000)->begin_put(model, std::vector<TokenId>(100, 2)).status();
  CHECK_THAT(second.message(), Contains("the limit is 1 (max_puts)"));
}

TEST_CASE("a tenant that is taken out or has another token is let in no more, nor stays in",
          "[integration]") {
  const TempDir dir;
  OperatedService service(dir, level("info") + kRed + "[[tenant]]\nname = \"blue\"\n");
  const auto red = Client::connect(service.address(), as("red", "first")).value();
  const auto blue = Client::connect(service.address(), as("blue", "")).value();
  CHECK(red->status().ok());
  service.write_config(level("info") + "[[tenant]]\nname = \"red\"\ntoken = \"zebra\"\n" +
                       "[[tenant]]\nname = \"blue\"\n");
  service.reload();
  CHECK(red->status().status().code() == StatusCode::kPermissionDenied);
  CHECK(blue->status().ok());
  CHECK(Client::connect(service.address(), as("red", "zebra")).ok());
  CHECK_THAT(service.log(), !Contains("first") && !Contains("zebra"));
}

TEST_CASE("a wrong configuration changes nothing at SIGHUP, and the log says what is wrong",
          "[integration]") {
  const TempDir dir;
  OperatedService service(dir, level("info") + kRed);
  const std::string bad = GENERATE(
      std::string("max_puts = 0\n[[tenant]]\nname = \"blue\"\n"), std::string("max_putz = 1\n"),
      std::string("max_puts = \n"), std::string("audit_log = \"no/such/folder/audit\"\n"),
      std::string("[[tenant]]\nname = \"blue\"\ntoken_file = \"no-such-file\"\n"),
      std::string("[[tenant]]\nname = \"blue\"\ntoken_file = \"fifo\"\n"));
  CAPTURE(bad);
  REQUIRE(::mkfifo(dir.path("fifo").c_str(), 0600) == 0);  // nobody writes to it
  service.write_config(bad);
  service.reload();
  CHECK(Client::connect(service.address(), as("red", "first")).ok());
  CHECK_FALSE(Client::connect(service.address(), as("blue", "")).ok());
  CHECK_THAT(service.log(),
             Contains("E configuration not reloaded: the previous one stays in force status=") &&
                 !Contains("configuration reloaded") && !Contains("setting changed"));
  fs::remove(dir.path("precisd.toml"));
  service.reload();
  CHECK_THAT(service.log(), Contains("cannot read " + dir.path("precisd.toml")));
  CHECK(Client::connect(service.address(), as("red", "first")).ok());
}

TEST_CASE("a configuration that was cut off lets in nobody at SIGHUP", "[integration]") {
  const TempDir dir;
  const std::string whole = level("info") + kRed + "[[tenant]]\nname = \"blue\"\ntoken = \"b\"\n";
  OperatedService service(dir, whole);
  const auto connect = [&](const std::string& tenant, const std::string& token) {
    ConnectOptions options = as(tenant, token);
    options.retry = false;  // the service delays so many wrong tokens
    return Client::connect(service.address(), options).status().code();
  };
  // The file is cut at the end of each line in turn.
  for (std::size_t end = 0; end != std::string::npos; end = whole.find('\n', end + 1)) {
    service.write_config(whole);
    service.reload();
    service.write_config(whole.substr(0, end));
    CAPTURE(whole.substr(0, end));
    service.reload();
    CHECK(connect("red", "first") == StatusCode::kOk);
    for (const char* tenant : {"", "default", "red", "blue"}) {
      CHECK(connect(tenant, "") != StatusCode::kOk);
    }
  }
  CHECK_THAT(service.log(), Contains("no tenants any more; it had 2") &&
                                Contains("tenant 'red' has no token any more") &&
                                Contains("if you want that, restart the service"));
  // A tenant that is removed completely is gone, and one without a token was added on purpose.
  service.write_config(level("info") + kRed + "[[tenant]]\nname = \"green\"\n");
  service.reload();
  CHECK(connect("blue", "b") != StatusCode::kOk);
  CHECK(connect("green", "") == StatusCode::kOk);
  CHECK_THAT(service.log(), Contains("W tenant removed: its clients are no longer admitted, its "
                                     "stored data stays tenant=blue"));
}

TEST_CASE(
    "what waits for a restart is named when it differs at SIGHUP, and flags stand over the file",
    "[integration]") {
  const TempDir dir;
  OperatedService service(dir, level("info"));
  service.write_config(level("info") + "data_dir = \"elsewhere\"\ndefault_keep = 0.5\n" +
                       "max_message_bytes = \"512MiB\"\n");
  service.reload();
  const std::string log = service.log();
  for (const char* key : {"default_keep", "max_message_bytes"}) {
    CHECK_THAT(log, Contains("W setting differs, but needs a restart key=" + std::string(key)));
  }
  CHECK_THAT(log, !Contains("key=data_dir") && Contains("changed=0 wait_for_restart=2"));
}

TEST_CASE("a configuration that came by a pipe is not read again, where it would be empty",
          "[integration]") {
  const TempDir dir;
  REQUIRE(::mkfifo(dir.path("pipe").c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(dir.path("pipe")) << level("info") << kRed; });
  OperatedService service(dir, "", {"--config", dir.path("pipe")});
  writer.join();
  service.reload();
  CHECK_THAT(service.log(), Contains("E configuration not reloaded") &&
                                Contains("is not a regular file, so it can't be read again"));
  CHECK(Client::connect(service.address(), as("red", "first")).ok());
  CHECK_FALSE(Client::connect(service.address()).ok());
}

TEST_CASE("a reload that opens the service to strangers says so", "[integration]") {
  const TempDir dir;
  OperatedService service(dir, kRed, {"--listen", "0.0.0.0:0"});
  CHECK_THAT(service.log(), !Contains("reaches the address"));
  service.write_config(std::string(kRed) + "[[tenant]]\nname = \"green\"\n");
  service.reload();
  CHECK_THAT(service.log(),
             Contains("any client that reaches the address may act as it tenant=green"));
}

TEST_CASE("SIGHUP switches on no library's debug log", "[integration]") {
  const TempDir dir;
  OperatedService service(dir, level("info"));
  const auto client = Client::connect(service.address()).value();
  for (int i = 0; i < 3; ++i) {
    service.reload();
    CHECK(client->status().ok());
  }
  service.stop();
  CHECK(service.printed().empty());  // UCX logs to the standard output
  CHECK_THAT(service.log(), !Contains("UCX") && !Contains("DEBUG"));
}

TEST_CASE("systemd is told when the service is ready, reloads and stops", "[integration]") {
  const TempDir dir;
  // It has said READY=1 once this returns.
  OperatedService service(dir, "");
  service.write_config("max_puts = 5\n");
  const auto told = service.reload();
  REQUIRE(told.size() == 2);
  CHECK_THAT(told[0], Catch::Matchers::StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  CHECK(told[1] == "READY=1");
  CHECK(service.stop() == std::vector<std::string>{"STOPPING=1"});
}

// ---- the configuration --------------------------------------------------------------------------

TEST_CASE("--check says what is wrong with the configuration, and starts nothing",
          "[integration]") {
  const TempDir dir;
  const auto check = [&](const std::string& config, std::vector<std::string> flags = {}) {
    std::ofstream(dir.path("c.toml")) << config;
    flags.insert(flags.begin(), {PRECISD_PATH, "--check", "--config", dir.path("c.toml")});
    return run(flags);
  };
  const std::string data = "data_dir = \"" + dir.path("data") + "\"\n";
  const Ran good = check(data);
  CHECK(good.exit_code == 0);
  CHECK(good.out ==
        "precisd: the configuration is valid (addresses, devices, the data directory, etcd, and "
        "Ceph or S3 with their files are tried at the start)\n");
  CHECK(good.err.empty());
  CHECK_FALSE(fs::exists(dir.path("data")));
  const Ran bad = check("listen = \"nowhere\"\nmax_puts = 0\n");
  CHECK(bad.exit_code == 2);
  CHECK_THAT(bad.err, Contains("c.toml:1: listen is 'nowhere'") &&
                          Contains("c.toml:2: max_puts is 0") && Contains("data_dir is not set"));
  CHECK(check("liste = 1\n").exit_code == 2);
  CHECK(check(data, {"--threads", "many"}).exit_code == 2);
  CHECK(run({PRECISD_PATH, "--check", "--config", dir.path("none.toml")}).exit_code == 2);
  const Ran no_audit = check(data + "audit_log = \"" + dir.path("no/such/folder") + "\"\n");
  CHECK(no_audit.exit_code == 2);
  CHECK_THAT(no_audit.err, Contains("c.toml:2: audit_log") && Contains("can't be opened"));
  CHECK(check(data + "audit_log = \"" + dir.path("audit") + "\"\n").exit_code == 0);
  CHECK_FALSE(fs::exists(dir.path("audit")));
  const Ran no_folder = check(data + "listen_unix = \"" + dir.path("no/such.sock") + "\"\n");
  CHECK(no_folder.exit_code == 0);
  CHECK_THAT(no_folder.err, Contains("c.toml:2: listen_unix is ") &&
                                Contains("there is no folder " + dir.path("no") + " now"));
  CHECK(check(data + "listen_unix = \"" + dir.path("such.sock") + "\"\n").err.empty());
  // No service could start here: another one has the address and the data.
  const ServiceProcess holder(dir);
  CHECK(check(data, {"--listen", holder.address()}).exit_code == 0);
}

TEST_CASE("a min_free_bytes that is less than rows need is raised, and that is said",
          "[integration]") {
  const TempDir dir;
  const auto check = [&](const std::string& config) {
    std::ofstream(dir.path("c.toml")) << config;
    return run({PRECISD_PATH, "--check", "--config", dir.path("c.toml"), "--data",
                dir.path("not/yet/there")});
  };
  CHECK(check("").err.empty());
  CHECK(check("min_free_bytes = \"10GiB\"\n").err.empty());
  const Ran little = check("min_free_bytes = 4096\n");
  CHECK(little.exit_code == 0);

  OperatedService service(dir, "min_free_bytes = 4096\n");
  const auto client = Client::connect(service.address(), {}).value();
  const std::string kept = std::to_string(client->status().value().disk_min_free_bytes);
  CHECK_THAT(little.err, Contains("c.toml:1: min_free_bytes is 4096, ") &&
                             Contains("needs at least " + kept + " B free"));
  CHECK_THAT(service.log(), Contains("min_free_bytes=4096 kept_free_bytes=" + kept));
}

TEST_CASE("status and stats say whether the service has an RDMA device, and precisctl may name one",
          "[integration]") {
  const TempDir dir;
  const OperatedService off(dir, "rdma = \"off\"\n");
  CHECK(nlohmann::json::parse(off.ctl({"status", "--json"}).out)["rdma"] == "off");
  CHECK(off.ctl({"status"}).out.find("\nrdma            off\n") != std::string::npos);
  CHECK(nlohmann::json::parse(off.ctl({"stats", "--json"}).out)["precis_rdma"] == 0);
  for (const char* choice : {"auto", "off"}) {
    CHECK(off.ctl({"status", "--rdma", choice}).exit_code == 0);
  }
  const Ran named = off.ctl({"status", "--rdma", "no_such_device:1"});
  CHECK(named.exit_code == 1);
  CHECK(named.err.find("no_such_device:1") != std::string::npos);
}

TEST_CASE("a configuration that never ends is refused", "[integration]") {
  const Ran ran = run({PRECISD_PATH, "--data", "data", "--config", "/dev/zero"});
  CHECK(ran.exit_code == 2);
  CHECK_THAT(ran.err, Contains("config file: /dev/zero has more than 1048576 bytes"));
}

TEST_CASE("a tenant's token may stand in a file, which systemd may have put there",
          "[integration]") {
  const TempDir dir;
  fs::create_directory(dir.path("credentials"));
  std::ofstream(dir.path("credentials/red.token")) << "of systemd\n";
  std::ofstream(dir.path("beside.token")) << "of a file\r\n";
  const auto tenant = [](const std::string& name, const std::string& file) {
    return "[[tenant]]\nname = \"" + name + "\"\ntoken_file = \"" + file + "\"\n";
  };
  const auto opens = [&](const OperatedService& service, const std::string& name,
                         const std::string& token) {
    return Client::connect(service.address(), as(name, token)).ok();
  };
  {
    OperatedService service(
        dir, tenant("blue", "beside.token") + tenant("gold", dir.path("credentials/red.token")));
    CHECK(opens(service, "blue", "of a file"));
    CHECK(opens(service, "gold", "of systemd"));
    CHECK_FALSE(opens(service, "blue", ""));
    // A replaced token is valid from the next SIGHUP on.
    std::ofstream(dir.path("beside.token")) << "anew";
    service.reload();
    CHECK(opens(service, "blue", "anew"));
    CHECK_FALSE(opens(service, "blue", "of a file"));
  }
  std::ofstream(dir.path("systemd.toml"))
      << tenant("red", "red.token") + tenant("gold", "$CREDENTIALS_DIRECTORY/red.token") +
             tenant("grey", "${CREDENTIALS_DIRECTORY}/red.token");
  const std::vector<std::string> check{PRECISD_PATH, "--check",  "--data",
                                       "data",       "--config", dir.path("systemd.toml")};
  std::vector<std::string> with{"/usr/bin/env", "CREDENTIALS_DIRECTORY=" + dir.path("credentials")};
  with.insert(with.end(), check.begin(), check.end());
  CHECK(run(with).exit_code == 0);
  const Ran without = run(check);
  CHECK(without.exit_code == 2);
  CHECK_THAT(without.err, Contains("systemd.toml:1: tenant 'red': token_file: cannot read") &&
                              Contains("tenant 'gold': token_file: is '$CREDENTIALS_DIRECTORY/") &&
                              Contains("CREDENTIALS_DIRECTORY is not set"));
}

// ---- access of other users of the machine -------------------------------------------------------

TEST_CASE("what is stored is the service's own user's to read alone", "[integration]") {
  const TempDir dir;
  {
    OperatedService service(dir, "");
    const auto client = Client::connect(service.address()).value();
    const Model model = client->register_model(tiny_model()).value();
    std::mt19937 random{20261125};
    const auto path = random_tokens(random, 100);
    REQUIRE(put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions(),
                    Durability::kFsync)
                .ok());
    service.stop();
    CHECK_THAT(service.log(), !Contains("closed to other users"));
  }
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path("data"))) {
    CAPTURE(entry.path().string());
    CHECK((entry.status().permissions() & fs::perms(077)) == fs::perms::none);
    files += entry.is_regular_file() ? 1 : 0;
  }
  CHECK(files > 3);  // rows, RocksDB's LOG, payload
  CHECK(fs::status(dir.path("data")).permissions() == fs::perms(0700));
}

TEST_CASE("a data directory that others may enter is closed to them at the start, and that is said",
          "[integration]") {
  const TempDir dir;
  fs::create_directory(dir.path("data"));
  fs::permissions(dir.path("data"), fs::perms(0755));
  OperatedService service(dir, level("info"));
  CHECK(fs::status(dir.path("data")).permissions() == fs::perms(0700));
  CHECK_THAT(service.log(), Contains("data directory closed to other users data_dir=") &&
                                Contains(dir.path("data")));
}

TEST_CASE("that tokens can be read by every user is said at the start", "[integration]") {
  const TempDir dir;
  std::ofstream(dir.path("token")) << "secret";
  const auto log = [&](const std::string& config, fs::perms of_config, fs::perms of_token) {
    std::ofstream(dir.path("precisd.toml")) << config;
    fs::permissions(dir.path("precisd.toml"), of_config);
    fs::permissions(dir.path("token"), of_token);
    fs::remove(dir.path("log"));
    fs::remove(dir.path("notify"));
    OperatedService(dir, config).stop();
    return content_of(dir.path("log"));
  };
  const std::string warning =
      "W a file with a token or a key can be read by every user of this machine file=";
  const std::string by_file = "[[tenant]]\nname = \"red\"\ntoken_file = \"token\"\n";
  const fs::perms open{0644}, closed{0600};
  CHECK_THAT(log(kRed, open, closed), Contains(warning + dir.path("precisd.toml")));
  CHECK_THAT(log(kRed, closed, closed), !Contains(warning));
  CHECK_THAT(log(by_file, open, closed), !Contains(warning));
  CHECK_THAT(log(by_file, open, open), Contains(warning + dir.path("token")));
  CHECK_THAT(log("", open, open), !Contains(warning));
}

// ---- names that clients send --------------------------------------------------------------------

TEST_CASE("what a client says of itself acts on nobody's terminal", "[integration]") {
  const TempDir dir;
  const std::string evil = "a\x1b]0;owned\x07\xe2\x80\xae\xc2\x9bz";
  OperatedService service(dir, level("debug"));
  ConnectOptions options = as(evil, evil);
  options.client_name = evil;
  CHECK_FALSE(Client::connect(service.address(), options).ok());
  options.tenant.clear();
  options.token.clear();
  options.client_name =
      "owned\xc2\x9b\xe2\x80\xae"
      "engine";  // these bytes may pass
  {
    const auto client = Client::connect(service.address(), options).value();
    ModelSpec spec = tiny_model();
    spec.name = "evil\xc2\x9b[2J\xe2\x80\xae";
    CHECK(client->register_model(spec).ok());
    static_cast<void>(client->open_session("s\xc2\x9b[2J\xe2\x80\xae", {}));
    CHECK_FALSE(client->remove_session("none\x1b[2J\xe2\x80\xae").ok());
  }
  std::string all;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"model", "ls"},
        {"session", "ls"},
        {"session", "show", "none\x1b[2J\xe2\x80\xae"},
        {"budget", "set", "--model", "nobody\x1b[2J\xe2\x80\xae", "--keep", "0.5"},
        {"model", "ls", "--json"},
        {"session", "rm", "none\x1b[2J\xe2\x80\xae", "--json"}}) {
    const Ran ran = service.ctl(words);
    all += ran.out + ran.err;
  }
  CHECK_THAT(all, Contains("evil\\u009b[2J\\u202e") && Contains("nobody\\u001b[2J\\u202e"));
  service.stop();
  const std::string log = service.log();
  CHECK_THAT(log, Contains("owned"));
  all += log;
  for (const char* bad : {"\x1b", "\x07", "\xe2\x80\xae", "\xc2\x9b"}) {
    CHECK(all.find(bad) == std::string::npos);
  }
}

TEST_CASE("a profile that never ends is refused", "[integration]") {
  const TempDir dir;
  const ServiceProcess service(dir);
  const Ran ran =
      run({PRECISCTL_PATH, "--address", service.address(), "profile", "add", "/dev/zero"});
  CHECK(ran.exit_code == 2);
  CHECK_THAT(ran.err, Contains("/dev/zero has more than 8388608 bytes"));
}

}  // namespace
