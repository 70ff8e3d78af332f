// precis_bench_kernels: every stage, and whole presets, on layers of real models' shapes. Writes
// one JSON object a line; ./dev bench kernels makes tables of them.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "precis/device_choice.h"
#include "tests/bench/kernels/cases.h"
#include "tests/bench/kernels/ceilings.h"
#include "tests/bench/kernels/device_cases.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kWindow = 256;        // queries pushed; recipes take the last of them
constexpr std::size_t kPoolBytes = 1u << 30;  // more than any cache holds

constexpr std::string_view kUsage =
    "precis_bench_kernels [--model NAME]... [--tokens N]... [--backend cpu|cuda:N] [--keep SHARE]\n"
    "                     [--only REGEX] [--rounds N] [--runs N] [--seconds S]\n";

struct Options {
  std::vector<std::string> models;
  std::vector<std::uint32_t> tokens;
  std::string backend = "cpu", only = ".*";
  std::size_t rounds = 1;
  Plan plan;
};

[[noreturn]] void refuse(const std::string& what) {
  std::cerr << "precis_bench_kernels: " << what << "\n" << kUsage;
  std::exit(2);
}

template <typename T>
T number(std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    refuse("'" + std::string(text) + "' is no number in [" + std::to_string(low) + ", " +
           std::to_string(high) + "]");
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--help") {
      std::cout << kUsage;
      std::exit(0);
    }
    if (i + 1 == argc) refuse(std::string(name) + " lacks its value");
    const std::string value = argv[i + 1];
    if (name == "--model") {
      options.models.push_back(value);
    } else if (name == "--tokens") {
      options.tokens.push_back(number<std::uint32_t>(value, 2 * kWindow, 1u << 20));
    } else if (name == "--backend") {
      options.backend = value;
    } else if (name == "--keep") {
      options.plan.keep = number<double>(value, 0.01, 1.0);
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--rounds") {
      options.rounds = number<std::size_t>(value, 1, 100);
    } else if (name == "--runs") {
      options.plan.runs = number<std::size_t>(value, 1, 1000);
    } else if (name == "--seconds") {
      options.plan.seconds = number<double>(value, 0.0, 60.0);
    } else {
      refuse("option '" + std::string(name) + "' is unknown");
    }
  }
  if (options.models.empty()) options.models = {model_shapes().front().name};
  if (options.tokens.empty()) options.tokens = {4096, 32768};
  return options;
}

const ModelShape& shape_of(const std::string& name) {
  std::string known;
  for (const ModelShape& shape : model_shapes()) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  refuse("model '" + name + "' is unknown, choose " + known);
}

void print(const Row& row, const Layers& layers, std::string_view backend) {
  std::printf(
      "{\"name\":\"%s\",\"kind\":\"%s\",\"preset\":\"%s\",\"backend\":\"%.*s\",\"model\":\"%s\","
      "\"tokens\":%u,\"seconds\":%.9f,\"min\":%.9f,\"max\":%.9f,\"runs\":%zu,\"read_bytes\":%.0f,"
      "\"copied_bytes\":%.0f,\"flops\":%.0f,\"reread_bytes\":%.0f,\"remade_flops\":%.0f,"
      "\"exps\":%.0f}\n",
      row.name.c_str(), row.kind.c_str(), row.preset.c_str(), static_cast<int>(backend.size()),
      backend.data(), layers.shape().name.c_str(), layers.num_tokens(), row.seconds.median,
      row.seconds.min, row.seconds.max, row.seconds.runs, row.floor.read_bytes,
      row.floor.copied_bytes, row.floor.flops, row.floor.reread_bytes, row.floor.remade_flops,
      row.floor.exps);
  std::fflush(stdout);
}

std::vector<Row> measure_cpu(const kernels::CpuStages& cpu, const Layers& layers,
                             const Plan& plan) {
  std::vector<Row> rows = measure_ceilings(layers, plan);
  for (Row& row : measure_cases(cpu, layers, plan)) rows.push_back(std::move(row));
  return rows;
}

void run(Options& options) {
  const auto device = DeviceChoice::parse(options.backend);
  if (!device.ok() || device->kind == DeviceChoice::Kind::kAuto) {
    refuse("backend '" + options.backend + "' is unknown, choose cpu or cuda:N");
  }
  const bool on_cpu = device->kind == DeviceChoice::Kind::kCpu;
  const auto or_refuse = [](auto result) {
    if (!result.ok()) refuse(result.status().to_string());
    return std::move(result).value();
  };
  const kernels::CpuStages cpu;
  const std::string title = on_cpu ? cpu.name() : or_refuse(device_title(device->ordinal));
  const std::regex only(options.only);
  Plan& plan = options.plan;
  plan.wanted = [&](const std::string& name) { return std::regex_search(name, only); };
  for (const std::string& model : options.models) {
    for (const std::uint32_t tokens : options.tokens) {
      const Layers layers(shape_of(model), tokens, kWindow, kPoolBytes);
      plan.began = [&](const std::string& name) {
        if (isatty(STDERR_FILENO) == 0) return;
        std::fprintf(stderr, "\r\033[K%s, %u tokens: %s", model.c_str(), tokens, name.c_str());
      };
      // Measures ceilings and stages in every round; report.py takes the best of each.
      for (std::size_t round = 0; round < options.rounds; ++round) {
        const std::vector<Row> rows =
            on_cpu ? measure_cpu(cpu, layers, plan)
                   : or_refuse(measure_device_cases(device->ordinal, layers, plan));
        for (const Row& row : rows) print(row, layers, title);
      }
    }
  }
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K");
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  precis::bench::Options options = precis::bench::parse(argc, argv);
  precis::bench::run(options);
  return 0;
}
