#include "cachesvc/server/openness.h"

#include "cachesvc/base/private_dir.h"

namespace precis {

void close_data_dir(Log& log, const std::string& dir) {
  const auto [was_open, left_open] = make_private(dir);
  if (!was_open) return;
  if (left_open.ok()) {
    log.info("data directory closed to other users", {{"data_dir", dir}});
  } else {
    log.warn("other users of this machine may read the data directory",
             {{"data_dir", dir}, {"why", left_open.message()}});
  }
}

void warn_of_exposed_tokens(Log& log, const Config& config) {
  for (const std::string& file : config.exposed_files) {
    log.warn("a file with tokens can be read by every user of this machine",
             {{"file", file}, {"instead", "chmod o-r, or token_file with LoadCredential"}});
  }
}

}  // namespace precis
