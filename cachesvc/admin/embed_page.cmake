# Writes OUTPUT, a C++ source with the files of FOLDER and their digests:
#   cmake -DFOLDER=page -DOUTPUT=page_files.cc -P embed_page.cmake
file(GLOB files RELATIVE ${FOLDER} ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg)
set(arrays "")
set(rows "")
foreach(file IN LISTS files)
  file(READ ${FOLDER}/${file} content HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," content "${content}")
  string(MAKE_C_IDENTIFIER k_${file} name)
  string(APPEND arrays "constexpr char ${name}[] = {${content}};\n")
  file(SHA256 ${FOLDER}/${file} digest)
  string(SUBSTRING ${digest} 0 32 digest)
  set(path "/page/${file}")
  if(file STREQUAL "index.html")
    set(path "/")
  endif()
  string(APPEND rows "      {\"${path}\", {${name}, sizeof ${name}}, \"\\\"${digest}\\\"\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"cachesvc/admin/page.h\"

namespace precis::admin {
namespace {
${arrays}}  // namespace

std::span<const PageFile> page_files() {
  static constexpr PageFile kFiles[] = {
${rows}  };
  return kFiles;
}

}  // namespace precis::admin
")
