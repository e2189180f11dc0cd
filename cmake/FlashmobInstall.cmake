# What another project links, whether it adds this one as a folder (FetchContent, add_subdirectory) or finds it installed
# (`cmake --install build/release --component dev --prefix DIR`, then find_package(flashmob COMPONENTS gpu)):
#
#   flashmob::gpu_device   headers alone: device code, for CUDA kernels of your own and for fibres
#   flashmob::gpu          the host's side: attach(), caches, arrays, backends; and the headers
#   flashmob::api          SSDs, benchmarks, servers without a GPU
include(CMakePackageConfigHelpers)

add_library(flashmob_gpu_device INTERFACE)
target_compile_features(flashmob_gpu_device INTERFACE cxx_std_20)
target_include_directories(
  flashmob_gpu_device INTERFACE
  $<BUILD_INTERFACE:${flashmob_SOURCE_DIR}/gpu/include> $<BUILD_INTERFACE:${flashmob_SOURCE_DIR}/include>
  $<BUILD_INTERFACE:${flashmob_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/flashmob/rooms>)
add_library(flashmob_gpu INTERFACE)
target_link_libraries(flashmob_gpu INTERFACE flashmob_gpu_host flashmob_gpu_device)
add_library(flashmob::gpu_device ALIAS flashmob_gpu_device)
add_library(flashmob::gpu ALIAS flashmob_gpu)
add_library(flashmob::api ALIAS flashmob_api)
set_target_properties(flashmob_gpu_device PROPERTIES EXPORT_NAME gpu_device)
set_target_properties(flashmob_gpu PROPERTIES EXPORT_NAME gpu)
set_target_properties(flashmob_api PROPERTIES EXPORT_NAME api)
target_include_directories(flashmob_flags INTERFACE $<INSTALL_INTERFACE:include>
                                                    $<INSTALL_INTERFACE:include/flashmob/rooms>)

get_property(libraries GLOBAL PROPERTY FLASHMOB_LIBRARIES)
install(TARGETS ${libraries} flashmob_flags flashmob_gpu_device flashmob_gpu EXPORT flashmob
        ARCHIVE DESTINATION lib COMPONENT dev)
install(EXPORT flashmob NAMESPACE flashmob:: DESTINATION lib/cmake/flashmob COMPONENT dev)
install(DIRECTORY ${flashmob_SOURCE_DIR}/include/ ${flashmob_SOURCE_DIR}/gpu/include/ DESTINATION include COMPONENT dev
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inl")
# What those headers include of the rooms.
foreach(room base nvme timing command_set)
  install(DIRECTORY ${flashmob_SOURCE_DIR}/src/${room} DESTINATION include/flashmob/rooms COMPONENT dev
          FILES_MATCHING PATTERN "*.h")
endforeach()
write_basic_package_version_file(${flashmob_BINARY_DIR}/flashmob-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${flashmob_SOURCE_DIR}/cmake/flashmob-config.cmake ${flashmob_BINARY_DIR}/flashmob-config-version.cmake
        DESTINATION lib/cmake/flashmob COMPONENT dev)
