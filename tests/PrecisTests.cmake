# Defines precis_test(). All test binaries share one compiled Catch2.
include_guard()

find_path(CATCH2_INCLUDE catch2/catch.hpp REQUIRED)
add_library(precis_catch STATIC ${CMAKE_CURRENT_LIST_DIR}/catch_runner.cc)
target_include_directories(precis_catch SYSTEM PUBLIC ${CATCH2_INCLUDE} PRIVATE ${PRECIS_ROOT})
add_library(precis_catch_main STATIC ${CMAKE_CURRENT_LIST_DIR}/catch_main.cc)
target_link_libraries(precis_catch_main PUBLIC precis_catch)
target_include_directories(precis_catch_main PRIVATE ${PRECIS_ROOT})

# The headers of tests, compiled once. A build of the kernels alone has no client and no such tests.
set(PRECIS_TEST_OPTIONS $<$<CONFIG:Release>:-O0>)
if(TARGET precis_client)
  precis_headers(precis_test_headers
    HEADERS
      <catch2/catch.hpp> <algorithm> <array> <chrono> <filesystem> <functional> <map> <memory>
      <optional> <random> <string> <thread> <vector> <precis/client.h> <precis/messages.h>
    LIBS precis_catch precis_client)
  target_compile_options(precis_test_headers PRIVATE -fPIE ${PRECIS_TEST_OPTIONS})
endif()

# The time limit of a test, in seconds; sanitizers make tests slow.
set(PRECIS_TEST_TIMEOUT 300)
if(NOT PRECIS_SANITIZE STREQUAL "")
  set(PRECIS_TEST_TIMEOUT 1500)
endif()

# The tests of ./dev test --fast.
add_custom_target(fast_tests)

# precis_test(name SOURCES ... LIBS ... [TIMEOUT seconds] [LABELS ...] [OWN_MAIN] [FAST]
#             [OPTIMIZED] [CASES names]): adds a Catch2 binary as one ctest entry.
# FAST: the test starts no process and takes a few seconds. OWN_MAIN: a source has its own main(),
# which may exit with 77 to be shown as skipped. The sources of tests are not optimized, because
# that doubles the time to compile them; OPTIMIZED ones compute much by themselves. CASES: the
# binary gets these as its argument and runs no other cases.
function(precis_test name)
  cmake_parse_arguments(arg "OWN_MAIN;FAST;OPTIMIZED" "TIMEOUT;CASES"
    "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT OR arg_TIMEOUT LESS PRECIS_TEST_TIMEOUT)
    set(arg_TIMEOUT ${PRECIS_TEST_TIMEOUT})
  endif()
  if(arg_FAST)
    list(APPEND arg_LABELS fast)
    add_dependencies(fast_tests ${name})
  endif()
  set(catch precis_catch)
  if(NOT arg_OWN_MAIN)
    set(catch precis_catch_main)
  endif()
  precis_executable(${name} SOURCES ${arg_SOURCES} LIBS ${catch} ${arg_LIBS})
  target_include_directories(${name} PRIVATE ${PRECIS_ROOT})
  if(NOT arg_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${PRECIS_TEST_OPTIONS})
    precis_precompiled(${name} precis_test_headers)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_CASES})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_OWN_MAIN)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
