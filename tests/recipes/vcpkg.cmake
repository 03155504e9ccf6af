# Runs the port of packaging/vcpkg without vcpkg: for each function of vcpkg that the port calls, there is one here with the same
# effect on a Linux machine, for the release configuration.
#   cmake -DPORT_DIR=FOLDER -DARCHIVE=FILE -DTREE=EMPTY_FOLDER [-DOPTIONS=-D...;-D...] -P vcpkg.cmake
# The package is then in TREE/packages.
cmake_minimum_required(VERSION 3.24)
file(READ "${PORT_DIR}/vcpkg.json" manifest)
string(JSON PORT GET "${manifest}" name)
string(JSON VERSION GET "${manifest}" version)
set(CURRENT_PACKAGES_DIR "${TREE}/packages")
set(CURRENT_BUILDTREES_DIR "${TREE}/buildtrees")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_check_linkage)
endfunction()

function(vcpkg_download_distfile out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILENAME;SHA512" "URLS")
  cmake_path(GET ARCHIVE FILENAME name)
  if(NOT name STREQUAL arg_FILENAME)
    message(FATAL_ERROR "The port names the archive ${arg_FILENAME}, not ${name}.")
  endif()
  file(DOWNLOAD "${arg_URLS}" "${TREE}/downloads/${arg_FILENAME}" EXPECTED_HASH SHA512=${arg_SHA512})
  set(${out} "${TREE}/downloads/${arg_FILENAME}" PARENT_SCOPE)
endfunction()

function(vcpkg_extract_source_archive out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
  file(ARCHIVE_EXTRACT INPUT "${arg_ARCHIVE}" DESTINATION "${CURRENT_BUILDTREES_DIR}/src")
  file(GLOB found "${CURRENT_BUILDTREES_DIR}/src/*")  # one folder
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  set(build "${arg_SOURCE_PATH}/build" PARENT_SCOPE)
  run(${CMAKE_COMMAND} -G Ninja -S "${arg_SOURCE_PATH}" -B "${arg_SOURCE_PATH}/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON
    "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -DCMAKE_INSTALL_LIBDIR=lib ${arg_OPTIONS} ${OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  run(${CMAKE_COMMAND} --build "${build}" --target install)
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PACKAGE_NAME;CONFIG_PATH" "")
  set(to "${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}")
  file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${to}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib/cmake")
  file(GLOB files "${to}/*-targets.cmake")
  foreach(file IN LISTS files)  # share/NAME is one folder less deep than lib/cmake/NAME
    file(READ "${file}" text)
    string(REPLACE "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\nif(" "if(" changed "${text}")
    if(changed STREQUAL text)
      message(FATAL_ERROR "${file} has no prefix to correct.")
    endif()
    file(WRITE "${file}" "${changed}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  foreach(file IN LISTS arg_FILE_LIST)
    file(READ "${file}" text)
    file(APPEND "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright" "${text}")
  endforeach()
endfunction()

function(include_port)
  set(CMAKE_CURRENT_LIST_DIR "${PORT_DIR}")
  include("${PORT_DIR}/portfile.cmake")
endfunction()
include_port()
