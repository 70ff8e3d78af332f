// The operator's page: a few static files in cachesvc/admin/page, which are part of the program.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "cachesvc/admin/http_message.h"

namespace precis::admin {

struct PageFile {
  std::string_view path;  // of the request: "/", "/page/page.css"
  std::string_view content;
  std::string_view etag;  // with its quotes; a digest of the content
};
// All files. cachesvc/admin/embed_page.cmake writes this function.
std::span<const PageFile> page_files();

// The file that a target names; null if it names none.
const PageFile* find_page_file(const Target& target);
// The file, or 304 if the client has it already. A browser may run and show nothing but such files.
HttpResponse page_response(const PageFile& file, const HttpRequest& request);

}  // namespace precis::admin
