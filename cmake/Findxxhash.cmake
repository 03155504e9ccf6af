# Finds xxhash.h, whose functions are compiled inline (XXH3). Sets XXHASH_INCLUDE_DIR and xxhash_VERSION, and writes the
# header's licence to LICENSE.xxhash in the build folder.
# The header comes with Debian's libxxhash-dev. Source packages of libkvcache carry it in include/xxhash.
find_path(XXHASH_INCLUDE_DIR xxhash.h HINTS ENV XXHASH_INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/../include/xxhash
          NO_CMAKE_FIND_ROOT_PATH DOC "Directory that has xxhash.h")

if(CMAKE_CROSSCOMPILING AND XXHASH_INCLUDE_DIR)  # the folder may have other headers, of this machine
  file(COPY ${XXHASH_INCLUDE_DIR}/xxhash.h DESTINATION ${CMAKE_BINARY_DIR}/xxhash)
  set(XXHASH_INCLUDE_DIR ${CMAKE_BINARY_DIR}/xxhash)
endif()
unset(xxhash_VERSION)
if(XXHASH_INCLUDE_DIR)
  file(STRINGS ${XXHASH_INCLUDE_DIR}/xxhash.h xxhash_version REGEX "define XXH_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
  if(xxhash_version MATCHES "MAJOR +([0-9]+).*MINOR +([0-9]+).*RELEASE +([0-9]+)")
    set(xxhash_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
  else()
    set(xxhash_VERSION "0")
  endif()
  file(READ ${XXHASH_INCLUDE_DIR}/xxhash.h xxhash_license LIMIT 8192)  # the first comment
  string(FIND "${xxhash_license}" "*/" xxhash_license_end)
  string(SUBSTRING "${xxhash_license}" 0 ${xxhash_license_end} xxhash_license)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/LICENSE.xxhash "${xxhash_license}*/\n")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxhash REQUIRED_VARS XXHASH_INCLUDE_DIR VERSION_VAR xxhash_VERSION
  REASON_FAILURE_MESSAGE "Debian's libxxhash-dev has it (`bash scripts/setup.sh` installs that), or give -DXXHASH_INCLUDE_DIR=...")
