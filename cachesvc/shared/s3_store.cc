// Objects in a bucket, by libcurl, which signs the requests. Names have no byte that a URL or a
// signature would need in another form (object_store.h), and the URL of the bucket was checked.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "cachesvc/shared/s3_answers.h"
#include "cachesvc/shared/s3_library.h"
#include "cachesvc/shared/s3_tier.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr std::size_t kListBytesMax = 8u << 20;  // a page has at most 1,000 names
constexpr std::size_t kErrorBytesMax = 16u << 10;
constexpr long kBufferBytes = 512 * 1024;
// A body must come at least at this rate, and one that stands still is given up after the timeout.
constexpr std::uint64_t kBytesPerMsMin = 2048;

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

// Has the functions that libcurl calls while it performs a request.
struct Transfer {
  const S3Library& library;
  CURL* curl = nullptr;
  Bytes body;
  std::size_t sent = 0;
  Answer& answer;

  static std::size_t send(char* to, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const Bytes rest = transfer.body.subspan(transfer.sent);
    const std::size_t bytes = std::min(rest.size(), size * count);
    std::memcpy(to, rest.data(), bytes);
    transfer.sent += bytes;
    return bytes;
  }
  // If the connection was closed meanwhile, the request is sent again.
  static int rewind(void* self, curl_off_t offset, int origin) {
    auto& transfer = *static_cast<Transfer*>(self);
    const bool is_inside = origin == SEEK_SET && offset >= 0 &&
                           static_cast<std::uint64_t>(offset) <= transfer.body.size();
    if (!is_inside) return CURL_SEEKFUNC_CANTSEEK;
    transfer.sent = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }
  static std::size_t receive(char* from, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.take({reinterpret_cast<const std::byte*>(from), size * count});
  }
  // A result other than the size ends the transfer.
  std::size_t take(Bytes some) {
    Answer& to = answer;
    library.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &to.status);
    if (to.status < 200 || to.status >= 300) {
      const std::size_t room = kErrorBytesMax - std::min(kErrorBytesMax, to.error.size());
      to.error.append(reinterpret_cast<const char*>(some.data()), std::min(room, some.size()));
      return some.size();
    }
    const std::size_t room =
        to.has_exact ? to.exact.size() - to.received : to.bytes_max - to.bytes.size();
    to.is_too_long = some.size() > room;
    if (to.is_too_long) return 0;
    if (to.has_exact) {
      std::ranges::copy(some, to.exact.begin() + static_cast<std::ptrdiff_t>(to.received));
      to.received += some.size();
    } else {
      to.bytes.insert(to.bytes.end(), some.begin(), some.end());
    }
    return some.size();
  }
};

std::string encoded(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '/' ? "%2F" : std::string(1, c);
  return text;
}

class S3Store final : public ObjectStore {
 public:
  S3Store(const S3Library& library, S3Place place, S3Keys keys, const S3Settings& settings)
      : library_(library),
        place_(std::move(place)),
        keys_(std::move(keys)),
        ca_(settings.ca),
        signature_("aws:amz:" + settings.region + ":s3"),
        timeout_(settings.timeout) {}
  ~S3Store() override {
    for (CURL* const curl : idle_) library_.easy_cleanup(curl);
  }
  S3Store(const S3Store&) = delete;
  S3Store& operator=(const S3Store&) = delete;

  Result<bool> create(const std::string& name, Bytes value) override;
  Status put(const std::string& name, Bytes value) override;
  Result<std::vector<std::byte>> get(const std::string& name, std::size_t bytes_max) override;
  Status get_into(const std::string& name, MutableBytes into) override;
  Status remove(const std::string& name) override;
  Result<Page> list(const std::string& prefix, const std::string& after) override;

 private:
  Result<CURL*> take_handle();
  void give_back(CURL* curl);
  curl_slist* headers_of(const Request& request) const;
  void set_options(CURL* curl, const Request& request, const std::string& url,
                   Transfer& transfer) const;
  Status perform(const Request& request, Answer& answer);
  Status failed(CURLcode code, const Request& request, const char* detail) const;
  Status refused(const Request& request, const Answer& answer) const;
  std::string text_of(const Request& request) const;

  const S3Library library_;
  const S3Place place_;
  const S3Keys keys_;
  const std::string ca_, signature_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<CURL*> idle_;  // guarded by mutex_; each has its own connections
};

Result<CURL*> S3Store::take_handle() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      CURL* const curl = idle_.back();
      idle_.pop_back();
      return curl;
    }
  }
  CURL* const curl = library_.easy_init();
  if (curl == nullptr) return Status::unavailable("S3: there is no memory for a connection");
  return curl;
}

void S3Store::give_back(CURL* curl) {
  library_.easy_reset(curl);  // which keeps the connections
  const std::lock_guard lock(mutex_);
  idle_.push_back(curl);
}

// TLS protects a body; without it, the signature does.
curl_slist* S3Store::headers_of(const Request& request) const {
  const std::string digest = place_.encrypted ? "UNSIGNED-PAYLOAD" : sha256(request.body).hex();
  curl_slist* list = library_.slist_append(nullptr, ("x-amz-content-sha256: " + digest).c_str());
  list = library_.slist_append(list, "Content-Type: application/octet-stream");
  return request.if_absent ? library_.slist_append(list, "If-None-Match: *") : list;
}

void S3Store::set_options(CURL* curl, const Request& request, const std::string& url,
                          Transfer& transfer) const {
  const auto set = [&](CURLoption option, auto value) {
    (void)library_.easy_setopt(curl, option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");  // whatever the environment says
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (ca_ != "system") {
    set(CURLOPT_CAINFO, ca_.c_str());
    set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // not the system's too
  }
  set(CURLOPT_USERNAME, keys_.id.c_str());
  set(CURLOPT_PASSWORD, keys_.secret.c_str());
  set(CURLOPT_AWS_SIGV4, signature_.c_str());
  const auto timeout = static_cast<long>(timeout_.count());
  const std::uint64_t bytes =
      std::max({request.body.size(), transfer.answer.exact.size(), transfer.answer.bytes_max / 16});
  set(CURLOPT_CONNECTTIMEOUT_MS, timeout);
  set(CURLOPT_TIMEOUT_MS, timeout + static_cast<long>(bytes / kBytesPerMsMin));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, std::max(1L, timeout / 1000));
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_WRITEFUNCTION, &Transfer::receive);
  set(CURLOPT_WRITEDATA, &transfer);
  if (std::strcmp(request.method, "PUT") == 0) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_READFUNCTION, &Transfer::send);
    set(CURLOPT_READDATA, &transfer);
    set(CURLOPT_SEEKFUNCTION, &Transfer::rewind);
    set(CURLOPT_SEEKDATA, &transfer);
  } else if (std::strcmp(request.method, "GET") != 0) {
    set(CURLOPT_CUSTOMREQUEST, request.method);
  }
}

// An error if there is no answer; any answer is none.
Status S3Store::perform(const Request& request, Answer& answer) {
  PRECIS_ASSIGN(CURL* const curl, take_handle());
  Transfer transfer{library_, curl, request.body, 0, answer};
  const std::string url = std::string(place_.encrypted ? "https://" : "http://") +
                          place_.authority + "/" + place_.bucket + request.path +
                          (request.query.empty() ? "" : "?") + request.query;
  set_options(curl, request, url, transfer);
  char detail[CURL_ERROR_SIZE] = "";
  library_.easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_slist* const headers = headers_of(request);
  library_.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = library_.easy_perform(curl);
  library_.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  library_.slist_free_all(headers);
  give_back(curl);
  if (answer.is_too_long && *request.method == 'G') {
    return Status::corruption("S3: " + text_of(request) + ": the object is longer than expected");
  }
  return code == CURLE_OK ? Status() : failed(code, request, detail);
}

std::string S3Store::text_of(const Request& request) const {
  return request.method + (" " + place_.bucket) + request.path;
}

Status S3Store::failed(CURLcode code, const Request& request, const char* detail) const {
  const std::string why = *detail == 0 ? library_.easy_strerror(code) : detail;
  const std::string text = "S3: " + text_of(request) + " at " + place_.authority + ": " + why;
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return Status::denied(text + "; compare cluster_s3_ca with the CA of the storage");
    case CURLE_SSL_CACERT_BADFILE:
      return Status::invalid(text + "; cluster_s3_ca must be a PEM file of CAs");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return Status::invalid(text);
    default: return Status::unavailable(text);
  }
}

Status S3Store::refused(const Request& request, const Answer& answer) const {
  return s3_failure(answer.status, parse_s3_error(answer.error), text_of(request), place_.bucket);
}

Result<bool> S3Store::create(const std::string& name, Bytes value) {
  const Request request{"PUT", "/" + name, "", value, true};
  Answer answer;
  answer.bytes_max = kErrorBytesMax;
  PRECIS_TRY(perform(request, answer));
  if (answer.status == 412) return false;
  if (answer.status != 200 && answer.status != 201) return refused(request, answer);
  return true;
}

Status S3Store::put(const std::string& name, Bytes value) {
  const Request request{"PUT", "/" + name, "", value, false};
  Answer answer;
  answer.bytes_max = kErrorBytesMax;
  PRECIS_TRY(perform(request, answer));
  return answer.status == 200 || answer.status == 201 ? Status() : refused(request, answer);
}

bool is_absent(const Answer& answer) {
  return answer.status == 404 && parse_s3_error(answer.error).code == "NoSuchKey";
}

Result<std::vector<std::byte>> S3Store::get(const std::string& name, std::size_t bytes_max) {
  const Request request{"GET", "/" + name, "", {}, false};
  Answer answer;
  answer.bytes_max = bytes_max;
  PRECIS_TRY(perform(request, answer));
  if (is_absent(answer)) return Status::not_found("S3: there is no object " + name);
  if (answer.status != 200) return refused(request, answer);
  return std::move(answer.bytes);
}

Status S3Store::get_into(const std::string& name, MutableBytes into) {
  const Request request{"GET", "/" + name, "", {}, false};
  Answer answer;
  answer.exact = into;
  answer.has_exact = true;
  PRECIS_TRY(perform(request, answer));
  if (is_absent(answer)) return Status::not_found("S3: there is no object " + name);
  if (answer.status != 200) return refused(request, answer);
  if (answer.received == into.size()) return {};
  return Status::corruption("S3: read " + name + ": the object has " +
                            std::to_string(answer.received) + " bytes, not " +
                            std::to_string(into.size()));
}

Status S3Store::remove(const std::string& name) {
  const Request request{"DELETE", "/" + name, "", {}, false};
  Answer answer;
  answer.bytes_max = kErrorBytesMax;
  PRECIS_TRY(perform(request, answer));
  const bool is_gone = answer.status == 200 || answer.status == 204 || is_absent(answer);
  return is_gone ? Status() : refused(request, answer);
}

Result<ObjectStore::Page> S3Store::list(const std::string& prefix, const std::string& after) {
  const Request request{"GET",
                        "",
                        "list-type=2&prefix=" + encoded(prefix) +
                            (after.empty() ? "" : "&start-after=" + encoded(after)),
                        {},
                        false};
  Answer answer;
  answer.bytes_max = kListBytesMax;
  PRECIS_TRY(perform(request, answer));
  if (answer.status != 200) return refused(request, answer);
  return parse_s3_list({reinterpret_cast<const char*>(answer.bytes.data()), answer.bytes.size()});
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_s3_store(const S3Settings& settings) {
  PRECIS_ASSIGN(S3Place place, parse_s3_url(settings.url));
  PRECIS_TRY(check_s3_region(settings.region));
  PRECIS_ASSIGN(S3Keys keys, read_s3_keys(settings.keys_file));
  PRECIS_ASSIGN(const S3Library library, load_curl());
  return std::unique_ptr<ObjectStore>(
      std::make_unique<S3Store>(library, std::move(place), std::move(keys), settings));
}

}  // namespace precis
