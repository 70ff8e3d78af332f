// precisd reads its settings from flags and a file, and runs one Service over sockets until SIGINT
// or SIGTERM. On SIGHUP it reads its settings again.

#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>

#include "cachesvc/admin/admin.h"
#include "cachesvc/base/byte_size.h"
#include "cachesvc/base/notify.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/net/address.h"
#include "cachesvc/publish/kv_publisher.h"
#include "cachesvc/restore_command.h"
#include "cachesvc/server/accept_loss.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/disk_mark.h"
#include "cachesvc/server/read_tls.h"
#include "cachesvc/server/service.h"
#include "cachesvc/server/version.h"
#include "cachesvc/trace/span_exporter.h"
#include "cachesvc/transport/socket_transport.h"
#include "precis/printable.h"

namespace {

using precis::Config;
using precis::EventLoop;
using precis::Result;
using precis::Service;
using precis::Status;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Flags override the file. Each flag is applied only if it is given.
struct Flags {
  std::string config_file, data_dir, listen, memory, device, log_level, listen_unix, threads, admin;
  bool check = false;
  precis::RestoreOptions restore;
  std::uint64_t accept_loss = 0;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config_file, "Settings file (TOML); flags override it");
  app.add_option("--data", flags.data_dir, "Folder of all stored data; created if missing");
  app.add_option("--listen", flags.listen,
                 "HOST:PORT to serve on; port 0 picks one [127.0.0.1:7470]");
  app.add_option(
      "--memory", flags.memory,
      "Memory for the RAM tier and puts in progress, e.g. 4GiB [a quarter of the machine's]");
  app.add_option(
      "--device", flags.device,
      "Device that compresses layers: auto (a GPU if there is one), cpu or cuda:N [auto]");
  app.add_option("--threads", flags.threads, "Compute threads [every core]")->type_name("UINT");
  app.add_option("--listen-unix", flags.listen_unix,
                 "PATH of a Unix socket, auto (precisd.sock in the data folder) or off [auto]");
  app.add_option("--admin", flags.admin,
                 "IP:PORT for operators over HTTP: metrics, health, API; port 0 picks one [none]");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off [info]");
  app.add_flag("--check", flags.check,
               "Check the settings, say what is wrong, and exit with code 0 or 2");
  app.add_option("--accept-loss", flags.accept_loss,
                 "Accept the loss of this many missing changes (precisctl fsck says how many) for "
                 "good, and exit");
  CLI::Option* const restore =
      app.add_option("--restore", flags.restore.from,
                     "Restore a backup from this folder into the empty folder of --data, and exit");
  app.add_option("--backup", flags.restore.name, "With --restore: the backup's name [the newest]")
      ->needs(restore);
  app.add_flag("--list", flags.restore.list, "With --restore: only list the backups")
      ->needs(restore);
  app.add_flag("--dry-run", flags.restore.dry_run, "With --restore: only check the backup")
      ->needs(restore);
  app.add_flag("--json", flags.restore.json, "With --restore: answer in JSON")->needs(restore);
  app.set_version_flag("--version", precis::server_name());
}

Result<std::uint32_t> parse_threads(const std::string& text) {
  std::uint32_t threads = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, threads);
  if (error == std::errc() && end == last && threads <= precis::kComputeThreadsMax) return threads;
  return Status::invalid("--threads is '" + text + "', must be a whole number in [0, " +
                         std::to_string(precis::kComputeThreadsMax) + "], where 0 is every core");
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the settings from the file and the flags as they are now. Called again on SIGHUP.
Result<Config> settle(const CLI::App& app, const Flags& flags) {
  Config config;
  if (!flags.config_file.empty()) {
    PRECIS_ASSIGN(config, Config::load(flags.config_file));
  }
  // An error in a setting that a flag gives is not reported as the file's.
  const auto given = [&](const char* flag, const char* key) {
    if (app.count(flag) == 0) return false;
    config.said_at.erase(key);
    return true;
  };
  if (given("--data", "data_dir")) config.data_dir = flags.data_dir;
  if (given("--listen", "listen")) config.listen = flags.listen;
  if (given("--device", "device")) config.device = flags.device;
  if (given("--listen-unix", "listen_unix")) config.listen_unix = flags.listen_unix;
  if (given("--admin", "admin")) config.admin = flags.admin;
  if (given("--log-level", "log_level")) config.log_level = flags.log_level;
  if (given("--threads", "compute_threads")) {
    PRECIS_ASSIGN(config.compute_threads, parse_threads(flags.threads));
  }
  if (given("--memory", "memory_bytes")) {
    const auto bytes = precis::parse_bytes(flags.memory);
    if (!bytes.ok()) return Status::invalid("--memory " + bytes.status().message());
    config.memory_bytes = *bytes;
  }
  const auto folder = std::filesystem::path(flags.config_file).parent_path();
  const std::string credentials = environment("CREDENTIALS_DIRECTORY");
  PRECIS_TRY(config.read_tokens(credentials, folder.string()));
  PRECIS_TRY(config.find_tls_files(credentials, folder.string()));
  PRECIS_TRY(config.validate());
  const Status address = precis::split_address(config.listen).status();
  if (!address.ok()) {
    return Status::invalid(config.origin("listen") + "listen: " + address.message());
  }
  PRECIS_TRY(precis::admin::check_config(config));
  PRECIS_TRY(precis::publish::check_config(config));
  PRECIS_TRY(precis::trace::check_config(config));
  PRECIS_TRY(precis::cluster::check_config(config));
  return config;
}

Result<precis::SocketOptions> socket_options(const Config& config) {
  precis::SocketOptions options;
  options.listen_unix = config.resolved_listen_unix();
  options.inbox_bytes_max = config.max_message_bytes;
  PRECIS_ASSIGN(options.tls, precis::read_tls(config));
  return options;
}

Result<std::unique_ptr<precis::Transport>> make_transport(EventLoop& loop, const Config& config,
                                                          precis::SocketOptions options) {
  // RDMA does not encrypt, so with TLS the operator must name a device.
  const bool is_off = config.rdma == "auto" && options.tls != nullptr;
  auto rdma = precis::RdmaDevice::open(&loop, is_off ? "off" : config.rdma);
  // A device that was not requested may fail: then bytes go over sockets.
  if (!rdma.ok() && config.rdma != "auto") return rdma.status();
  if (!rdma.ok()) {
    std::cerr << "precisd: " << precis::printable_lines(rdma.status().message()) << "\n";
  }
  if (rdma.ok()) options.rdma = std::move(*rdma);
  return precis::make_socket_transport(loop, options);
}

// Blocks the process's signals for all later threads. They arrive at the returned descriptor. A
// library's handler for SIGHUP is never called while SIGHUP is blocked.
int own_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

// Every connection takes some descriptors. The usual soft limit exists for programs that use
// select(), which precisd does not use. The service's log line "serving" reports the limit.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

// Describes an error of the command line.
Status misuse(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  const std::string what =
      rest.empty() ? error.what() : "'" + rest.front() + "' is not an option of precisd";
  return Status::invalid(what + "; see precisd --help");
}

int fail(const Status& status, int exit_code) {
  std::cerr << "precisd: " << precis::printable_lines(status.message()) << "\n";
  return exit_code;
}

// Returns the missing folder of an explicitly set socket path, or empty if the folder exists.
// systemd may create the folder at the start (RuntimeDirectory), so a missing folder is no error.
std::string missing_socket_folder(const Config& config) {
  const std::string path = config.resolved_listen_unix();
  if (config.listen_unix == "auto" || path.empty()) return {};
  const auto folder = std::filesystem::absolute(path).parent_path();
  std::error_code unknown;
  return std::filesystem::is_directory(folder, unknown) ? "" : folder.string();
}

int approve(const Config& config) {
  const Status audit = precis::Audit::Sink::check(config.audit_log);
  if (!audit.ok()) {
    return fail(Status::invalid(config.origin("audit_log") + audit.message()), kExitUsage);
  }
  for (const std::string& file : config.exposed_files) {
    std::cerr << "precisd: " << precis::printable(file)
              << " holds a token or a key and can be read by every user of this machine: "
                 "chmod o-r\n";
  }
  const std::string missing = missing_socket_folder(config);
  if (!missing.empty()) {
    std::cerr << "precisd: " << precis::printable(config.origin("listen_unix")) << "listen_unix is "
              << precis::printable(config.listen_unix) << ", but there is no folder "
              << precis::printable(missing) << " now: without it the start fails\n";
  }
  if (const auto kept = precis::raised_min_free_bytes(config)) {
    std::cerr << "precisd: " << precis::printable(config.origin("min_free_bytes"))
              << "min_free_bytes is " << config.min_free_bytes << ", but the disk of "
              << precis::printable(config.data_dir) << " needs at least " << *kept
              << " B free, so that many are kept free\n";
  }
  std::cout << "precisd: the configuration is valid (addresses, devices, the data directory, etcd, "
               "and Ceph or S3 with their files are tried at the start)\n";
  return 0;
}

// Reads the settings again, on SIGHUP. A pipe would be empty the second time, and an empty file is
// valid: without tenants it admits everybody.
Result<Config> settle_again(const CLI::App& app, const Flags& flags) {
  std::error_code unknown;
  if (!flags.config_file.empty() && std::filesystem::exists(flags.config_file, unknown) &&
      !std::filesystem::is_regular_file(flags.config_file, unknown)) {
    return Status::invalid(
        "--config " + flags.config_file +
        " is not a regular file, so it can't be read again; restart precisd instead");
  }
  return settle(app, flags);
}

// The admin port listens before the service opens its data, so that probes see that the process is
// alive. Returns null if none is configured.
Result<std::unique_ptr<precis::admin::Admin>> start_admin(const Config& config,
                                                          precis::Runtime& runtime) {
  if (config.admin.empty()) return std::unique_ptr<precis::admin::Admin>();
  PRECIS_ASSIGN(auto admin, precis::admin::Admin::start(config, runtime));
  std::cerr << "precisd: admin port address=" << admin->address() << "\n";
  return admin;
}

// Returns null if none is configured.
Result<std::unique_ptr<precis::publish::KvPublisher>> start_publisher(const Config& config,
                                                                      precis::Runtime& runtime) {
  if (config.kv_events.empty()) return std::unique_ptr<precis::publish::KvPublisher>();
  PRECIS_ASSIGN(auto publisher, precis::publish::KvPublisher::start(config, runtime));
  std::cerr << "precisd: kv events address=" << publisher->address() << "\n";
  return publisher;
}

// Serves until it is told to stop. `read` reads the settings again.
int serve(Service& service, int signals, const std::function<Result<Config>()>& read) {
  const precis::Notifier systemd(environment("NOTIFY_SOCKET"));
  const auto watch = service.loop().watch_readable(signals, [&] {
    signalfd_siginfo info;
    if (::read(signals, &info, sizeof info) != sizeof info) return;
    if (info.ssi_signo != SIGHUP) {
      systemd.stopping();
      return service.stop();
    }
    systemd.reloading();
    service.reload(read, [&] { systemd.ready(); });
  });
  // Programs that start precisd wait for this line; everything else goes to stderr.
  std::printf("precisd ready address=%s\n", service.address().c_str());
  std::fflush(stdout);
  systemd.ready();
  service.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("precisd keeps a compressed KV cache and serves it.\nTry: precisd --data DIR");
  Flags flags;
  add_flags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return fail(misuse(app, error), kExitUsage);
    return app.exit(error);  // --help or --version
  }
  ::umask(S_IRWXG | S_IRWXO);  // stored data is private to this user
  if (!flags.restore.from.empty()) {
    flags.restore.into = flags.data_dir;
    const Status restored = precis::run_restore(flags.restore);
    if (!restored.ok() && flags.restore.json) return kExitFailed;  // it is printed
    return restored.ok() ? 0 : fail(restored, kExitFailed);
  }
  const int signals = own_signals();
  const auto config = settle(app, flags);
  if (!config.ok()) return fail(config.status(), kExitUsage);
  const auto options = socket_options(*config);
  if (!options.ok()) return fail(options.status(), kExitUsage);
  const Status admin_tls = precis::read_admin_tls(*config).status();
  if (!admin_tls.ok()) return fail(admin_tls, kExitUsage);
  if (flags.check) return approve(*config);
  if (app.count("--accept-loss") > 0) {
    const auto given_up = precis::accept_loss(*config, flags.accept_loss);
    if (!given_up.ok()) return fail(given_up.status(), kExitFailed);
    std::printf("%s\n", given_up->c_str());
    return 0;
  }

  raise_descriptor_limit();
  precis::MachineRuntime runtime;
  auto admin = start_admin(*config, runtime);
  if (!admin.ok()) return fail(admin.status(), kExitFailed);
  auto publisher = start_publisher(*config, runtime);
  if (!publisher.ok()) return fail(publisher.status(), kExitFailed);
  auto service = Service::create(
      *config, runtime, [&](EventLoop& loop) { return make_transport(loop, *config, *options); });
  if (!service.ok()) return fail(service.status(), kExitFailed);

  if (*admin != nullptr) (*admin)->serve(**service);
  if (*publisher != nullptr) (*publisher)->serve(**service);
  auto exporter = precis::trace::SpanExporter::start(*config, runtime, **service);
  const int code = serve(**service, signals, [&] { return settle_again(app, flags); });
  exporter.reset();  // these three before the service that they serve
  admin->reset();
  publisher->reset();
  return code;
}
