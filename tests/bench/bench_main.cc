// precis_bench: put and get through a real precisd, beside what the machine could do in the same
// run.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "tests/bench/row.h"
#include "tests/bench/service_bench.h"

int main(int argc, char** argv) {
  using namespace precis;
  CLI::App app(
      "Measures put and hot get over shm and TCP, each as a share of its ceiling: a streaming "
      "copy\n"
      "between cold buffers (shm), a blocking socket moving the same bytes (TCP).");
  std::vector<std::string> transports = {"shm", "tcp"};
  std::vector<std::size_t> mebibytes = {16, 64};
  std::size_t runs = 7;
  std::string json;
  app.add_option("--transport", transports, "Transports: shm, tcp")
      ->check(CLI::IsMember({"shm", "tcp"}));
  app.add_option("--mib", mebibytes, "Payload sizes in MiB")->check(CLI::Range(1, 1024));
  app.add_option("--runs", runs, "Runs per figure; the median counts")->check(CLI::Range(1, 1000));
  app.add_option("--json", json, "Writes the rows to this file");
  CLI11_PARSE(app, argc, argv);

  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::vector<bench::Row> rows;
  for (const std::string& transport : transports) {
    for (const std::size_t mib : mebibytes) {
      bench::ServiceBenchOptions options;
      options.transport = transport;
      options.bytes = mib << 20;
      options.runs = runs;
      options.progress = [&](const std::string& what) {
        if (terminal) fmt::print(stderr, "\r\033[K{} MiB over {}", mib, what);
      };
      auto measured = bench::bench_service(options);
      if (terminal) fmt::print(stderr, "\r\033[K");
      if (!measured.ok()) {
        fmt::print(stderr, "precis_bench: {}\n", measured.status().to_string());
        return 1;
      }
      rows.insert(rows.end(), measured->begin(), measured->end());
    }
  }
  bench::print_table(rows);
  if (json.empty()) return 0;
  const Status written = bench::write_json(rows, json);
  if (!written.ok()) fmt::print(stderr, "precis_bench: {}\n", written.to_string());
  return written.ok() ? 0 : 1;
}
