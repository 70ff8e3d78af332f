// Settings with which a node reaches a bucket. Pure but for reading a file.
#pragma once

#include <chrono>
#include <string>

#include "precis/status.h"

namespace precis {

struct S3Keys {
  std::string id, secret;
};

struct S3Settings {
  std::string url;                   // http(s)://HOST[:PORT]/BUCKET
  std::string keys_file;             // as read_s3_keys() reads it
  std::string region = "us-east-1";  // a part of every signature
  std::string ca = "system";         // a PEM file, or "system": the system's CAs
  std::string space;                 // a name: begins the names of all objects
  // For connecting, and for an answer's first byte. A body has more, by its size.
  std::chrono::milliseconds timeout{10'000};
};

struct S3Place {
  bool encrypted = false;  // https
  std::string authority;   // HOST or HOST:PORT
  std::string bucket;
};
// kInvalidArgument if the text is not of that form.
Result<S3Place> parse_s3_url(const std::string& url);

// Finds both keys in a text of the form of AWS's credentials files. kInvalidArgument without them;
// the message has no part of the text.
Result<S3Keys> parse_s3_keys(const std::string& text);
Result<S3Keys> read_s3_keys(const std::string& file);

// kInvalidArgument if a signature cannot have it.
Status check_s3_region(const std::string& region);

}  // namespace precis
