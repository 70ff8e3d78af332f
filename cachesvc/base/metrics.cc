#include "cachesvc/base/metrics.h"

namespace precis {

std::vector<msg::Stat> Metrics::rows() const {
  std::vector<msg::Stat> out;
#define PRECIS_COUNTER(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#define PRECIS_GAUGE(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#define PRECIS_LABELED(member, name, help)
#define PRECIS_HISTOGRAM(member, name, help)
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
#undef PRECIS_LABELED
#undef PRECIS_HISTOGRAM
  return out;
}

#define PRECIS_COUNTER(member, name, help)
#define PRECIS_GAUGE(member, name, help)

std::vector<Metrics::Family<std::int64_t>> Metrics::labeled() const {
  std::vector<Family<std::int64_t>> out;
#define PRECIS_LABELED(member, name, help) out.push_back({name, help, member.rows()});
#define PRECIS_HISTOGRAM(member, name, help)
#include "cachesvc/base/metric_names.def"
#undef PRECIS_LABELED
#undef PRECIS_HISTOGRAM
  return out;
}

std::vector<Metrics::Family<Histogram>> Metrics::histograms() const {
  std::vector<Family<Histogram>> out;
#define PRECIS_LABELED(member, name, help)
#define PRECIS_HISTOGRAM(member, name, help) out.push_back({name, help, member.rows()});
#include "cachesvc/base/metric_names.def"
#undef PRECIS_LABELED
#undef PRECIS_HISTOGRAM
  return out;
}

#undef PRECIS_COUNTER
#undef PRECIS_GAUGE

}  // namespace precis
