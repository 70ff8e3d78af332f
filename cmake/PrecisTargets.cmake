# Settings every target shares, and the two ways a target is made.
include_guard()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # The Python extension links the same archives.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(PRECIS_CCACHE ccache)
if(PRECIS_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${PRECIS_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PRECIS_CCACHE})
endif()

add_library(precis_options INTERFACE)
target_compile_options(precis_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Werror>)
if(PRECIS_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(PRECIS_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT PRECIS_SANITIZE STREQUAL "")
  message(FATAL_ERROR "PRECIS_SANITIZE is '${PRECIS_SANITIZE}'; choose address, thread or nothing")
endif()

# precis_library(name SOURCES ... [PUBLIC libs...] [PRIVATE libs...] [INCLUDE dirs...])
# PUBLIC: libraries whose headers its own headers include. INCLUDE: public include folders.
function(precis_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE;INCLUDE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE precis_options ${arg_PRIVATE})
  target_include_directories(${name} PUBLIC ${arg_INCLUDE})
endfunction()

# precis_executable(name SOURCES ... LIBS ...)
function(precis_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE precis_options ${arg_LIBS})
endfunction()
