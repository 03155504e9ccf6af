# kvcache_join_sources(target): compiles the core's files in `target` folder by folder, as one file each. Most of the compile time
# of a file is that of the headers, so this takes an eighth of it. It is for builds that are tested and not measured.
function(kvcache_join_sources target)
  get_target_property(files ${target} SOURCES)
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    if(NOT file MATCHES "sha256_(arm|x86)")  # they have options of their own
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${folder})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
