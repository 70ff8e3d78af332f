# Everything that `cmake --install` installs: the programs, the libraries and their headers,
# find_package(precis), the pkg-config files, the systemd unit and an example configuration. The
# component `client` is what other programs are compiled with, `service` is the rest; each is a
# Debian package, too (PrecisPackage.cmake).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME service)

# Sets `result` to `target` and all libraries of this project that it links, each before those that
# it depends on, as linkers need them.
function(precis_closure target result)
  get_target_property(linked ${target} LINK_LIBRARIES)
  set(found)
  foreach(library IN LISTS linked)
    if(library MATCHES "^precis_")
      precis_closure(${library} deeper)
      list(REMOVE_ITEM found ${deeper})
      list(APPEND found ${deeper})
    endif()
  endforeach()
  set(${result} ${target} ${found} PARENT_SCOPE)
endfunction()

# Sets `result` to the linker flags of `target` and of all that it links, except what pkg-config
# knows.
function(precis_static_flags target result)
  precis_closure(${target} libraries)
  list(TRANSFORM libraries PREPEND -l)
  list(APPEND libraries -pthread -l${CMAKE_DL_LIBS})
  if(PRECIS_INSTALLS_CUDA AND -lprecis_device IN_LIST libraries)
    list(APPEND libraries -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt)
  endif()
  set(${result} ${libraries} PARENT_SCOPE)
endfunction()

# precis_pkg_config(name DESCRIPTION text FLAGS flags... [REQUIRES packages...])
function(precis_pkg_config name)
  cmake_parse_arguments(pc "" "DESCRIPTION" "FLAGS;REQUIRES" ${ARGN})
  set(pc_NAME ${name})
  list(JOIN pc_FLAGS " " pc_FLAGS)
  list(JOIN pc_REQUIRES " " pc_REQUIRES)
  file(RELATIVE_PATH pc_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/precis.pc.in ${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT client)
endfunction()

precis_closure(precis_embedded libraries)
get_target_property(PRECIS_INSTALLS_CUDA precis_kernels PRECIS_HAS_CUDA)
if(PRECIS_INSTALLS_CUDA)
  find_package(CUDAToolkit REQUIRED)
else()
  set(PRECIS_INSTALLS_CUDA OFF)
endif()
install(TARGETS precisd precisctl)
install(TARGETS ${libraries} precis_compress precis_c EXPORT precis
  LIBRARY COMPONENT client NAMELINK_COMPONENT client
  ARCHIVE COMPONENT client
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
add_custom_target(installed DEPENDS precisd precisctl ${libraries} precis_compress precis_c)
foreach(folder schema/include client/include kernels/include)
  install(DIRECTORY ${folder}/precis DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT client FILES_MATCHING PATTERN *.h)
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/schema/generated/precis
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT client FILES_MATCHING PATTERN *.h)

# find_package(precis)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/precis)
install(EXPORT precis NAMESPACE precis:: FILE precisTargets.cmake DESTINATION ${package}
  COMPONENT client)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/precisConfig.cmake.in precisConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(precisConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/precisConfig.cmake
  ${PROJECT_BINARY_DIR}/precisConfigVersion.cmake DESTINATION ${package} COMPONENT client)

# pkg-config
set(client_packages capnp libssl libcrypto spdlog tomlplusplus)
precis_static_flags(precis_client flags)
precis_pkg_config(precis-client DESCRIPTION "C++ client of the Precis KV-cache store"
  FLAGS ${flags} REQUIRES ${client_packages})
precis_static_flags(precis_embedded flags)
precis_pkg_config(precis-embedded DESCRIPTION "The Precis KV-cache store inside a C++ program"
  FLAGS ${flags} REQUIRES ${client_packages} rocksdb)
precis_pkg_config(precis DESCRIPTION "The Precis KV-cache store for C programs" FLAGS -lprecis)

# Shell completion and manual pages, made by the programs themselves.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
install(CODE "
  set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
  function(complete shell file)
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY \${folder})
    execute_process(COMMAND $<TARGET_FILE:precisctl> completion \${shell}
      OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  complete(bash \${share}/bash-completion/completions/precisctl)
  complete(zsh \${share}/zsh/site-functions/_precisctl)
  complete(fish \${share}/fish/vendor_completions.d/precisctl.fish)
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/docs/tools/man_pages.py
    $<TARGET_FILE_DIR:precisctl> \${share}/man COMMAND_ERROR_IS_FATAL ANY)")

# The unit names the installed program. Its prefix is known when it is installed.
install(CODE "
  file(READ \"${PROJECT_SOURCE_DIR}/deploy/precisd.service\" unit)
  string(REPLACE /usr/local/ \"\${CMAKE_INSTALL_PREFIX}/\" unit \"\${unit}\")
  file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/precisd.service\"
    \"\${unit}\")" COMPONENT service)
install(FILES deploy/precis.sysusers DESTINATION lib/sysusers.d RENAME precis.conf)
install(FILES deploy/precisd.toml README.md LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/precis)

include(PrecisPackage)
