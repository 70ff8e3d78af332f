#include "cachesvc/base/metrics.h"

namespace precis {

std::vector<msg::Stat> Metrics::rows() const {
  std::vector<msg::Stat> out;
#define PRECIS_COUNTER(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#define PRECIS_GAUGE(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#define PRECIS_HISTOGRAM(member, name, help)
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
#undef PRECIS_HISTOGRAM
  return out;
}

std::vector<Metrics::HistogramRow> Metrics::histograms() const {
  std::vector<HistogramRow> out;
#define PRECIS_COUNTER(member, name, help)
#define PRECIS_GAUGE(member, name, help)
#define PRECIS_HISTOGRAM(member, name, help) out.push_back({name, help, member.rows()});
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
#undef PRECIS_HISTOGRAM
  return out;
}

}  // namespace precis
