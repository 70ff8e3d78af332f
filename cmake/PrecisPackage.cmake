# The Debian packages that `./dev package` builds: `precis` (the service) and `libprecis-dev` (what
# other programs are compiled with). Their files are those of `cmake --install`, and what only a
# package has: the configuration in /etc, scripts, and the documents that Debian asks for.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Precis maintainers <precis@lists.invalid>")
set(CPACK_COMPONENTS_ALL service client)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/finish_package.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_SERVICE_PACKAGE_NAME precis)
set(CPACK_DEBIAN_SERVICE_PACKAGE_SECTION database)
set(CPACK_COMPONENT_SERVICE_DESCRIPTION "KV-cache store for LLM serving
Precis stores the KV cache of prompts outside the engines that compute and
read it, compressed to the entries that future queries will need. This package
has the service precisd and its tool precisctl.")
# systemd or, in a container without it, the program alone; it creates the user.
set(CPACK_DEBIAN_SERVICE_PACKAGE_DEPENDS "systemd-standalone-sysusers | systemd-sysusers")
# Loaded if there is an RDMA device, and if cluster_ceph_conf or cluster_s3 is set.
set(CPACK_DEBIAN_SERVICE_PACKAGE_SUGGESTS "libucx0, librados2, libcurl4")
set(scripts ${PROJECT_SOURCE_DIR}/deploy/debian/service)
set(CPACK_DEBIAN_SERVICE_PACKAGE_CONTROL_EXTRA
  ${scripts}/conffiles ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)
install(FILES deploy/precisd.toml DESTINATION /etc/precis COMPONENT service EXCLUDE_FROM_ALL)

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME libprecis-dev)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "clients of the Precis KV-cache store
Headers and libraries for C and C++ programs that use a Precis service, or that
run one inside their process: libprecis.so for C, static libraries for C++, and
their files for pkg-config and CMake.")
# The static libraries link these, and the headers include theirs.
set(CPACK_DEBIAN_CLIENT_PACKAGE_DEPENDS
  "libcapnp-dev, librocksdb-dev, libspdlog-dev, libssl-dev, libtomlplusplus-dev")
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/client/triggers)
if(PRECIS_INSTALLS_CUDA)
  install(FILES deploy/debian/client/lintian-overrides RENAME libprecis-dev
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT client EXCLUDE_FROM_ALL)
endif()
include(CPack)

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(documents ${PROJECT_BINARY_DIR}/debian)
configure_file(deploy/debian/changelog.in ${documents}/changelog @ONLY)
execute_process(COMMAND gzip -9nc ${documents}/changelog
  OUTPUT_FILE ${documents}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  OUTPUT_FILE ${documents}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
foreach(component SERVICE CLIENT)
  string(TOLOWER ${component} lower)
  install(FILES deploy/debian/copyright ${documents}/changelog.Debian.gz ${documents}/changelog.gz
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${component}_PACKAGE_NAME}
    COMPONENT ${lower} EXCLUDE_FROM_ALL)
endforeach()
