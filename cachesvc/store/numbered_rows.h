// Rows whose changes are numbered, so that opening sees whether any that was acknowledged is gone.
// Each batch at kWal or better carries its number as a row; a record beside the rows has the last
// number that was acknowledged (ack_record.h). This asks nothing of the log beneath.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/store/ack_record.h"
#include "cachesvc/store/store.h"

namespace precis {

// `rows` as they are, with doubt() where they lack a change that `record_path` says was
// acknowledged. A store of an earlier release has neither number nor record and gets both. Batches
// at kWal and better are written one after the other.
Result<std::unique_ptr<Store>> number_rows(std::unique_ptr<Store> rows,
                                           const std::string& record_path,
                                           const AckRecordOptions& options = {});

}  // namespace precis
