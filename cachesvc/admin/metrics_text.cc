#include "cachesvc/admin/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/server/version.h"
#include "precis/printable.h"

namespace precis::admin {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr std::size_t kFingerprintDigits = 12;  // tell the models of one name apart
constexpr std::string_view kOfThisTenant = " (of this tenant)";  // here, a label says which

Labels labels_of(const RequestLabels& request) {
  Labels labels;
  for (const auto& [name, value] :
       {std::pair{"tenant", &request.tenant}, std::pair{"model", &request.model},
        std::pair{"tier", &request.tier}, std::pair{"transport", &request.transport}}) {
    if (!value->empty()) labels.push_back({name, printable(*value)});
  }
  return labels;
}

// The families by name: all metrics of a family come together.
class Families {
 public:
  void add(const msg::Stat& row, Labels labels) {
    const bool counts = row.name.ends_with("_total");
    ClientMetric metric;
    metric.label = std::move(labels);
    (counts ? metric.counter.value : metric.gauge.value) = row.value;
    add(row.name, row.help, counts ? MetricType::Counter : MetricType::Gauge, std::move(metric));
  }
  void add(const std::string& name, const std::string& help, const Histogram& histogram,
           Labels labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.histogram.sample_sum = histogram.sum();
    for (std::size_t b = 0; b < histogram.counts().size(); ++b) {
      metric.histogram.sample_count += histogram.counts()[b];
      const bool last = b == Histogram::kBounds.size();
      metric.histogram.bucket.push_back(
          {metric.histogram.sample_count,
           last ? std::numeric_limits<double>::infinity() : Histogram::kBounds[b]});
    }
    add(name, help, MetricType::Histogram, std::move(metric));
  }
  std::string text() {
    std::vector<MetricFamily> all;
    for (auto& [name, family] : families_) all.push_back(std::move(family));
    return prometheus::TextSerializer().Serialize(all);
  }

 private:
  void add(const std::string& name, const std::string& help, MetricType type, ClientMetric metric) {
    MetricFamily& family = families_[name];
    family.name = name;
    family.help = help;
    family.type = type;
    family.metric.push_back(std::move(metric));
  }
  std::map<std::string, MetricFamily> families_;
};

}  // namespace

std::string metrics_text(const OperatorAccess::Monitored& process,
                         std::span<const OperatorAccess::Stored> tenants) {
  Families families;
  for (const msg::Stat& row : process.rows) families.add(row, {});
  families.add({"precis_build_info", 1, "1, with the version of the service as a label"},
               {{"version", kVersion}});
  for (const auto& family : process.labeled) {
    for (const auto& [labels, value] : family.rows) {
      families.add({family.name, static_cast<double>(value), family.help}, labels_of(labels));
    }
  }
  for (const auto& family : process.histograms) {
    for (const auto& [labels, histogram] : family.rows) {
      families.add(family.name, family.help, histogram, labels_of(labels));
    }
  }
  for (const auto& [what, rows] : process.waits) {
    const auto add = [&](const Histogram& histogram, Labels labels) {
      labels.insert(labels.begin(), {"resource", what});
      families.add("precis_wait_seconds",
                   "Time that requests waited for memory or disk, if they did", histogram,
                   std::move(labels));
    };
    if (rows.empty()) add({}, {});
    for (const auto& [labels, histogram] : rows) add(histogram, labels_of(labels));
  }
  for (const OperatorAccess::Stored& stored : tenants) {
    const std::string tenant = printable(stored.tenant);
    for (msg::Stat row : stored.rows) {
      if (row.help.ends_with(kOfThisTenant)) {
        row.help.resize(row.help.size() - kOfThisTenant.size());
      }
      families.add(row, {{"tenant", tenant}});
    }
    for (const msg::ModelRow& model : stored.models) {
      const bool others = model.model.name.empty();
      families.add(
          {"precis_model_segments", static_cast<double>(model.segments),
           "Segments stored of a model"},
          {{"tenant", tenant},
           {"model", others ? "other models" : printable(model.model.name)},
           {"fingerprint", others ? "" : model.fingerprint.hex().substr(0, kFingerprintDigits)}});
    }
  }
  return families.text();
}

}  // namespace precis::admin
