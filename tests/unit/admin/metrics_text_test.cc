#include "cachesvc/admin/metrics_text.h"

#include <catch2/catch.hpp>

namespace precis::admin {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("metrics have their kind, their help and the labels of their tenant", "[unit][admin]") {
  OperatorAccess::Monitored process;
  process.rows = {{"precis_gets_total", 3, "Gets begun"}, {"precis_open_gets", 2, "Gets"}};
  Labeled<Histogram> times;
  times.at({"red", "toy", "disk", "shm"}).observe(0.0002);
  times.at({"red", "toy", "disk", "shm"}).observe(100);
  process.histograms = {{"precis_get_seconds", "Time", times.rows()}};
  process.labeled = {{"precis_hits_total", "Hits", {{{"red", "a\nb", "", "tcp"}, 7}}}};
  Labeled<Histogram> waits;
  waits.at({"red", "", "", ""}).observe(1);
  process.waits = {{"memory", waits.rows()}, {"put room", {}}};
  OperatorAccess::Stored red{"red", {{"precis_segments", 5, "Segments (of this tenant)"}}, {}};
  red.models.resize(2);
  red.models[0].model.name = "a \"model\"\n";
  red.models[0].segments = 4;
  red.models[1].segments = 1;
  const OperatorAccess::Stored tenants[] = {
      red, {"blue", {{"precis_segments", 6, "Segments (of this tenant)"}}, {}}};
  const std::string text = metrics_text(process, tenants);
  CHECK_THAT(text, Contains("# TYPE precis_gets_total counter\nprecis_gets_total 3\n"));
  CHECK_THAT(text, Contains("# TYPE precis_open_gets gauge\nprecis_open_gets 2\n"));
  CHECK_THAT(text, Contains("# HELP precis_gets_total Gets begun\n"));
  CHECK_THAT(text, Contains("# HELP precis_segments Segments\n"));  // of each tenant
  CHECK_THAT(text, Contains("precis_segments{tenant=\"red\"} 5\n"
                            "precis_segments{tenant=\"blue\"} 6\n"));
  CHECK_THAT(text, Contains("# TYPE precis_build_info gauge\nprecis_build_info{version=\""));
  const std::string labels = "tenant=\"red\",model=\"toy\",tier=\"disk\",transport=\"shm\"";
  CHECK_THAT(text, Contains("precis_get_seconds_count{" + labels + "} 2\n"));
  CHECK_THAT(text, Contains("precis_get_seconds_bucket{" + labels + ",le=\"0.00025\"} 1\n"));
  CHECK_THAT(text, Contains("precis_get_seconds_bucket{" + labels + ",le=\"60\"} 1\n"));
  CHECK_THAT(text, Contains("precis_get_seconds_bucket{" + labels + ",le=\"+Inf\"} 2\n"));
  CHECK_THAT(text, Contains("precis_hits_total{tenant=\"red\",model=\"a\\\\u000ab\","
                            "transport=\"tcp\"} 7\n"));
  CHECK_THAT(text, Contains("precis_wait_seconds_count{resource=\"memory\",tenant=\"red\"} 1\n"));
  CHECK_THAT(text, Contains("precis_wait_seconds_count{resource=\"put room\"} 0\n"));
  CHECK_THAT(text,
             Contains("model=\"a \\\"model\\\"\\\\u000a\",fingerprint=\"000000000000\"} 4\n"));
  CHECK_THAT(text, Contains("model=\"other models\",fingerprint=\"\"} 1\n"));
}

}  // namespace
}  // namespace precis::admin
