# The compiler of the sanitized builds: the newest clang here that has libFuzzer, so that fuzzers and tests share objects.
execute_process(
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/find_clang.sh
  OUTPUT_VARIABLE clang
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT clang)
  message(FATAL_ERROR "no clang with libFuzzer here: scripts/bootstrap.sh test says what to install")
endif()
set(CMAKE_CXX_COMPILER ${clang})
