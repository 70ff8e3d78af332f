// The process's settings: defaults here, then the TOML file, then flags. Absent means the default;
// present but wrong stops the process with every problem listed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"

namespace precis {

inline constexpr std::uint32_t kComputeThreadsMax = 1024;

// Who may connect, under what name.
struct TenantConfig {
  std::string name;
  std::string token;            // empty: none is asked for
  std::string salt;             // of the tenant's paths; another salt is another cache
  std::uint32_t weight = 1;     // a tenant of weight 2 has twice the share of one of weight 1
  std::string token_file = {};  // has the token; empty: it stands above (Config::read_tokens())
  bool operator==(const TenantConfig&) const = default;
};

struct Config {
  std::string data_dir;                   // where everything stored lies; must be given
  std::string listen = "127.0.0.1:7470";  // host:port; port 0 picks one
  std::uint64_t memory_bytes = 0;     // arena: staging and hot tier; 0: a quarter of the machine's
  std::uint32_t compute_threads = 0;  // 0: every core
  std::string device = "auto";        // where layers are compressed, as DeviceChoice::parse()
  std::string log_level = "info";
  std::string audit_log;  // a file, or "stderr" (audit.h); empty: none is kept
  // The path of a Unix socket, "auto" (precisd.sock in data_dir), or "off".
  std::string listen_unix = "auto";
  // PEM files; TCP is TLS 1.3 with the first two, and with the third clients must show a
  // certificate that it signed.
  std::string tls_cert, tls_key, tls_client_ca;
  // One-sided transfers: "auto" (where the host has a device), "off", or devices with commas.
  std::string rdma = "auto";
  std::uint32_t memory_wait_ms = 30'000;  // puts and reads wait this long for memory
  // Overload: what is past these is rejected, and told when to come back. Of all connections.
  std::uint32_t max_requests = 4096;  // being answered at a time
  // Of requests on their way, again of requests being answered, and again of answers unsent.
  std::uint64_t max_message_bytes = 256u << 20;
  std::uint32_t max_puts = 1024;  // under way at a time
  // While somebody waits for memory, a client that holds some and moves nothing so long loses it.
  std::uint32_t silent_client_ms = 20'000;
  // From a removal until a thread moves what lies beside it on the disk, where that gives space
  // back.
  std::uint32_t tidy_after_ms = 1000;
  // Puts that would leave less free on the disk are refused; 0: by the disk's size (DiskBudget).
  std::uint64_t min_free_bytes = 0;
  // Defaults of puts that say nothing and find nothing in the catalog.
  std::string default_recipe = "global_kvdiff(min_entries=128)";
  // Of models that have a profile which fits it; empty: default_recipe for them as well.
  std::string default_recipe_with_profile = "lukv(kvdiff, min_entries=128)";
  double default_keep = 0.3;
  // Without any, the one tenant is "default" and needs no token.
  std::vector<TenantConfig> tenants;
  // "FILE:LINE" of what a file has set, by key; of the first [[tenant]], by "tenant 0". Who sets
  // one over the file erases it here.
  std::map<std::string, std::string, std::less<>> said_at;
  // Files that hold a token or the TLS key and that every user of this machine may read: worth a
  // warning.
  std::vector<std::string> exposed_files;

  // Reads `path` over the defaults. kNotFound, kInvalidArgument past limits::kConfigBytesMax, or as
  // parse().
  static Result<Config> load(const std::string& path);
  // `toml` over the defaults. kInvalidArgument naming `where` it is from, line, key and choices.
  static Result<Config> parse(std::string_view toml, const std::string& where);
  // Fills in the token of every tenant that has a token_file, without the line ends behind it. A
  // relative path, and one that begins with $CREDENTIALS_DIRECTORY, is of the folder
  // `credentials_dir`, where systemd puts credentials; where that is empty a relative path is of
  // the folder `beside`. kInvalidArgument naming every tenant whose file can't be used.
  Status read_tokens(const std::string& credentials_dir, const std::string& beside);
  // Makes the paths of TLS's files absolute, by the same rule. kInvalidArgument where it can't.
  Status find_tls_files(const std::string& credentials_dir, const std::string& beside);
  // Every problem at once, one a line.
  Status validate() const;
  // What a message about `key` begins with: "FILE:LINE: ", or nothing where no file has set it.
  std::string origin(std::string_view key) const;
  std::string resolved_listen_unix() const;  // a path; empty: none
  std::uint64_t resolved_memory_bytes() const;
  std::uint32_t resolved_compute_threads() const;
  bool operator==(const Config&) const = default;
};

// "512MiB", "4GiB", "1TiB", "1000000": bytes. kInvalidArgument, in words that go on after the name
// of the setting: "is 'x', must be ...".
Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace precis
