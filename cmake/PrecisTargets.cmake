# Settings every target shares, and the two ways a target is made.
include_guard()

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH PRECIS_ROOT)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # The Python extension links the same archives.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)    # For clang-tidy and editors.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(PRECIS_CCACHE ccache)
if(PRECIS_CCACHE)
  foreach(language C CXX CUDA)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${PRECIS_CCACHE})
  endforeach()
endif()

add_library(precis_options INTERFACE)
target_compile_options(precis_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual>)
if(PROJECT_IS_TOP_LEVEL)  # What a user's newer compiler warns of must not break his build.
  target_compile_options(precis_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps and overruns inside its own string and vector when optimising (GCC bugs
  # 105651, 107852). The asan preset looks for real ones.
  target_compile_options(precis_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                              -Wno-stringop-overread>)
endif()

# Sanitizers are for the whole build, or containers that cross a target's edge are misread.
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

# What a fuzzer is steered by: which code an input reached, of everything that it can reach.
if(PRECIS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "PRECIS_FUZZ needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # Of coroutines clang 14 can't say what types they are called by ("difference across sections").
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link;-fno-sanitize=function>")
endif()

# precis_library(name SOURCES ... [PUBLIC libs...] [PRIVATE libs...] [INCLUDE dirs...])
# PUBLIC: libraries whose headers its own headers include. INCLUDE: public include folders.
function(precis_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE;INCLUDE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_compile_features(${name} PUBLIC cxx_std_20)  # Its headers are of C++20, for whoever links.
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE precis_options ${arg_PRIVATE})
  target_include_directories(${name} PUBLIC ${arg_INCLUDE})
endfunction()

# Sources that compile std::regex, as Catch2's main does: GCC 12 sees it move what is not there when
# the address sanitizer is on (GCC bug 105562). In the folder whose targets have them.
function(precis_has_regex)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
endfunction()

# precis_executable(name SOURCES ... LIBS ...): a program, built into <build>/bin.
function(precis_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE precis_options ${arg_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()
