#include "cachesvc/base/config.h"

#include <sys/stat.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "cachesvc/base/log.h"
#include "cachesvc/base/machine_memory.h"
#include "cachesvc/base/near_name.h"
#include "precis/device_choice.h"
#include "precis/limits.h"
#include "precis/read_file.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {
namespace {

constexpr std::uint64_t kMemoryBytesMin = 16u << 20;  // room for small layers in flight

// Smallest first.
constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
    {"B", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", 1ull << 40}};
constexpr const char* kSizeForm = "a size such as 512MiB, 24GiB or 1TiB";

// Formats bytes for parse_bytes(), in the largest unit that is exact: "16MiB".
std::string size_text(std::uint64_t bytes) {
  std::string text;
  for (const auto& [unit, factor] : kUnits) {
    const bool exact = bytes >= factor && bytes % factor == 0;
    if (text.empty() || exact) text = std::to_string(bytes / factor) + std::string(unit);
  }
  return text;
}

std::string place(const std::string& where, const toml::node& node) {
  return where + ":" + std::to_string(node.source().begin.line);
}

// Reads keys of one table and remembers them, so that unknown keys can be refused.
class Reader {
 public:
  Reader(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  template <typename T>
  void read(std::string_view key, T& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    using Stored = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    std::optional<Stored> value;
    if constexpr (std::is_floating_point_v<T>) {
      if (node->is_number()) value = node->value<Stored>();  // an integer such as 1 is also valid
    } else {
      value = node->value_exact<Stored>();  // toml++ would cast numbers that do not fit
    }
    if (!value) return complain(*node, key, std::string("must be ") + wanted<T>());
    if constexpr (std::is_integral_v<T>) {
      if (*value < 0 || static_cast<std::uint64_t>(*value) > std::numeric_limits<T>::max()) {
        return complain(*node, key,
                        "is " + std::to_string(*value) + ", must be in [0, " +
                            std::to_string(std::numeric_limits<T>::max()) + "]");
      }
      into = static_cast<T>(*value);
    } else {
      into = *value;
    }
  }

  void read_bytes(std::string_view key, std::uint64_t& into) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const auto number = node->value_exact<std::int64_t>();
    if (!number && !node->is_string()) {
      return complain(*node, key,
                      std::string("must be a number of bytes, or in quotes ") + kSizeForm);
    }
    const std::string text =
        number ? std::to_string(*number) : std::string(node->value_or(std::string_view{}));
    auto bytes = parse_bytes(text);
    if (!bytes.ok()) return complain(*node, key, bytes.status().message());
    into = *bytes;
  }

  void require(std::string_view key) {
    if (table_.get(key) == nullptr) complain(table_, key, "is missing");
  }

  void allow(std::string_view key) { known_.insert(std::string(key)); }

  // "FILE:LINE" of each key that was found and read.
  const std::map<std::string, std::string, std::less<>>& said_at() const { return said_at_; }

  const std::set<std::string>& known() const { return known_; }

  // `of_service`: for a [[tenant]], the keys that belong above the first [[tenant]].
  Status finish(const std::set<std::string>& of_service = {}) {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (!known_.contains(name)) complain(node, name, unknown(name, of_service));
    }
    return problems_.empty() ? Status() : Status::invalid(problems_);
  }

 private:
  // Explains an unknown key.
  std::string unknown(const std::string& key, const std::set<std::string>& of_service) const {
    if (of_service.contains(key)) {
      return "is not a setting of a tenant: write it above the first [[tenant]]";
    }
    if (const std::string meant = near_name(key, known_); !meant.empty()) {
      return "is not a setting; did you mean '" + meant + "'?";
    }
    std::string choices;
    for (const std::string& each : known_) choices += (choices.empty() ? "" : ", ") + each;
    return "is not a setting; choose from " + choices;
  }
  const toml::node* find(std::string_view key) {
    known_.insert(std::string(key));
    const toml::node* node = table_.get(key);
    if (node != nullptr) said_at_[std::string(key)] = place(where_, *node);
    return node;
  }
  template <typename T>
  static const char* wanted() {
    if constexpr (std::is_integral_v<T>) return "a whole number, without quotes";
    if constexpr (std::is_floating_point_v<T>) return "a number, without quotes";
    return "a text, in quotes";
  }
  void complain(const toml::node& node, std::string_view key, const std::string& what) {
    problems_ += (problems_.empty() ? "" : "\n") + place(where_, node) + ": " + std::string(key) +
                 " " + what;
  }
  const toml::table& table_;
  std::string where_;
  std::set<std::string> known_;
  std::map<std::string, std::string, std::less<>> said_at_;
  std::string problems_;
};

// Keyed by order in the file, because names may be missing or repeated.
std::string tenant_key(std::size_t at) { return "tenant " + std::to_string(at); }

Status read_tenants(const toml::table& root, const std::string& where,
                    const std::set<std::string>& of_service, Config& config) {
  const toml::node* node = root.get("tenant");
  if (node == nullptr) return {};
  const toml::array* list = node->as_array();
  if (list == nullptr) {
    return Status::invalid(place(where, *node) + ": tenant must be written as [[tenant]] tables");
  }
  for (const toml::node& item : *list) {
    const toml::table* table = item.as_table();
    if (table == nullptr) {
      return Status::invalid(place(where, item) + ": every [[tenant]] must be a table");
    }
    TenantConfig tenant;
    Reader reader(*table, where);
    reader.require("name");
    reader.read("name", tenant.name);
    reader.read("token", tenant.token);
    reader.read("token_file", tenant.token_file);
    reader.read("salt", tenant.salt);
    reader.read("weight", tenant.weight);
    PRECIS_TRY(reader.finish(of_service));
    config.said_at[tenant_key(config.tenants.size())] = place(where, item);
    config.tenants.push_back(std::move(tenant));
  }
  return {};
}

bool is_readable_by_all(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & S_IROTH) != 0;
}

// Resolves the path of a file that the configuration names, by the rule of Config::read_tokens().
Result<std::filesystem::path> find_file(const std::string& name, const std::string& credentials_dir,
                                        const std::string& beside) {
  constexpr std::string_view kVariables[] = {"$CREDENTIALS_DIRECTORY", "${CREDENTIALS_DIRECTORY}"};
  std::filesystem::path path = name;
  bool of_credentials = path.is_relative() && !credentials_dir.empty();
  for (const std::string_view variable : kVariables) {
    if (!name.starts_with(variable)) continue;
    if (credentials_dir.empty()) {
      return Status::invalid("is '" + name +
                             "', and CREDENTIALS_DIRECTORY is not set: systemd sets it where the "
                             "unit has LoadCredential; else give the path of a file");
    }
    path = std::filesystem::path(name.substr(variable.size())).relative_path();
    of_credentials = true;
  }
  // operator/ keeps an absolute path as it is.
  return std::filesystem::path(of_credentials ? credentials_dir : beside) / path;
}

struct Token {
  std::string path, text;
};

Result<Token> read_token(const TenantConfig& tenant, const std::string& credentials_dir,
                         const std::string& beside) {
  if (!tenant.token.empty()) {
    return Status::invalid("token is given as well; keep one of the two");
  }
  PRECIS_ASSIGN(const auto path, find_file(tenant.token_file, credentials_dir, beside));
  // Reading a pipe without a writer would block.
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none)) {
    return Status::invalid(path.string() + " is no regular file, must be one that holds the token");
  }
  PRECIS_ASSIGN(std::string text, read_file(path.string(), limits::kCredentialBytesMax));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return Status::invalid(path.string() + " is empty, must hold the token");
  return Token{path.string(), std::move(text)};
}

}  // namespace

Result<Config> Config::load(const std::string& path) {
  const auto toml = read_file(path, limits::kConfigBytesMax);
  PRECIS_TRY(toml.status().with_context("config file"));
  PRECIS_ASSIGN(Config config, parse(*toml, path));
  const bool has_token = std::ranges::any_of(
      config.tenants, [](const TenantConfig& tenant) { return !tenant.token.empty(); });
  if (has_token && is_readable_by_all(path)) config.exposed_files.push_back(path);
  if (is_readable_by_all(config.tls_key)) config.exposed_files.push_back(config.tls_key);
  return config;
}

Status Config::read_tokens(const std::string& credentials_dir, const std::string& beside) {
  std::string problems;
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    TenantConfig& tenant = tenants[t];
    if (tenant.token_file.empty()) continue;
    const auto token = read_token(tenant, credentials_dir, beside);
    if (!token.ok()) {
      problems += (problems.empty() ? "" : "\n") + origin(tenant_key(t)) + "tenant '" +
                  tenant.name + "': token_file: " + token.status().message();
      continue;
    }
    tenant.token = token->text;
    if (is_readable_by_all(token->path)) exposed_files.push_back(token->path);
  }
  return problems.empty() ? Status() : Status::invalid(problems);
}

Status Config::find_tls_files(const std::string& credentials_dir, const std::string& beside) {
  for (const auto& [key, file] : {std::pair{"tls_cert", &tls_cert}, std::pair{"tls_key", &tls_key},
                                  std::pair{"tls_client_ca", &tls_client_ca}}) {
    if (file->empty()) continue;
    const auto path = find_file(*file, credentials_dir, beside);
    if (!path.ok()) return Status::invalid(origin(key) + key + " " + path.status().message());
    *file = std::filesystem::absolute(*path).string();
  }
  return {};
}

Result<Config> Config::parse(std::string_view toml, const std::string& where) {
  toml::table root;
  try {
    root = toml::parse(toml);
  } catch (const toml::parse_error& error) {
    return Status::invalid(where + ":" + std::to_string(error.source().begin.line) + ": " +
                           std::string(error.description()));
  }
  Config config;
  Reader reader(root, where);
  reader.read("data_dir", config.data_dir);
  reader.read("listen", config.listen);
  reader.read_bytes("memory_bytes", config.memory_bytes);
  reader.read("compute_threads", config.compute_threads);
  reader.read("device", config.device);
  reader.read("log_level", config.log_level);
  reader.read("audit_log", config.audit_log);
  reader.read("listen_unix", config.listen_unix);
  reader.read("tls_cert", config.tls_cert);
  reader.read("tls_key", config.tls_key);
  reader.read("tls_client_ca", config.tls_client_ca);
  reader.read("rdma", config.rdma);
  reader.read("memory_wait_ms", config.memory_wait_ms);
  reader.read("max_requests", config.max_requests);
  reader.read_bytes("max_message_bytes", config.max_message_bytes);
  reader.read("max_puts", config.max_puts);
  reader.read("silent_client_ms", config.silent_client_ms);
  reader.read("tidy_after_ms", config.tidy_after_ms);
  reader.read_bytes("min_free_bytes", config.min_free_bytes);
  reader.read("default_recipe", config.default_recipe);
  reader.read("default_recipe_with_profile", config.default_recipe_with_profile);
  reader.read("default_keep", config.default_keep);
  reader.allow("tenant");
  PRECIS_TRY(reader.finish());
  config.said_at = reader.said_at();
  PRECIS_TRY(read_tenants(root, where, reader.known(), config));
  return config;
}

std::string Config::origin(std::string_view key) const {
  const auto at = said_at.find(key);
  return at == said_at.end() ? "" : at->second + ": ";
}

Status Config::validate() const {
  std::string problems;
  auto require = [&](bool holds, std::string_view key, const std::string& what) {
    if (!holds) problems += (problems.empty() ? "" : "\n") + origin(key) + what;
  };
  auto require_ok = [&](const char* key, const Status& status) {
    require(status.ok(), key, std::string(key) + ": " + status.message());
  };
  require(!data_dir.empty(), "data_dir",
          "data_dir is not set: give --data DIR or data_dir in the config file");
  require(listen.find(':') != std::string::npos, "listen",
          "listen is '" + listen + "', must be HOST:PORT");
  require(memory_bytes == 0 || memory_bytes >= kMemoryBytesMin, "memory_bytes",
          "memory_bytes is " + size_text(memory_bytes) + ", must be at least " +
              size_text(kMemoryBytesMin));
  require(memory_bytes <= machine_memory_bytes(), "memory_bytes",
          "memory_bytes is " + size_text(memory_bytes) + ", more than this machine's " +
              std::to_string(machine_memory_bytes() >> 20) + "MiB");
  require(max_requests > 0, "max_requests", "max_requests is 0, must be at least 1");
  require(max_message_bytes >= limits::kMessageBytesMax, "max_message_bytes",
          "max_message_bytes is " + size_text(max_message_bytes) + ", must be at least " +
              size_text(limits::kMessageBytesMax) + ", the largest message");
  require(max_puts > 0, "max_puts", "max_puts is 0, must be at least 1");
  require(silent_client_ms > 0, "silent_client_ms", "silent_client_ms is 0, must be at least 1");
  require(compute_threads <= kComputeThreadsMax, "compute_threads",
          "compute_threads is " + std::to_string(compute_threads) + ", must be at most " +
              std::to_string(kComputeThreadsMax));
  const Status device_status = DeviceChoice::parse(device).status();
  require(device_status.ok(), "device", device_status.message());
  require_ok("log_level", Log::parse_level(log_level).status());
  require(tls_cert.empty() == tls_key.empty(), tls_cert.empty() ? "tls_key" : "tls_cert",
          "tls_cert and tls_key belong together: give both or neither");
  require(tls_client_ca.empty() || !tls_cert.empty(), "tls_client_ca",
          "tls_client_ca is set without tls_cert and tls_key");
  require(!rdma.empty(), "rdma",
          "rdma is '', must be auto, off or devices with commas, such as mlx5_0:1");
  const auto for_all = parse_recipe(default_recipe);
  require_ok("default_recipe", for_all.status());
  require(!for_all.ok() || !for_all->needs_profile(), "default_recipe",
          "default_recipe is '" + default_recipe +
              "', which takes its budgets from a profile: give it as default_recipe_with_profile, "
              "for the models that have one");
  if (!default_recipe_with_profile.empty()) {
    const auto recipe = parse_recipe(default_recipe_with_profile);
    require_ok("default_recipe_with_profile", recipe.status());
    require(!recipe.ok() || recipe->needs_profile(), "default_recipe_with_profile",
            "default_recipe_with_profile is '" + default_recipe_with_profile +
                "', must be a recipe that takes its budgets from a profile, such as lukv(kvdiff)");
  }
  require_ok("default_keep", Budget::ratio(default_keep).status());
  std::set<std::string> names;
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    const TenantConfig& tenant = tenants[t];
    require(!tenant.name.empty() && tenant.name.size() <= limits::kNameBytesMax, tenant_key(t),
            "tenant name '" + tenant.name + "' must have 1 to " +
                std::to_string(limits::kNameBytesMax) + " bytes");
    require(names.insert(tenant.name).second, tenant_key(t),
            "tenant '" + tenant.name + "' is there twice");
    require(tenant.weight >= 1 && tenant.weight <= limits::kTenantWeightMax, tenant_key(t),
            "tenant '" + tenant.name + "' has weight " + std::to_string(tenant.weight) +
                ", must be in [1, " + std::to_string(limits::kTenantWeightMax) + "]");
  }
  return problems.empty() ? Status() : Status::invalid(problems);
}

std::string Config::resolved_listen_unix() const {
  if (listen_unix == "off") return "";
  return listen_unix == "auto" ? data_dir + "/precisd.sock" : listen_unix;
}

std::uint64_t Config::resolved_memory_bytes() const {
  if (memory_bytes != 0) return memory_bytes;
  return std::max(kMemoryBytesMin, machine_memory_bytes() / 4);
}

std::uint32_t Config::resolved_compute_threads() const {
  return compute_threads != 0 ? compute_threads : std::max(1u, std::thread::hardware_concurrency());
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc()) {
    std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
    if (unit.empty()) return number;
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number <= std::numeric_limits<std::uint64_t>::max() / factor) {
        return number * factor;
      }
    }
  }
  return Status::invalid("is '" + std::string(text) + "', must be " + kSizeForm +
                         ", or a number of bytes");
}

}  // namespace precis
