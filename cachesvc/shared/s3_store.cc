// Objects in a bucket, by libcurl, which signs the requests. Names have no byte that a URL or a
// signature would need in another form (object_store.h), and the URL of the bucket was checked.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "cachesvc/shared/s3_answers.h"
#include "cachesvc/shared/s3_library.h"
#include "cachesvc/shared/s3_tier.h"
#include "cachesvc/shared/s3_transfer.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

using namespace s3;

constexpr std::size_t kListBytesMax = 8u << 20;  // a page has at most 1,000 names
constexpr long kBufferBytes = 512 * 1024;
// A body of a known length must pass at least at this rate, and no body may come more slowly than
// kBytesPerSecondMin for as long as the timeout.
constexpr std::uint64_t kBytesPerMsMin = 2048;
constexpr long kBytesPerSecondMin = 1024;
constexpr int kConflictsMax = 4;

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
  CURLcode set_options(CURL* curl, const Request& request, const std::string& url,
                       Transfer& transfer) const;
  Status perform(const Request& request, Answer& answer);
  Status failed(CURLcode code, const Request& request, const char* detail) const;
  Status refused(const Request& request, const Answer& answer) const;
  Status of_caller(Status status) const;
  std::string text_of(const Request& request) const;

  const S3Library library_;
  const S3Place place_;
  const S3Keys keys_;
  const std::string ca_, signature_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> works_ = false;  // a request to create an object was understood
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

// TLS protects a body; without it, the signature does. Null if there is no memory: a request that
// lacks a header may replace what it should not.
curl_slist* S3Store::headers_of(const Request& request) const {
  const std::string digest = place_.encrypted ? "UNSIGNED-PAYLOAD" : sha256(request.body).hex();
  const std::string signed_digest = "x-amz-content-sha256: " + digest;
  curl_slist* list = nullptr;
  for (const char* const header : {signed_digest.c_str(), "Content-Type: application/octet-stream",
                                   request.if_absent ? "If-None-Match: *" : nullptr}) {
    if (header == nullptr) continue;
    curl_slist* const longer = library_.slist_append(list, header);
    if (longer == nullptr) {
      library_.slist_free_all(list);
      return nullptr;
    }
    list = longer;
  }
  return list;
}

// Returns the first failure. If it were ignored, a request might go out unsigned, or trust another
// CA.
CURLcode S3Store::set_options(CURL* curl, const Request& request, const std::string& url,
                              Transfer& transfer) const {
  CURLcode first = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode code = library_.easy_setopt(curl, option, value);
    if (first == CURLE_OK) first = code;
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");  // also if the environment names one
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (ca_ != "system") {
    set(CURLOPT_CAINFO, ca_.c_str());
    // The system's CAs must not count too. Some TLS libraries have no such folder.
    (void)library_.easy_setopt(curl, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  }
  set(CURLOPT_AWS_SIGV4, signature_.c_str());
  set(CURLOPT_USERNAME, keys_.id.c_str());
  set(CURLOPT_PASSWORD, keys_.secret.c_str());
  const auto timeout = static_cast<long>(timeout_.count());
  const std::uint64_t bytes = std::max(request.body.size(), transfer.answer.exact.size());
  set(CURLOPT_CONNECTTIMEOUT_MS, timeout);
  // The length of other answers is not known.
  if (transfer.answer.bytes_max <= kListBytesMax) {
    set(CURLOPT_TIMEOUT_MS, timeout + static_cast<long>(bytes / kBytesPerMsMin));
  }
  set(CURLOPT_LOW_SPEED_LIMIT, kBytesPerSecondMin);
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
  return first;
}

// Returns an error if there is no answer. An answer of any status is OK.
Status S3Store::perform(const Request& request, Answer& answer) {
  PRECIS_ASSIGN(CURL* const curl, take_handle());
  Transfer transfer{library_, curl, request.body, 0, answer};
  const std::string url = std::string(place_.encrypted ? "https://" : "http://") +
                          place_.authority + "/" + place_.bucket + request.path +
                          (request.query.empty() ? "" : "?") + request.query;
  char detail[CURL_ERROR_SIZE] = "";
  library_.easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_slist* const headers = headers_of(request);
  CURLcode code = headers == nullptr ? CURLE_OUT_OF_MEMORY
                                     : library_.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  if (code == CURLE_OK) code = set_options(curl, request, url, transfer);
  if (code == CURLE_OK) code = library_.easy_perform(curl);
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

// A storage that has worked and refuses a request now, for example while a clock or a key is wrong,
// may accept it later, and no caller has made a mistake.
Status S3Store::of_caller(Status status) const {
  const bool is_refusal = status.code() == StatusCode::kPermissionDenied ||
                          status.code() == StatusCode::kInvalidArgument;
  return works_ && is_refusal ? Status::unavailable(status.message()) : std::move(status);
}

Status S3Store::failed(CURLcode code, const Request& request, const char* detail) const {
  const std::string why = *detail == 0 ? library_.easy_strerror(code) : detail;
  const std::string text = "S3: " + text_of(request) + " at " + place_.authority + ": " + why;
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return of_caller(Status::denied(text + "; compare cluster_s3_ca with the CA of the storage"));
    case CURLE_SSL_CACERT_BADFILE:
      return Status::invalid(text + "; cluster_s3_ca must be a PEM file of CAs");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return Status::invalid(text);
    default: return Status::unavailable(text);
  }
}

Status S3Store::refused(const Request& request, const Answer& answer) const {
  return of_caller(
      s3_failure(answer.status, parse_s3_error(answer.error), text_of(request), place_.bucket));
}

Result<bool> S3Store::create(const std::string& name, Bytes value) {
  const Request request{"PUT", "/" + name, "", value, true};
  Answer answer;
  for (int n = 0; n < kConflictsMax; ++n) {
    answer = {};
    answer.bytes_max = kErrorBytesMax;
    PRECIS_TRY(perform(request, answer));
    // AWS may refuse all of several requests that create an object at a time.
    const bool again =
        answer.status == 409 && parse_s3_error(answer.error).code == "ConditionalRequestConflict";
    if (!again) break;
  }
  works_ = works_ || answer.status == 412 || answer.status == 200 || answer.status == 201;
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
