vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
vcpkg_download_distfile(archive
  URLS "@RELEASES@/libkvcache-${VERSION}.tar.gz"
  FILENAME "libkvcache-${VERSION}.tar.gz"
  SHA512 "@SHA512@")
vcpkg_extract_source_archive(source ARCHIVE "${archive}")

# The headers have a folder of their own, because the port dlpack owns include/dlpack/dlpack.h.
vcpkg_cmake_configure(SOURCE_PATH "${source}" OPTIONS -DCMAKE_INSTALL_INCLUDEDIR=include/kvcache)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME kvcache CONFIG_PATH lib/cmake/kvcache)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE
  "${CURRENT_PACKAGES_DIR}/debug/include"
  "${CURRENT_PACKAGES_DIR}/debug/share"
  "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${source}/LICENSE" "${source}/LICENSE.xxhash")
