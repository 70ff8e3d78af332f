// One request to S3 and its answer, with the functions that libcurl calls meanwhile. Private to
// s3_store.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cachesvc/shared/s3_library.h"
#include "precis/view.h"

namespace precis::s3 {

inline constexpr std::size_t kErrorBytesMax = 16u << 10;

struct Request {
  const char* method = "GET";
  std::string path;   // after the bucket: a slash and the name, or nothing
  std::string query;  // sorted and encoded, or nothing
  Bytes body;
  bool if_absent = false;
};

// Takes the body of an answer: into `exact`, or into `bytes` up to a limit.
struct Answer {
  long status = 0;
  std::vector<std::byte> bytes;
  std::size_t bytes_max = 0;
  MutableBytes exact;
  bool has_exact = false;
  std::size_t received = 0;  // of `exact`
  bool is_too_long = false;
  std::string error;  // the body of an answer that is no success
};

struct Transfer {
  const S3Library& library;
  CURL* curl = nullptr;
  Bytes body;
  std::size_t sent = 0;
  Answer& answer;

  // Functions for libcurl; the last argument is the transfer.
  static std::size_t send(char* to, std::size_t size, std::size_t count, void* self);
  static int rewind(void* self, curl_off_t offset, int origin);
  static std::size_t receive(char* from, std::size_t size, std::size_t count, void* self);

 private:
  std::size_t take(Bytes some);
};

}  // namespace precis::s3
