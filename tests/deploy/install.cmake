# Installs the build into an empty folder, and builds and runs the quickstart against what is there:
# once by find_package(precis), once by pkg-config; and the test of the C interface by pkg-config.
#   cmake -D ROOT=<this repository> -D BUILD=<its build folder> -D DIR=<a folder of the test>
#     -D C_COMPILER= -D CXX_COMPILER= -D NM= -P
cmake_minimum_required(VERSION 3.25)

set(prefix ${DIR}/prefix)
file(REMOVE_RECURSE ${DIR})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
# The quickstart over a new directory: it stores and reads back, and fails otherwise.
function(run_quickstart program)
  file(REMOVE_RECURSE ${DIR}/cache-dir)
  run(${program} ${DIR}/cache-dir)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${prefix}/bin/precisd --check --config ${prefix}/share/doc/precis/precisd.toml)
run(${prefix}/bin/precisctl --version)
file(READ ${prefix}/lib/systemd/system/precisd.service unit)
if(NOT unit MATCHES "ExecStart=${prefix}/bin/precisd ")
  message(FATAL_ERROR "the unit does not start the installed precisd")
endif()

foreach(made bash-completion/completions/precisctl zsh/site-functions/_precisctl
    fish/vendor_completions.d/precisctl.fish man/man1/precisctl.1 man/man8/precisd.8)
  file(SIZE ${prefix}/share/${made} size)  # fails if it is missing
  if(size LESS 1000)
    message(FATAL_ERROR "${made} is too short")
  endif()
endforeach()

# find_package
file(MAKE_DIRECTORY ${DIR}/somebody)
file(COPY ${ROOT}/client/examples/quickstart.cc DESTINATION ${DIR}/somebody)
file(WRITE ${DIR}/somebody/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(somebody LANGUAGES CXX)
find_package(precis 0.1 REQUIRED)
add_executable(by_package quickstart.cc)
target_link_libraries(by_package PRIVATE precis::embedded)
")
run(${CMAKE_COMMAND} -S ${DIR}/somebody -B ${DIR}/somebody/build -G Ninja
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${CXX_COMPILER})
run(${CMAKE_COMMAND} --build ${DIR}/somebody/build)
run_quickstart(${DIR}/somebody/build/by_package)

# pkg-config
find_program(PKG_CONFIG pkg-config REQUIRED)
file(GLOB_RECURSE found ${prefix}/precis-embedded.pc)
cmake_path(GET found PARENT_PATH packages)
function(flags_of package)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${packages}
      ${PKG_CONFIG} --cflags --libs ${package}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags)
  set(flags ${flags} PARENT_SCOPE)
endfunction()
flags_of(precis-client)
if(flags MATCHES "kernels|cuda")
  message(FATAL_ERROR "the client links compression or CUDA: ${flags}")
endif()
file(WRITE ${DIR}/client.cc "#include <precis/client.h>
int main() {
  const auto client = precis::Client::connect(\"127.0.0.1:1\", {.retry = false});
  return client.status().code() == precis::StatusCode::kUnavailable ? 0 : 1;
}
")
run(${CXX_COMPILER} -std=c++20 ${DIR}/client.cc ${flags} -o ${DIR}/client)
run(${DIR}/client)
flags_of(precis-embedded)
run(${CXX_COMPILER} -std=c++20 ${DIR}/somebody/quickstart.cc ${flags} -o ${DIR}/by_pkg_config)
run_quickstart(${DIR}/by_pkg_config)

# C
flags_of(precis)
run(${C_COMPILER} -std=c99 ${ROOT}/tests/unit/client/c_test.c ${flags} -o ${DIR}/by_c)
file(GLOB_RECURSE library ${prefix}/libprecis.so)
cmake_path(GET library PARENT_PATH libraries)
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${libraries} ${DIR}/by_c ${DIR}/c-cache-dir)
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${library}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
file(READ ${prefix}/include/precis/precis.h header)
foreach(symbol IN LISTS symbols)
  string(REGEX REPLACE "[ @].*" "" symbol "${symbol}")
  if(NOT symbol STREQUAL "PRECIS_0" AND NOT header MATCHES "[ *]${symbol}\\(")
    message(FATAL_ERROR "libprecis.so exports ${symbol}, which precis.h does not declare")
  endif()
endforeach()
