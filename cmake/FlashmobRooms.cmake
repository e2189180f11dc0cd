# One function per kind of target, so that every room is built the same way: a static library
# flashmob_<room> from its *.cpp, and (when tests are on) one runner <room>_test from its *_test.cpp.
# The libraries a room links are the rooms it may include: a wrong arrow fails at link or in tests/tidy.

add_library(flashmob_flags INTERFACE)
target_include_directories(flashmob_flags INTERFACE $<BUILD_INTERFACE:${flashmob_SOURCE_DIR}/src>
                                                    $<BUILD_INTERFACE:${flashmob_SOURCE_DIR}/include>)
# Ours, not those of a project that links these libraries.
set(flashmob_warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
target_compile_features(flashmob_flags INTERFACE cxx_std_20)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(flashmob_flags INTERFACE "$<BUILD_INTERFACE:${flashmob_warnings}>")
endif()
target_compile_options(flashmob_flags INTERFACE $<BUILD_INTERFACE:-fvisibility=hidden>)
target_compile_definitions(flashmob_flags INTERFACE FLASHMOB_VERSION="${PROJECT_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string's operator+ that are not there (its bug 105651).
  target_compile_options(flashmob_flags INTERFACE $<BUILD_INTERFACE:-Wno-restrict>)
endif()
if(FLASHMOB_NATIVE)
  target_compile_options(flashmob_flags INTERFACE $<BUILD_INTERFACE:-march=native>)
endif()
if(FLASHMOB_WERROR)
  target_compile_options(flashmob_flags INTERFACE $<BUILD_INTERFACE:-Werror>)
endif()
if(FLASHMOB_SANITIZE)
  # Line numbers are all the debug information that a sanitizer's report needs; more makes linking slow.
  target_compile_options(flashmob_flags INTERFACE -fsanitize=${FLASHMOB_SANITIZE} -fno-omit-frame-pointer -g1
                                                  -fno-sanitize-recover=all)
  target_link_options(flashmob_flags INTERFACE -fsanitize=${FLASHMOB_SANITIZE})
  if(FLASHMOB_SANITIZE MATCHES "address")
    # Compilers say so each in its own way.
    target_compile_definitions(flashmob_flags INTERFACE FLASHMOB_ASAN=1)
  endif()
endif()
find_package(Threads REQUIRED)
target_link_libraries(flashmob_flags INTERFACE Threads::Threads)

# What every test includes is read once for all of them: GoogleTest and the standard library take longer to read than
# most tests to compile. Two sets, because a runner needs the one that was compiled with its own options.
if(FLASHMOB_BUILD_TESTS AND FLASHMOB_TEST_PCH)
  find_package(GTest REQUIRED)
  foreach(headers flashmob_test_headers flashmob_slow_test_headers)
    # An empty program, because it is compiled with a program's options.
    file(CONFIGURE OUTPUT ${flashmob_BINARY_DIR}/${headers}.cpp CONTENT "int main() {}\n")
    add_executable(${headers} EXCLUDE_FROM_ALL ${flashmob_BINARY_DIR}/${headers}.cpp)
    target_link_libraries(${headers} PRIVATE flashmob_flags GTest::gtest)
    target_precompile_headers(
      ${headers} PRIVATE <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map>
      <memory> <optional> <random> <span> <string> <thread> <vector>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # What the headers instantiate is instantiated once; and a time stamp would hide the file from ccache.
      target_compile_options(${headers} PRIVATE -fpch-instantiate-templates "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endforeach()
  target_compile_options(flashmob_test_headers PRIVATE ${FLASHMOB_TEST_OPTIONS})
endif()

# Where CMAKE_UNITY_BUILD is on (sanitized builds, and what `make` builds unless FLASHMOB_UNITY=OFF), several files are
# compiled as one: reading headers is most of what most of them cost. Files that give a private name to what a neighbour
# of theirs has given the same name stay apart; so may any other that is in the way.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a source may hold what only that source names; GCC knows a source only where it is compiled by itself.
  target_compile_options(flashmob_flags INTERFACE $<BUILD_INTERFACE:-Wno-subobject-linkage>)
endif()
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/compiled_apart.txt flashmob_apart REGEX "^[^#]")
list(TRANSFORM flashmob_apart PREPEND ${flashmob_SOURCE_DIR}/)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)

# flashmob_keep_apart(<source>...): of the folder that declares the target.
function(flashmob_keep_apart)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    if(source IN_LIST flashmob_apart)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# The tests that ThreadSanitizer must see: `cmake --build --preset tsan` builds these alone.
add_custom_target(threaded_tests)

# flashmob_room(<name> [DIR <dir>] [THREADED [BUT <filter>]] [DEPS <room>...]): THREADED where threads meet in the room's
# tests, BUT in those that the GoogleTest filter names: they compute for long on one thread, and ThreadSanitizer, which
# has nothing to see there and makes them thirty times slower, does not run them.
function(flashmob_room name)
  cmake_parse_arguments(ROOM "THREADED" "DIR;BUT" "DEPS" ${ARGN})
  if(NOT ROOM_DIR)
    set(ROOM_DIR ${name})
  endif()
  cmake_path(APPEND flashmob_SOURCE_DIR src ${ROOM_DIR} OUTPUT_VARIABLE dir)
  cmake_path(NORMAL_PATH dir)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(TRANSFORM ROOM_DEPS PREPEND flashmob_)
  flashmob_keep_apart(${sources})
  if(sources)
    add_library(flashmob_${name} STATIC ${sources})
    target_link_libraries(flashmob_${name} PUBLIC flashmob_flags ${ROOM_DEPS})
  else()
    add_library(flashmob_${name} INTERFACE)
    target_link_libraries(flashmob_${name} INTERFACE flashmob_flags ${ROOM_DEPS})
  endif()
  set_property(GLOBAL APPEND PROPERTY FLASHMOB_LIBRARIES flashmob_${name})
  if(FLASHMOB_BUILD_TESTS AND tests)
    set(threaded)
    if(ROOM_THREADED)
      set(threaded THREADED BUT "${ROOM_BUT}")
    endif()
    flashmob_test(${name}_test ${threaded} SOURCES ${tests} DEPS flashmob_${name})
  endif()
endfunction()

# flashmob_test_code(<target> [SLOW]): it is compiled as tests are.
function(flashmob_test_code target)
  set(headers flashmob_slow_test_headers)
  if(NOT "SLOW" IN_LIST ARGN)
    set(headers flashmob_test_headers)
    target_compile_options(${target} PRIVATE ${FLASHMOB_TEST_OPTIONS})
  endif()
  if(FLASHMOB_TEST_PCH)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# flashmob_test(<name> [THREADED [BUT <filter>]] [SLOW] SOURCES <cpp>... DEPS <target>...): one GoogleTest runner, one
# CTest entry.
# SLOW where the time goes into code that the test itself compiles: it is optimised like the rooms.
function(flashmob_test name)
  cmake_parse_arguments(TEST "THREADED;SLOW" "BUT" "SOURCES;DEPS" ${ARGN})
  find_package(GTest REQUIRED)
  flashmob_keep_apart(${TEST_SOURCES})
  add_executable(${name} ${TEST_SOURCES})
  if(TEST_SLOW)
    flashmob_test_code(${name} SLOW)
  else()
    flashmob_test_code(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} flashmob_flags GTest::gtest GTest::gtest_main)
  set(filter)
  if(TEST_BUT AND FLASHMOB_SANITIZE MATCHES "thread")
    set(filter --gtest_filter=-${TEST_BUT})
  endif()
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 ${filter})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  if(TEST_THREADED)
    # Alone on the machine: what spins and what is timed must not share its cores with another runner.
    set_tests_properties(${name} PROPERTIES LABELS threaded RUN_SERIAL TRUE)
    add_dependencies(threaded_tests ${name})
  endif()
endfunction()
