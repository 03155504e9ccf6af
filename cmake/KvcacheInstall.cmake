# What cmake --install writes: headers (DLPack's too), the library, a CMake package and kvcache.pc. The tree can be moved.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

install(TARGETS kvcache EXPORT kvcache-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/kvcache.h include/kvcache_backend.h include/kvcache_tensor.h include/kvcache_tier.h
        include/kvcache_transport.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dlpack)

set(licenses ${CMAKE_INSTALL_DATAROOTDIR}/licenses/kvcache)
install(FILES LICENSE DESTINATION ${licenses})
install(FILES LICENSE DESTINATION ${licenses} RENAME LICENSE.dlpack)  # DLPack's licence is the same text
install(FILES ${PROJECT_BINARY_DIR}/LICENSE.xxhash DESTINATION ${licenses})  # its functions are compiled in

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvcache)
configure_package_config_file(cmake/kvcache-config.cmake.in ${PROJECT_BINARY_DIR}/kvcache-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# While the version is 0.x, every minor release may change the ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvcache-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvcache-config.cmake ${PROJECT_BINARY_DIR}/kvcache-config-version.cmake
        DESTINATION ${package_dir})
install(EXPORT kvcache-targets NAMESPACE kvcache:: DESTINATION ${package_dir})

# The relative path from kvcache.pc to the prefix.
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE libdir)
file(RELATIVE_PATH pc_to_prefix ${libdir}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(cmake/kvcache.pc.in ${PROJECT_BINARY_DIR}/kvcache.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvcache.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
