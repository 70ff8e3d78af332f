// Logs how the nodes of a cluster change.
#pragma once

#include <string>

#include "cachesvc/base/log.h"
#include "cachesvc/cluster/view.h"

namespace precis::cluster {

// Logs which nodes came and went between two views, and how many shards `node` owns if that
// changed.
void log_changes(const View& before, const View& after, const std::string& node, Log& log);

}  // namespace precis::cluster
