// trim: read -> cut -> store, of one segment. A budget is a cut, so what is stored afterwards is
// what a put at that budget would have stored, bit for bit; no stage of compression runs. The
// segment keeps its id, which names what it was put as; its row says what is left.
//
// Gets under way go on where their cut is still stored, and end with kNotFound where it is not. A
// put of the same gives back what was lost. All methods on the loop's thread.
#pragma once

#include <memory>
#include <optional>

#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

class TrimPath {
 public:
  // All outlive the path.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;    // cuts
    FairExecutor& storage;  // changes of the catalog
    ColdReads& cold;
    PayloadMemory& memory;
    Catalog& catalog;
    HotTier& hot_tier;
    Metrics& metrics;
  };
  explicit TrimPath(Parts parts) : parts_(parts) {}

  // Needs memory for what is left and for one layer as it is stored. kInvalidArgument naming the
  // limit for a budget above what is stored; at what is stored it is only as durable as asked
  // afterwards.
  Task<Result<msg::Trimmed>> run(Owner owner, msg::TrimPrefix request);

 private:
  struct Cut;  // of all layers
  Task<Result<std::optional<msg::Trimmed>>> attempt(const Owner& owner,
                                                    const msg::TrimPrefix& request);
  Task<Status> fill(const Owner& owner, const Catalog::Row& row, std::uint64_t entries,
                    MutableBytes layer_memory, Cut& cut);
  static Status add_layer(Bytes records, std::uint64_t entries, Cut& cut);

  const Parts parts_;
};

}  // namespace precis
