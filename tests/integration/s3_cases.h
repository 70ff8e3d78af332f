// The cases that every S3 must pass (s3_cases.cc), and functions for the tests of one.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/shared/s3_settings.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis::testing {

// The settings name the bucket that is tested, and a user who may do everything in it. `space`: a
// cluster's name. Each program of such tests defines this function.
S3Settings s3_settings(const std::string& space);

// A failure fails the test.
std::unique_ptr<SharedTier> connect_to(const S3Settings& settings);
// Why there is no connection. Checks that the message names no secret.
Status failure_of(const S3Settings& settings);

}  // namespace precis::testing
