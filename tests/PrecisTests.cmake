# Defines precis_test(). All test binaries share one compiled Catch2 main.
include_guard()

find_path(CATCH2_INCLUDE catch2/catch.hpp REQUIRED)
add_library(precis_catch_main OBJECT ${CMAKE_CURRENT_LIST_DIR}/catch_main.cc)
target_include_directories(precis_catch_main PUBLIC ${CATCH2_INCLUDE})

# The time limit of a test, in seconds; sanitizers make tests slow.
set(PRECIS_TEST_TIMEOUT 300)
if(NOT PRECIS_SANITIZE STREQUAL "")
  set(PRECIS_TEST_TIMEOUT 1500)
endif()

# The tests of ./dev test --fast.
add_custom_target(fast_tests)

# precis_test(name SOURCES ... LIBS ... [TIMEOUT seconds] [LABELS ...] [OWN_MAIN] [FAST]): adds a
# Catch2 binary as one ctest entry. FAST: it starts no process and takes a few seconds. OWN_MAIN: a
# source has its own main(), which may exit with 77 to be shown as skipped (Catch2's own exit status
# is the number of failures, so 77 would be ambiguous).
function(precis_test name)
  cmake_parse_arguments(arg "OWN_MAIN;FAST" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT OR arg_TIMEOUT LESS PRECIS_TEST_TIMEOUT)
    set(arg_TIMEOUT ${PRECIS_TEST_TIMEOUT})
  endif()
  if(arg_FAST)
    list(APPEND arg_LABELS fast)
    add_dependencies(fast_tests ${name})
  endif()
  if(arg_OWN_MAIN)
    precis_executable(${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
    target_include_directories(${name} SYSTEM PRIVATE ${CATCH2_INCLUDE})
  else()
    precis_executable(${name} SOURCES ${arg_SOURCES} LIBS precis_catch_main ${arg_LIBS})
  endif()
  target_include_directories(${name} PRIVATE ${PRECIS_ROOT})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_OWN_MAIN)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
