#include "cachesvc/base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "cachesvc/base/byte_size.h"
#include "cachesvc/base/capacity_settings.h"
#include "cachesvc/base/config_files.h"
#include "cachesvc/base/config_reader.h"
#include "cachesvc/base/config_settings.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/machine_memory.h"
#include "precis/device_choice.h"
#include "precis/keep.h"
#include "precis/limits.h"
#include "precis/read_file.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {
namespace {

constexpr std::uint64_t kMemoryBytesMin = 16u << 20;  // room for small layers in flight

// Keyed by order in the file, because names may be missing or repeated.
std::string tenant_key(std::size_t at) { return "tenant " + std::to_string(at); }

// Whether `path` is the folder `dir` or in it; symbolic links are resolved as far as they exist.
bool is_inside(const std::string& path, const std::string& dir) {
  std::error_code error;
  const auto folder = [&](const std::string& name) {
    const auto whole = std::filesystem::absolute(name, error);
    const auto resolved = std::filesystem::weakly_canonical(whole, error);
    return ((error ? whole.lexically_normal() : resolved) / "").string();
  };
  return folder(path).starts_with(folder(dir));
}

Status read_tenants(const toml::table& root, const std::string& where,
                    const std::set<std::string>& of_service, Config& config) {
  const toml::node* node = root.get("tenant");
  if (node == nullptr) return {};
  const toml::array* list = node->as_array();
  if (list == nullptr) {
    return Status::invalid(ConfigReader::place(where, *node) +
                           ": tenant must be written as [[tenant]] tables");
  }
  for (const toml::node& item : *list) {
    const toml::table* table = item.as_table();
    if (table == nullptr) {
      return Status::invalid(ConfigReader::place(where, item) +
                             ": every [[tenant]] must be a table");
    }
    TenantConfig tenant;
    ConfigReader reader(*table, where);
    reader.require("name");
    reader.read("name", tenant.name);
    reader.read("token", tenant.token);
    reader.read("token_file", tenant.token_file);
    reader.read("salt", tenant.salt);
    reader.read("weight", tenant.weight);
    reader.read("role", tenant.role);
    reader.read("max_disk_bytes", tenant.max_disk_bytes);
    reader.read("max_memory_bytes", tenant.max_memory_bytes);
    reader.read("max_puts", tenant.max_puts);
    reader.read("max_requests_per_s", tenant.max_requests_per_s);
    PRECIS_TRY(reader.finish(of_service));
    config.said_at[tenant_key(config.tenants.size())] = ConfigReader::place(where, item);
    config.tenants.push_back(std::move(tenant));
  }
  return {};
}

// Collects what is wrong with the settings, a line each.
class Checks {
 public:
  explicit Checks(const Config& of) : config(of) {}
  void require(bool holds, std::string_view key, const std::string& what) {
    if (!holds) problems += (problems.empty() ? "" : "\n") + config.origin(key) + what;
  }
  void require_ok(const std::string& key, const Status& status) {
    require(status.ok(), key, key + ": " + status.message());
  }

  const Config& config;
  std::string problems;
};

void check_places(Checks& checks) {
  const Config& c = checks.config;
  checks.require(!c.data_dir.empty(), "data_dir",
                 "data_dir is not set: give --data DIR or data_dir in the config file");
  checks.require(
      c.backup_dir.empty() || c.data_dir.empty() || !is_inside(c.backup_dir, c.data_dir),
      "backup_dir",
      "backup_dir is '" + c.backup_dir +
          "', which is in data_dir: a disk that fails would take both, so give another folder");
  checks.require(c.listen.find(':') != std::string::npos, "listen",
                 "listen is '" + c.listen + "', must be HOST:PORT");
  checks.require(!c.rdma.empty(), "rdma",
                 "rdma is '', must be auto, off, or devices separated by commas, such as mlx5_0:1");
}

void check_limits(Checks& checks) {
  const Config& c = checks.config;
  checks.require(c.memory_bytes == 0 || c.memory_bytes >= kMemoryBytesMin, "memory_bytes",
                 "memory_bytes is " + size_text(c.memory_bytes) + ", must be at least " +
                     size_text(kMemoryBytesMin));
  checks.require(c.memory_bytes <= machine_memory_bytes(), "memory_bytes",
                 "memory_bytes is " + size_text(c.memory_bytes) + ", more than this machine's " +
                     std::to_string(machine_memory_bytes() >> 20) + "MiB");
  checks.require(c.max_requests > 0, "max_requests", "max_requests is 0, must be at least 1");
  checks.require(c.max_message_bytes >= limits::kMessageBytesMax, "max_message_bytes",
                 "max_message_bytes is " + size_text(c.max_message_bytes) + ", must be at least " +
                     size_text(limits::kMessageBytesMax) + ", the largest message");
  checks.require(c.max_puts > 0, "max_puts", "max_puts is 0, must be at least 1");
  checks.require(c.silent_client_ms > 0, "silent_client_ms",
                 "silent_client_ms is 0, must be at least 1");
  checks.require(c.compute_threads <= kComputeThreadsMax, "compute_threads",
                 "compute_threads is " + std::to_string(c.compute_threads) + ", must be at most " +
                     std::to_string(kComputeThreadsMax));
  const Status device = DeviceChoice::parse(c.device).status();
  checks.require(device.ok(), "device", device.message());
  checks.require(
      c.max_pinned_share > 0 && c.max_pinned_share <= 1, "max_pinned_share",
      "max_pinned_share is " + std::to_string(c.max_pinned_share) + ", must be in (0, 1]");
  const Status policy = parse_capacity_policy(c.capacity_policy).status();
  checks.require(policy.ok(), "capacity_policy", policy.message());
  const Status ladder = check_trim_ladder(c.trim_ladder);
  checks.require(ladder.ok(), "trim_ladder", ladder.message());
}

void check_tls(Checks& checks) {
  const Config& c = checks.config;
  checks.require(c.tls_cert.empty() == c.tls_key.empty(),
                 c.tls_cert.empty() ? "tls_key" : "tls_cert",
                 "tls_cert and tls_key belong together: give both or neither");
  checks.require(c.tls_client_ca.empty() || !c.tls_cert.empty(), "tls_client_ca",
                 "tls_client_ca is set without tls_cert and tls_key");
  checks.require(c.admin_tls_cert.empty() == c.admin_tls_key.empty(),
                 c.admin_tls_cert.empty() ? "admin_tls_key" : "admin_tls_cert",
                 "admin_tls_cert and admin_tls_key belong together: give both or neither");
  checks.require(c.admin_tls_ca.empty() || !c.admin_tls_cert.empty(), "admin_tls_ca",
                 "admin_tls_ca is set without admin_tls_cert and admin_tls_key: give them too");
  checks.require(c.admin_tls_cert.empty() || !c.admin.empty(), "admin_tls_cert",
                 "admin_tls_cert is set without admin: give the port's address too");
}

void check_observers(Checks& checks) {
  const Config& c = checks.config;
  checks.require_ok("log_level", Log::parse_level(c.log_level).status());
  checks.require(c.kv_events_access == "local" || c.kv_events_access == "network",
                 "kv_events_access",
                 "kv_events_access is '" + c.kv_events_access + "', must be local or network");
  checks.require(c.trace_sample >= 0 && c.trace_sample <= 1, "trace_sample",
                 "trace_sample is " + std::to_string(c.trace_sample) + ", must be in [0, 1]");
  checks.require(c.trace_spans_per_s > 0, "trace_spans_per_s",
                 "trace_spans_per_s is 0, must be at least 1: without otlp_endpoint there are no "
                 "traces");
}

void check_recipes(Checks& checks) {
  const Config& c = checks.config;
  const auto for_all = parse_recipe(c.default_recipe);
  checks.require_ok("default_recipe", for_all.status());
  checks.require(!for_all.ok() || !for_all->needs_profile(), "default_recipe",
                 "default_recipe is '" + c.default_recipe +
                     "', which takes a profile: set it as default_recipe_with_profile, "
                     "for the models that have a profile");
  if (c.default_recipe_with_profile.empty()) return;
  const auto recipe = parse_recipe(c.default_recipe_with_profile);
  checks.require_ok("default_recipe_with_profile", recipe.status());
  checks.require(
      !recipe.ok() || recipe->needs_profile(), "default_recipe_with_profile",
      "default_recipe_with_profile is '" + c.default_recipe_with_profile +
          "', must be a recipe that takes a profile, such as global_kvprobe or lukv(kvdiff)");
}

void check_budgets(Checks& checks) {
  const Budget &keep = checks.config.default_keep, &limit = checks.config.default_limit;
  const Status of_keep = check_keep(keep, "default_keep");
  const Status of_limit = check_reader_keep(limit, "default_limit");
  checks.require(of_keep.ok(), "default_keep", of_keep.message());
  checks.require(of_limit.ok(), "default_limit", of_limit.message());
  checks.require(keep.kind != limit.kind || keep.value <= limit.value, "default_limit",
                 "default_limit is " + limit.to_string() + ", less than default_keep, which is " +
                     keep.to_string() + ": raise the limit, or lower default_keep");
}

void check_tenants(Checks& checks) {
  std::set<std::string> names;
  for (std::size_t t = 0; t < checks.config.tenants.size(); ++t) {
    const TenantConfig& tenant = checks.config.tenants[t];
    for (const std::string& each : problems_of(tenant)) checks.require(false, tenant_key(t), each);
    checks.require(names.insert(tenant.name).second, tenant_key(t),
                   "tenant '" + tenant.name + "' is given twice");
  }
}

}  // namespace

Result<Config> Config::load(const std::string& path) {
  const auto toml = read_file(path, limits::kConfigBytesMax);
  PRECIS_TRY(toml.status().with_context("config file"));
  PRECIS_ASSIGN(Config config, parse(*toml, path));
  const bool has_token = std::ranges::any_of(
      config.tenants, [](const TenantConfig& tenant) { return !tenant.token.empty(); });
  if (has_token && is_readable_by_all(path)) config.exposed_files.push_back(path);
  for (const std::string& key : {config.tls_key, config.admin_tls_key, config.cluster_tls_key}) {
    if (is_readable_by_all(key)) config.exposed_files.push_back(key);
  }
  return config;
}

Status Config::read_tokens(const std::string& credentials_dir, const std::string& beside) {
  std::string problems;
  const auto read = [&](const std::string& place, const std::string& file, std::string& token) {
    if (file.empty()) return;
    const auto found = token.empty() ? read_token_file(file, credentials_dir, beside)
                                     : Status::invalid("token is given too; remove one of the two");
    if (!found.ok()) {
      problems += (problems.empty() ? "" : "\n") + place + found.status().message();
      return;
    }
    token = found->text;
    if (is_readable_by_all(found->path)) exposed_files.push_back(found->path);
  };
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    TenantConfig& tenant = tenants[t];
    read(origin(tenant_key(t)) + "tenant '" + tenant.name + "': token_file: ", tenant.token_file,
         tenant.token);
  }
  read(origin("admin_token_file") + "admin_token_file: ", admin_token_file, admin_token);
  return problems.empty() ? Status() : Status::invalid(problems);
}

Status Config::find_tls_files(const std::string& credentials_dir, const std::string& beside) {
  for (const auto& [key, file] :
       {std::pair{"tls_cert", &tls_cert}, std::pair{"tls_key", &tls_key},
        std::pair{"tls_client_ca", &tls_client_ca}, std::pair{"admin_tls_cert", &admin_tls_cert},
        std::pair{"admin_tls_key", &admin_tls_key}, std::pair{"admin_tls_ca", &admin_tls_ca},
        std::pair{"cluster_tls_ca", &cluster_tls_ca},
        std::pair{"cluster_tls_cert", &cluster_tls_cert},
        std::pair{"cluster_tls_key", &cluster_tls_key}, std::pair{"cluster_s3_ca", &cluster_s3_ca},
        std::pair{"cluster_s3_keys", &cluster_s3_keys}}) {
    const bool is_ca = file == &cluster_tls_ca || file == &cluster_s3_ca;
    if (file->empty() || (is_ca && *file == "system")) continue;
    const auto path = find_file(*file, credentials_dir, beside);
    if (!path.ok()) return Status::invalid(origin(key) + key + " " + path.status().message());
    *file = std::filesystem::absolute(*path).string();
  }
  if (is_readable_by_all(cluster_s3_keys)) exposed_files.push_back(cluster_s3_keys);
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
  ConfigReader reader(root, where);
  each_setting(
      [&](std::string_view key, auto member, Adopted) { reader.read(key, config.*member); });
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
  Checks checks(*this);
  check_places(checks);
  check_limits(checks);
  check_tls(checks);
  check_observers(checks);
  check_recipes(checks);
  check_budgets(checks);
  check_tenants(checks);
  return checks.problems.empty() ? Status() : Status::invalid(checks.problems);
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

}  // namespace precis
