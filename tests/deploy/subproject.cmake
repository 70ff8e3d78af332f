# Another project that includes this one as docs/quickstart.md says: the unchanged snippet of that
# page and the quickstart. Only that one source is compiled; the library is only configured.
#   cmake -D ROOT=<this repository> -D DIR=<its own folder> -D C_COMPILER= -D CXX_COMPILER= -P
cmake_minimum_required(VERSION 3.25)

file(READ ${ROOT}/docs/quickstart.md page)
if(NOT page MATCHES "```cmake\n([^`]*)```")
  message(FATAL_ERROR "docs/quickstart.md has no CMake snippet")
endif()
set(snippet "${CMAKE_MATCH_1}")

file(MAKE_DIRECTORY ${DIR})
file(CREATE_LINK ${ROOT} ${DIR}/precis SYMBOLIC)
file(COPY_FILE ${ROOT}/client/examples/quickstart.cc ${DIR}/my_program.cc ONLY_IF_DIFFERENT)
file(WRITE ${DIR}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(somebody LANGUAGES CXX)
add_executable(my_program my_program.cc)
${snippet}")

# CUDA is off: the search for nvcc takes long, and the public headers do not depend on it.
execute_process(
  COMMAND ${CMAKE_COMMAND} --fresh -S ${DIR} -B ${DIR}/build -G Ninja -D PRECIS_CUDA=OFF
    -D CMAKE_C_COMPILER=${C_COMPILER} -D CMAKE_CXX_COMPILER=${CXX_COMPILER}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${CMAKE_COMMAND} --build ${DIR}/build --target CMakeFiles/my_program.dir/my_program.cc.o
  COMMAND_ERROR_IS_FATAL ANY)

file(READ ${DIR}/build/build.ninja rules)
if(rules MATCHES "-Werror")
  message(FATAL_ERROR "-Werror is set: what another compiler warns of would break that build")
endif()
