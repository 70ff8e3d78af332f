// Rows whose changes are numbered, so that opening sees whether any that was acknowledged is gone.
// Each batch at kWal or better carries its number as a row; a record beside the rows has the last
// number that was acknowledged (ack_record.h). This asks nothing of the log beneath.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cachesvc/store/ack_record.h"
#include "cachesvc/store/kept_logs.h"
#include "cachesvc/store/store.h"

namespace precis {

// `rows` as they are, with doubt() where they lack a change that `record_path` says was
// acknowledged. A store of an earlier release has neither number nor record and gets both. Batches
// at kWal and better are written one after the other. `kept_logs` are those that the opening of
// `rows` kept: they go where it has lost nothing, and when the loss is accepted.
Result<std::unique_ptr<Store>> number_rows(std::unique_ptr<Store> rows,
                                           const std::string& record_path,
                                           const AckRecordOptions& options = {},
                                           std::optional<KeptLogs> kept_logs = std::nullopt);

}  // namespace precis
