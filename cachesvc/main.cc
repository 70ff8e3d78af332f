// precisd: settings from flags and a file, one Service over UCX, until SIGINT or SIGTERM.

#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "cachesvc/server/service.h"
#include "cachesvc/server/version.h"
#include "cachesvc/transport/ucx_transport.h"

namespace {

using precis::Config;
using precis::EventLoop;
using precis::Result;
using precis::Service;
using precis::Status;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Flags stand over the file: each is applied only if it was given.
struct Flags {
  std::string config_file, data_dir, listen, memory, device, log_level, transports, bulk;
  std::uint32_t threads = 0;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config_file, "Settings file (TOML); flags stand over it");
  app.add_option("--data", flags.data_dir, "Folder of everything stored; made if missing");
  app.add_option("--listen", flags.listen,
                 "HOST:PORT to serve on; port 0 picks one [127.0.0.1:7470]");
  app.add_option(
      "--memory", flags.memory,
      "Memory for the hot tier and puts under way, e.g. 4GiB [a quarter of the machine's]");
  app.add_option(
      "--device", flags.device,
      "Where layers are compressed: auto (a GPU where there is one), cpu or cuda:N [auto]");
  app.add_option("--threads", flags.threads, "Compute threads [every core]");
  app.add_option("--transports", flags.transports, "as UCX_TLS, e.g. tcp [the best there are]");
  app.add_option("--bulk", flags.bulk,
                 "How bulk bytes move: auto, host-copy, stream or messages [auto]");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off [info]");
  app.set_version_flag("--version", precis::server_name());
}

Result<Config> settle(const CLI::App& app, const Flags& flags) {
  Config config;
  if (!flags.config_file.empty()) {
    PRECIS_ASSIGN(config, Config::load(flags.config_file));
  }
  if (app.count("--data") > 0) config.data_dir = flags.data_dir;
  if (app.count("--listen") > 0) config.listen = flags.listen;
  if (app.count("--device") > 0) config.device = flags.device;
  if (app.count("--threads") > 0) config.compute_threads = flags.threads;
  if (app.count("--transports") > 0) config.transports = flags.transports;
  if (app.count("--bulk") > 0) config.bulk = flags.bulk;
  if (app.count("--log-level") > 0) config.log_level = flags.log_level;
  if (app.count("--memory") > 0) {
    PRECIS_ASSIGN(config.memory_bytes, precis::parse_bytes(flags.memory));
  }
  PRECIS_TRY(config.validate());
  return config;
}

// Of a name that Config::validate() has let through.
precis::UcxOptions::BulkMode bulk_mode(const std::string& name) {
  using Mode = precis::UcxOptions::BulkMode;
  if (name == "host-copy") return Mode::kHostCopy;
  if (name == "stream") return Mode::kStream;
  return name == "messages" ? Mode::kMessages : Mode::kAuto;
}

// Blocks the stopping signals for every thread to come; they arrive at the returned descriptor.
int stopping_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

// Every connection takes some descriptors, and the usual soft limit is there for programs that use
// select(), which this one does not. The service's first line in the log says what there is.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

// What is wrong with the command line.
Status misuse(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  const std::string what =
      rest.empty() ? error.what() : "'" + rest.front() + "' is no option of precisd";
  return Status::invalid(what + "; see precisd --help");
}

int fail(const Status& status, int exit_code) {
  std::cerr << "precisd: " << status.message() << "\n";
  return exit_code;
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
    return app.exit(error);  // the help, or the version
  }
  const auto config = settle(app, flags);
  if (!config.ok()) return fail(config.status(), kExitUsage);

  raise_descriptor_limit();
  const int signals = stopping_signals();
  auto service = Service::create(*config, [&](EventLoop& loop) {
    precis::UcxOptions options;
    options.transports = config->transports;
    options.bulk = bulk_mode(config->bulk);
    options.address = config->listen;
    options.inbox_bytes_max = config->max_message_bytes;
    return precis::make_ucx_transport(loop, options);
  });
  if (!service.ok()) return fail(service.status(), kExitFailed);

  Service& running = **service;
  const auto watch = running.loop().watch_readable(signals, [&] {
    signalfd_siginfo info;
    if (read(signals, &info, sizeof info) == sizeof info) running.stop();
  });
  // Programs that start precisd wait for this line; everything else goes to stderr.
  std::printf("precisd ready address=%s\n", running.address().c_str());
  std::fflush(stdout);
  running.run();
  return 0;
}
