# One function per kind of target, so that every room is built the same way: a static library
# flashmob_<room> from its *.cpp, and (when tests are on) one runner <room>_test from its *_test.cpp.
# The libraries a room links are the rooms it may include: a wrong arrow fails at link or in tests/tidy.

add_library(flashmob_flags INTERFACE)
target_include_directories(flashmob_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(flashmob_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                                -fvisibility=hidden)
target_compile_definitions(flashmob_flags INTERFACE FLASHMOB_VERSION="${PROJECT_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string's operator+ that are not there (its bug 105651).
  target_compile_options(flashmob_flags INTERFACE -Wno-restrict)
endif()
if(FLASHMOB_NATIVE)
  target_compile_options(flashmob_flags INTERFACE -march=native)
endif()
if(FLASHMOB_WERROR)
  target_compile_options(flashmob_flags INTERFACE -Werror)
endif()
if(FLASHMOB_SANITIZE)
  # Line numbers are all the debug information that a sanitizer's report needs; more makes linking slow.
  target_compile_options(flashmob_flags INTERFACE -fsanitize=${FLASHMOB_SANITIZE} -fno-omit-frame-pointer -g1
                                                  -fno-sanitize-recover=all)
  target_link_options(flashmob_flags INTERFACE -fsanitize=${FLASHMOB_SANITIZE})
endif()
find_package(Threads REQUIRED)
target_link_libraries(flashmob_flags INTERFACE Threads::Threads)

# The tests that ThreadSanitizer must see: `cmake --build --preset tsan` builds these alone.
add_custom_target(threaded_tests)

# flashmob_room(<name> [DIR <dir>] [THREADED] [DEPS <room>...]): THREADED where threads meet in the room's tests.
function(flashmob_room name)
  cmake_parse_arguments(ROOM "THREADED" "DIR" "DEPS" ${ARGN})
  if(NOT ROOM_DIR)
    set(ROOM_DIR ${name})
  endif()
  cmake_path(APPEND CMAKE_SOURCE_DIR src ${ROOM_DIR} OUTPUT_VARIABLE dir)
  cmake_path(NORMAL_PATH dir)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(TRANSFORM ROOM_DEPS PREPEND flashmob_)
  if(sources)
    add_library(flashmob_${name} STATIC ${sources})
    target_link_libraries(flashmob_${name} PUBLIC flashmob_flags ${ROOM_DEPS})
  else()
    add_library(flashmob_${name} INTERFACE)
    target_link_libraries(flashmob_${name} INTERFACE flashmob_flags ${ROOM_DEPS})
  endif()
  if(FLASHMOB_BUILD_TESTS AND tests)
    set(threaded)
    if(ROOM_THREADED)
      set(threaded THREADED)
    endif()
    flashmob_test(${name}_test ${threaded} SOURCES ${tests} DEPS flashmob_${name})
  endif()
endfunction()

# flashmob_test(<name> [THREADED] SOURCES <cpp>... DEPS <target>...): one GoogleTest runner, one CTest entry.
function(flashmob_test name)
  cmake_parse_arguments(TEST "THREADED" "" "SOURCES;DEPS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} flashmob_flags GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  if(TEST_THREADED)
    # Alone on the machine: what spins and what is timed must not share its cores with another runner.
    set_tests_properties(${name} PROPERTIES LABELS threaded RUN_SERIAL TRUE)
    add_dependencies(threaded_tests ${name})
  endif()
endfunction()
