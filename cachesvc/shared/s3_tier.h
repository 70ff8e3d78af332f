// The storage that all nodes reach (shared_tier.h), in a bucket of S3.
#pragma once

#include <memory>

#include "cachesvc/shared/log_tier.h"
#include "cachesvc/shared/object_store.h"
#include "cachesvc/shared/s3_settings.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis {

// Nothing is asked yet. kUnsupported without libcurl, kInvalidArgument if the settings have no
// form that could work.
Result<std::unique_ptr<ObjectStore>> make_s3_store(const S3Settings& settings);

// Blocks. kUnavailable if the storage does not answer in time, or has no such bucket; a later call
// may succeed. Other errors last until a person acts, and say how: those of make_s3_store();
// kUnsupported if the storage lets two requests create one object; kPermissionDenied.
// The prefix of `logs` is set here.
Result<std::unique_ptr<SharedTier>> connect_s3(const S3Settings& settings, LogTierSettings logs);

}  // namespace precis
