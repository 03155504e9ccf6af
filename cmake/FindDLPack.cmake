# Finds dlpack/dlpack.h of at least the requested version. Sets DLPACK_INCLUDE_DIR and DLPack_VERSION.
# The header comes with the Python package apache-tvm-ffi, whose tvm-ffi-config prints its path, or with a system package.
# Source packages of libkvcache carry it in include/dlpack.
if(NOT DLPACK_INCLUDE_DIR AND EXISTS ${CMAKE_CURRENT_LIST_DIR}/../include/dlpack/dlpack.h)
  cmake_path(SET dlpack_hint NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../include)
elseif(NOT DLPACK_INCLUDE_DIR)
  find_program(TVM_FFI_CONFIG tvm-ffi-config HINTS ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin NO_CMAKE_FIND_ROOT_PATH)
  mark_as_advanced(TVM_FFI_CONFIG)
  if(TVM_FFI_CONFIG)
    execute_process(COMMAND ${TVM_FFI_CONFIG} --dlpack-includedir OUTPUT_VARIABLE dlpack_hint
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  endif()
endif()
find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h HINTS ${dlpack_hint} NO_CMAKE_FIND_ROOT_PATH
          DOC "Directory that has dlpack/dlpack.h")

unset(DLPack_VERSION)
if(DLPACK_INCLUDE_DIR)
  file(STRINGS ${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h dlpack_version REGEX "define DLPACK_(MAJOR|MINOR)_VERSION [0-9]+")
  if(dlpack_version MATCHES "MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+)")
    set(DLPack_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
  else()
    set(DLPack_VERSION "0")  # versions before 1.0 have one number, or none
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DLPack REQUIRED_VARS DLPACK_INCLUDE_DIR VERSION_VAR DLPack_VERSION
  REASON_FAILURE_MESSAGE "`bash scripts/setup.sh` installs it, or give -DDLPACK_INCLUDE_DIR=...")
