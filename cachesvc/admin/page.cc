#include "cachesvc/admin/page.h"

#include <algorithm>
#include <string>

namespace precis::admin {
namespace {

// Nothing inline, nothing of other hosts, and no other site may show the page in a frame.
constexpr const char* kContentSecurityPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* content_type(std::string_view path) {
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".svg")) return "image/svg+xml";
  return path.ends_with(".css") ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

}  // namespace

const PageFile* find_page_file(const Target& target) {
  std::string path = target.parts.empty() ? "/" : "";
  for (const std::string& part : target.parts) path += "/" + part;
  const auto files = page_files();
  const auto file = std::ranges::find(files, path, &PageFile::path);
  return file == files.end() ? nullptr : &*file;
}

HttpResponse page_response(const PageFile& file, const HttpRequest& request) {
  const bool has_it = request.if_none_match.find(file.etag) != std::string::npos;
  return {has_it ? 304u : 200u,
          has_it ? std::string() : std::string(file.content),
          content_type(file.path),
          {{"ETag", std::string(file.etag)},
           {"Cache-Control", "no-cache"},  // a browser asks whether its copy is the newest
           {"Content-Security-Policy", kContentSecurityPolicy},
           {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace precis::admin
