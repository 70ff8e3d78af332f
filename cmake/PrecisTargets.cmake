# Settings that all targets share, and the functions that make a library or a program.
include_guard()

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH PRECIS_ROOT)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # for the Python extension, which links the archives
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)    # for clang-tidy and editors
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(PRECIS_CCACHE ccache)
if(PRECIS_CCACHE)
  foreach(language C CXX CUDA)
    # Without this setting, ccache passes over sources that use precompiled headers.
    set(CMAKE_${language}_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${PRECIS_CCACHE})
  endforeach()
endif()

add_library(precis_options INTERFACE)
target_compile_options(precis_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual>)
if(PROJECT_IS_TOP_LEVEL)  # A newer compiler's warnings must not break a user's build.
  target_compile_options(precis_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # When optimizing, GCC 12 warns of overlaps and overruns inside its own string and vector (GCC
  # bugs 105651, 107852). The asan preset finds real ones.
  target_compile_options(precis_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                              -Wno-stringop-overread>)
endif()

# Sanitizers must cover the whole build: they misread containers that code built without them also
# uses.
if(PRECIS_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(PRECIS_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(NOT PRECIS_SANITIZE STREQUAL "")
  message(FATAL_ERROR "PRECIS_SANITIZE is '${PRECIS_SANITIZE}'; choose address, thread or nothing")
endif()
if(sanitize)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize};-fno-omit-frame-pointer>")
  add_link_options(${sanitize})
endif()

# Instruments all code for coverage, which guides a fuzzer.
if(PRECIS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "PRECIS_FUZZ needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # clang 14 cannot emit the function sanitizer's types for coroutines ("difference across
  # sections").
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link;-fno-sanitize=function>")
endif()

# Most of the compilation of a source is spent on headers that all sources include. They are
# compiled once. precis_headers(name HEADERS ... LIBS ...) makes such a set of headers, and
# precis_precompiled(target name) uses it: the target must be compiled with the same options as the
# set. Headers of the project are named as <precis/...>, because a path would keep two clones from
# sharing a compiler cache. The presets of sanitizers and fuzzing compile without such sets, and so
# find a source that does not include what it uses.
function(precis_headers name)
  cmake_parse_arguments(arg "" "" "HEADERS;LIBS" ${ARGN})
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE precis_options ${arg_LIBS})
  target_compile_options(${name} PRIVATE ${PRECIS_CACHEABLE_HEADERS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  if(PRECIS_CCACHE)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "sh;${PRECIS_ROOT}/cmake/compile_headers.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()
function(precis_precompiled target name)
  target_compile_options(${target} PRIVATE ${PRECIS_CACHEABLE_HEADERS})
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND PRECIS_CCACHE)
  set(PRECIS_CACHEABLE_HEADERS $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# precis_library(name SOURCES ... [PUBLIC libs...] [PRIVATE libs...] [INCLUDE dirs...]
#                [PRECOMPILED])
# PUBLIC: libraries whose headers its own headers include. INCLUDE: public include folders.
# PRECOMPILED: its sources include messages, whose headers are compiled once (schema/).
function(precis_library name)
  cmake_parse_arguments(arg "PRECOMPILED" "" "SOURCES;PUBLIC;PRIVATE;INCLUDE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_compile_features(${name} PUBLIC cxx_std_20)  # for dependents, which include its headers
  target_link_libraries(${name}
    PUBLIC ${arg_PUBLIC} PRIVATE $<BUILD_INTERFACE:precis_options> ${arg_PRIVATE})
  foreach(folder IN LISTS arg_INCLUDE)  # An installed library has the installed headers.
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${folder}>)
  endforeach()
  # The name under which programs link it: precis::client for precis_client.
  string(REGEX REPLACE "^precis_" "" short ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
  add_library(precis::${short} ALIAS ${name})
  if(arg_PRECOMPILED)
    precis_precompiled(${name} precis_message_headers)
  endif()
endfunction()

# For sources that compile std::regex: with the address sanitizer, GCC 12 warns of uninitialized
# values in it (GCC bug 105562). Call this in the folder whose targets have the sources.
function(precis_has_regex)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
endfunction()

# precis_executable(name SOURCES ... LIBS ... [PRECOMPILED]): a program in <build>/bin.
function(precis_executable name)
  cmake_parse_arguments(arg "PRECOMPILED" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE precis_options ${arg_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(arg_PRECOMPILED)
    target_compile_options(${name} PRIVATE -fPIC)  # as the libraries, which share the headers
    precis_precompiled(${name} precis_message_headers)
  endif()
endfunction()
