// Numbers the changes of rows, so that opening detects missing acknowledged changes. Each batch at
// kWal or better stores its number as a row. A record beside the rows holds the last acknowledged
// number (ack_record.h). This does not depend on what RocksDB detects.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cachesvc/store/ack_record.h"
#include "cachesvc/store/kept_logs.h"
#include "cachesvc/store/row_store.h"

namespace precis {

// Wraps `rows`. doubt() is set if the rows lack a change that the record at `record_path` has as
// acknowledged. A store of an earlier release gets a number and a record. Batches at kWal and
// better are written one at a time. `kept_logs` are the logs that opening `rows` kept: they are
// removed if nothing is missing, and when the loss is accepted.
Result<std::unique_ptr<RowStore>> number_rows(std::unique_ptr<RowStore> rows,
                                              const std::string& record_path,
                                              const AckRecordOptions& options = {},
                                              std::optional<KeptLogs> kept_logs = std::nullopt);

}  // namespace precis
