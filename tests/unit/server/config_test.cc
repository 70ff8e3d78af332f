#include "cachesvc/base/config.h"
#include "cachesvc/base/byte_size.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "cachesvc/base/near_name.h"

namespace precis {
namespace {

// A settings file that exists while the object lives.
class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("precis-config-" + std::to_string(::getpid()) + ".toml")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Config valid() {
  Config config;
  config.data_dir = "data";
  return config;
}

}  // namespace

TEST_CASE("every setting of the file arrives", "[unit][server]") {
  const File file(R"(data_dir = "store"
listen = "0.0.0.0:1"
memory_bytes = "2GiB"
compute_threads = 3
device = "cuda:1"
log_level = "debug"
audit_log = "stderr"
listen_unix = "/run/precis.sock"
tls_cert = "cert.pem"
tls_key = "key.pem"
tls_client_ca = "ca.pem"
memory_wait_ms = 5
default_recipe = "snapkv"
default_keep = 0.25
[[tenant]]
name = "red"
token = "t"
salt = "s"
)");
  const auto config = Config::load(file.path());
  REQUIRE(config.ok());
  CHECK(config->data_dir == "store");
  CHECK(config->listen == "0.0.0.0:1");
  CHECK(config->memory_bytes == 2ull << 30);
  CHECK(config->compute_threads == 3);
  CHECK(config->device == "cuda:1");
  CHECK(config->log_level == "debug");
  CHECK(config->audit_log == "stderr");
  CHECK(config->listen_unix == "/run/precis.sock");
  CHECK(config->tls_cert == "cert.pem");
  CHECK(config->tls_key == "key.pem");
  CHECK(config->tls_client_ca == "ca.pem");
  CHECK(config->memory_wait_ms == 5);
  CHECK(config->default_recipe == "snapkv");
  CHECK(config->default_keep == Budget::ratio_ppm(250'000));
  REQUIRE(config->tenants.size() == 1);
  CHECK(config->tenants[0].salt == "s");
  CHECK(config->validate() == Status());
}

TEST_CASE("what is wrong in the file is named with its line", "[unit][server]") {
  auto problem = [](const std::string& text) {
    const File file(text);
    const auto config = Config::load(file.path());
    CHECK(config.status().code() == StatusCode::kInvalidArgument);
    return config.status().message();
  };
  CHECK_THAT(problem("listen = 7"), Catch::Contains(":1: listen must be a string, in quotes"));
  CHECK_THAT(
      problem("\nspeed = \"x\""),
      Catch::Contains(":2: speed is not a setting; choose from") && Catch::Contains("data_dir"));
  CHECK_THAT(problem("max_putz = 1"),
             Catch::Contains(":1: max_putz is not a setting; did you mean 'max_puts'?"));
  CHECK_THAT(problem("[[tenant]]\nname = \"x\"\ntokne = \"t\""),
             Catch::Contains(":3: tokne is not a setting; did you mean 'token'?"));
  CHECK_THAT(
      problem("[[tenant]]\nname = \"x\"\nmax_requests = 1"),
      Catch::Contains(":3: max_requests is not a setting of a tenant: write it above the first "
                      "[[tenant]]"));
  CHECK_THAT(problem("compute_threads = -1"), Catch::Contains("is -1, must be in [0, 4294967295]"));
  CHECK_THAT(problem("memory_wait_ms = 31e18"), Catch::Contains("must be a whole number"));
  CHECK_THAT(problem("compute_threads = true"), Catch::Contains("must be a whole number"));
  CHECK_THAT(problem("default_keep = true"), Catch::Contains("must be a share such as 0.3, or in"));
  CHECK_THAT(problem("trace_sample = true"), Catch::Contains("must be a number, without quotes"));
  CHECK_THAT(problem("\ndefault_keep = 1.5"), Catch::Contains(":2: default_keep '1.5' is not"));
  CHECK_THAT(problem("default_keep = 'some'"), Catch::Contains("such as 0.3 or '30%', entries"));
  CHECK_THAT(problem("memory_bytes = true"), Catch::Contains("a number of bytes"));
  CHECK_THAT(problem("\nmemory_bytes = \"4 parsecs\""),
             Catch::Contains(":2: memory_bytes is '4 parsecs', must be a size such as 512MiB"));
  CHECK_THAT(problem("max_message_bytes = -1"),
             Catch::Contains(":1: max_message_bytes is '-1', must be a size such as"));
  CHECK_THAT(problem("tenant = 3"), Catch::Contains("[[tenant]]"));
  CHECK_THAT(problem("[[tenant]]\nnmae = \"x\""), Catch::Contains("nmae"));
  CHECK_THAT(problem("\n\n[[tenant]]\ntoken = \"x\""), Catch::Contains(":3: name is missing"));
  CHECK_THAT(problem("\ntenant = 3"), Catch::Contains(":2: tenant must be written as [[tenant]]"));
  CHECK_THAT(problem("\ntenant = [3]"), Catch::Contains(":2: every [[tenant]] must be a table"));
  CHECK_THAT(problem("data_dir = "), Catch::Contains(":1:"));
}

TEST_CASE("a file that is not there, or none, is said to be so", "[unit][server]") {
  CHECK(Config::load("no/such/file.toml").status().code() == StatusCode::kNotFound);
  CHECK_THAT(Config::load("/").status().message(),
             Catch::Contains("config file: cannot read /: Is a directory"));
  CHECK_THAT(Config::load("/dev/zero").status().message(),
             Catch::Contains("/dev/zero has more than 1048576 bytes"));
}

TEST_CASE("a token is read from a file, and what is wrong with one is named", "[unit][server]") {
  const auto path =
      std::filesystem::temp_directory_path() / ("precis-token-" + std::to_string(::getpid()));
  const std::string folder = path.parent_path().string(), name = path.filename().string();
  const auto with = [&](const std::string& file, const std::string& credentials,
                        const std::string& beside, const std::string& token = "") {
    Config config = valid();
    config.tenants = {{"red", token, "", 1, file}};
    const Status status = config.read_tokens(credentials, beside);
    return status.ok() ? config.tenants[0].token : status.message();
  };
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("secret\n");
  CHECK(with(path.string(), "", "") == "secret");
  CHECK(with(path.string(), "/nowhere", "/nowhere") == "secret");  // absolute
  CHECK(with(name, folder, "/nowhere") == "secret");
  CHECK(with(name, "", folder) == "secret");
  CHECK(with("$CREDENTIALS_DIRECTORY/" + name, folder, "") == "secret");
  CHECK(with("${CREDENTIALS_DIRECTORY}/" + name, folder, "") == "secret");
  CHECK_THAT(with(name, "/nowhere", folder), Catch::Contains("cannot read /nowhere/" + name));
  CHECK_THAT(with("$CREDENTIALS_DIRECTORY/x", "", ""), Catch::Contains("is not set"));
  CHECK_THAT(with(path.string(), "", "", "both"), Catch::Contains("remove one of the two"));
  CHECK_THAT(with("/dev/zero", "", ""), Catch::Contains("not a regular file"));
  write("\n");
  CHECK_THAT(with(path.string(), "", ""), Catch::Contains("is empty, must hold the token"));
  std::filesystem::remove(path);
}

TEST_CASE("TLS's files are found where a token's is", "[unit][server]") {
  const auto with = [&](const std::string& file, const std::string& credentials,
                        const std::string& beside) {
    Config config = Config::parse("tls_client_ca = '" + file + "'", "here").value();
    const Status status = config.find_tls_files(credentials, beside);
    CHECK(config.tls_cert.empty());
    return status.ok() ? config.tls_client_ca : status.message();
  };
  CHECK(with("/etc/ca.pem", "/run", "/etc") == "/etc/ca.pem");
  CHECK(with("tls/ca.pem", "", "/etc/precis") == "/etc/precis/tls/ca.pem");
  CHECK(with("ca.pem", "", "") == (std::filesystem::current_path() / "ca.pem").string());
  CHECK(with("ca.pem", "/run/c", "/etc/precis") == "/run/c/ca.pem");
  CHECK(with("$CREDENTIALS_DIRECTORY/ca.pem", "/run/c", "") == "/run/c/ca.pem");
  CHECK_THAT(with("$CREDENTIALS_DIRECTORY/ca.pem", "", ""),
             Catch::StartsWith("here:1: tls_client_ca is '$CRED") && Catch::Contains("is not set"));
}

TEST_CASE("a file with the keys of S3 that all users can read is worth a warning",
          "[unit][server]") {
  const auto path =
      std::filesystem::temp_directory_path() / ("precis-s3-keys-" + std::to_string(::getpid()));
  std::ofstream(path) << "keys";
  Config config;
  config.cluster_s3_keys = path.filename().string();
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  REQUIRE(config.find_tls_files("", path.parent_path().string()).ok());
  CHECK(config.cluster_s3_keys == path.string());
  CHECK(config.cluster_s3_ca == "system");
  CHECK(config.exposed_files.empty());
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  REQUIRE(config.find_tls_files("", "").ok());
  CHECK(config.exposed_files == std::vector<std::string>{path.string()});
  std::filesystem::remove(path);
}

TEST_CASE("validation tells every problem at once", "[unit][server]") {
  CHECK(valid().validate() == Status());
  Config config = valid();
  config.data_dir.clear();
  config.listen = "nowhere";
  config.default_recipe = "no_such_recipe";
  config.default_keep = Budget::ratio_ppm(1'500'000);
  config.log_level = "loud";
  config.tls_client_ca = config.admin_tls_ca = "ca.pem";
  config.memory_bytes = 5;
  config.tenants = {{"a", "", ""}, {"a", "", ""}};
  const std::string problems = config.validate().message();
  for (const char* part : {"data_dir", "nowhere", "no_such_recipe", "1.5", "loud",
                           "tls_client_ca is set without tls_cert and tls_key",
                           "admin_tls_ca is set without admin_tls_cert and admin_tls_key: give",
                           "memory_bytes is 5B, must be at least 16MiB", "'a' is given twice"}) {
    CHECK_THAT(problems, Catch::Contains(part));
  }
  config.memory_bytes = 1ull << 60;
  CHECK_THAT(config.validate().message(), Catch::Contains("more than this machine's"));
  for (const char* dir : {"", "/", "/sub", "/sub/../x"}) {
    Config inside = valid();
    inside.backup_dir = inside.data_dir + dir;
    CHECK_THAT(inside.validate().message(), Catch::Contains("which is in data_dir"));
  }
  Config beside = valid();
  beside.backup_dir = beside.data_dir + "-backups";
  CHECK(beside.validate() == Status());
}

TEST_CASE("validation tells the line of what the file has set, and of nothing else",
          "[unit][server]") {
  auto config = Config::parse(R"(listen = "nowhere"
trace_sample = 1.5
max_puts = 0
[[tenant]]
name = "a"
[[tenant]]
name = ""
[[tenant]]
name = "a"
)",
                              "here.toml");
  REQUIRE(config.ok());
  const auto has = [&](const std::string& line) {
    INFO(line);
    const std::string problems = "\n" + config->validate().message();
    return problems.find("\n" + line) != std::string::npos;
  };
  CHECK(has("here.toml:1: listen is 'nowhere'"));
  CHECK(has("here.toml:2: trace_sample is 1.5"));
  CHECK(has("here.toml:3: max_puts is 0"));
  CHECK(has("here.toml:6: tenant name '' must have 1 to"));
  CHECK(has("here.toml:8: tenant 'a' is given twice"));
  CHECK(has("data_dir is not set"));
  config->said_at.erase("listen");  // as if a flag had set it
  CHECK(has("listen is 'nowhere'"));
}

TEST_CASE("the default recipe is for models without a profile, the other for those that have one",
          "[unit][server]") {
  Config config = valid();
  config.default_recipe = config.default_recipe_with_profile;
  CHECK_THAT(config.validate().message(), Catch::Contains("default_recipe_with_profile"));
  config = valid();
  config.default_recipe_with_profile = config.default_recipe;
  CHECK_THAT(config.validate().message(), Catch::Contains("default_recipe_with_profile"));
}

TEST_CASE("a tenant is a writer where nothing is said, and an admin needs a token",
          "[unit][server]") {
  auto config = Config::parse(
      "data_dir = \"d\"\n[[tenant]]\nname = \"a\"\nmax_memory_bytes = \"1GiB\"\nmax_puts = 2\n"
      "max_requests_per_s = 3\n[[tenant]]\nname = \"b\"\nrole = \"admin\"\ntoken = \"t\"\n",
      "here.toml");
  REQUIRE(config.ok());
  CHECK(config->validate().ok());
  CHECK(config->tenants[0].role == "writer");
  CHECK(config->tenants[0].max_memory_bytes == 1u << 30);
  CHECK(config->tenants[0].max_puts == 2);
  CHECK(config->tenants[0].max_requests_per_s == 3);
  config->tenants[1].token.clear();
  CHECK_THAT(config->validate().message(),
             Catch::Contains("here.toml:7: tenant 'b' has the role admin and no token"));
  config->tenants[0].role = "boss";
  CHECK_THAT(config->validate().message(),
             Catch::Contains("tenant 'a': the role is 'boss', must be reader, writer or admin"));
}

TEST_CASE("a tenant's weight is one where nothing is said, and bounded", "[unit][server]") {
  const auto config = Config::parse(
      "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"\nweight = 3\n", "here.toml");
  REQUIRE(config.ok());
  CHECK(config->tenants[0].weight == 1);
  CHECK(config->tenants[1].weight == 3);
  for (const std::uint32_t weight : {0u, 1001u}) {
    Config bad = *config;
    bad.tenants[1].weight = weight;
    CHECK_THAT(bad.validate().message(),
               Catch::Contains("here.toml:3: tenant 'b' has weight " + std::to_string(weight) +
                               ", must be in [1, 1000]"));
  }
}

TEST_CASE("half of what TLS needs is refused, and the half that is missing named",
          "[unit][server]") {
  const std::string cert =
      Config::parse("data_dir = \"d\"\ntls_cert = \"c\"", "here")->validate().message();
  CHECK_THAT(cert, Catch::Contains("tls_cert and tls_key belong together"));
  const std::string key =
      Config::parse("data_dir = \"d\"\ntls_key = \"k\"", "here")->validate().message();
  CHECK_THAT(key, Catch::Contains("here:2: tls_cert and tls_key belong together"));
  const std::string admin =
      Config::parse("data_dir = \"d\"\nadmin_tls_key = \"k\"", "here")->validate().message();
  CHECK_THAT(admin, Catch::Contains("here:2: admin_tls_cert and admin_tls_key belong together"));
  Config both = valid();
  both.tls_cert = both.tls_key = "file";
  CHECK(both.validate() == Status());
  both.admin_tls_cert = both.admin_tls_key = "file";
  CHECK_THAT(both.validate().message(), Catch::Contains("give the port's address too"));
  both.admin = "127.0.0.1:7471";
  CHECK(both.validate() == Status());
}

TEST_CASE("a TLS key that every user may read is exposed", "[unit][server]") {
  namespace fs = std::filesystem;
  const fs::path key = fs::temp_directory_path() / ("precis-key-" + std::to_string(::getpid()));
  std::ofstream(key) << "a key";
  const File file("tls_cert = \"cert.pem\"\ntls_key = \"" + key.string() + "\"\n");
  fs::permissions(key, fs::perms(0644));
  CHECK(Config::load(file.path())->exposed_files == std::vector<std::string>{key.string()});
  fs::permissions(key, fs::perms(0600));
  CHECK(Config::load(file.path())->exposed_files.empty());
  fs::remove(key);
}

TEST_CASE("the Unix socket is in the data folder, at a path, or off", "[unit][server]") {
  Config config = valid();
  CHECK(config.resolved_listen_unix() == "data/precisd.sock");
  config.listen_unix = "/run/precis.sock";
  CHECK(config.resolved_listen_unix() == "/run/precis.sock");
  config.listen_unix = "off";
  CHECK(config.resolved_listen_unix().empty());
}

TEST_CASE("a default may be written as a number or as text", "[unit][server]") {
  const auto keep = [](const std::string& text) {
    return Config::parse("default_keep = " + text, "here")->default_keep;
  };
  CHECK(keep("1") == Budget::ratio_ppm(1'000'000));
  CHECK(keep("0.3") == Budget::ratio_ppm(300'000));
  CHECK(keep("'30%'") == Budget::ratio_ppm(300'000));
  CHECK(keep("'10% bytes'") == Budget::byte_share(0.1).value());
  CHECK(keep("'128 entries'") == Budget::entries(128));
}

TEST_CASE("a limit of puts is a share that is not below the default", "[unit][server]") {
  Config config = valid();
  config.default_keep = config.default_limit = Budget::ratio_ppm(300'000);
  CHECK(config.validate() == Status());
  config.default_limit = Budget::ratio_ppm(250'000);
  CHECK_THAT(config.validate().message(),
             Catch::Contains("default_limit is 0.25, less than default_keep, which is 0.3: "));
  config.default_limit = Budget::byte_share(0.25).value();  // can't be compared without a segment
  CHECK(config.validate() == Status());
  config.default_limit = Budget::ratio_ppm(1'500'000);
  CHECK_THAT(config.validate().message(), Catch::Contains("default_limit is 1.5, must be"));
  config.default_limit = Budget::loss(0.05).value();
  CHECK_THAT(config.validate().message(),
             Catch::Contains("default_limit is loss 0.05, and a loss is for puts"));
}

TEST_CASE("a name that is misspelt is recognised, another one is not", "[unit][server]") {
  const std::set<std::string> names{"name", "token", "token_file", "weight"};
  for (const char* misspelt : {"tokn", "ttoken", "tokem", "tokne", "TOken"}) {
    CHECK(near_name(misspelt, names) == "token");
  }
  CHECK(near_name("nmae", names) == "name");
  for (const char* other : {"", "x", "ab", "salt", "tokenization"}) {
    CHECK(near_name(other, names).empty());
  }
}

TEST_CASE("sizes are read with and without units", "[unit][server]") {
  CHECK(*parse_bytes("1000") == 1000);
  CHECK(*parse_bytes("3KiB") == 3072);
  CHECK(*parse_bytes("2 MiB") == 2u << 20);
  CHECK(*parse_bytes("1TiB") == 1ull << 40);
  for (const char* text :
       {"", "MiB", "-1", "1.5GiB", "1TB", "99999999999999999999", "99999999999GiB"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text).ok());
  }
}

}  // namespace precis
