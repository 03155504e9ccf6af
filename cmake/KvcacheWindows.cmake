# What a build for Windows with mingw-w64 needs, in addition to the options of every system.
foreach(option KVCACHE_CUDA KVCACHE_DISK KVCACHE_REDIS KVCACHE_UCX KVCACHE_NIXL KVCACHE_FUZZ KVCACHE_SANITIZE)
  if(${option})
    message(FATAL_ERROR "${option} is not supported on Windows.")
  endif()
endforeach()

add_compile_definitions(_WIN32_WINNT=0x0A00 WIN32_LEAN_AND_MEAN NOMINMAX)  # Windows 10
# Formats follow the C standard, as in the build for Linux, which checks them. gcc would check them by Microsoft's rules.
add_compile_definitions(__USE_MINGW_ANSI_STDIO=1)
add_compile_options(-Wno-format)
# Windows aligns the stack to 16 bytes, and gcc does not align it further: gcc bug 54412. So its aligned moves of 32 and
# 64 bytes may fault. Debian's mingw-w64 has a patch that makes gcc use unaligned moves, and other builds of gcc have none.
# So the assembler writes all aligned moves as unaligned moves, which are as fast if the address is aligned. Other AVX
# instructions need no alignment. tests/kernels/moves_test.cmake checks the objects.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wa,-muse-unaligned-vector-move)
endif()
# The run-time libraries of gcc are linked in, so that a library or a program is one file.
add_link_options(-static)
link_libraries(synchronization bcrypt)
