// No tests: the program whose precompiled headers the other test programs use. See tests/CMakeLists.txt.
