# flashmob_use_blas(<target>): the target's matrix products come from a BLAS with C headers, if there is one; it says so
# itself (multiply_backend()). Off with -DFLASHMOB_BLAS=OFF. OpenBLAS is preferred: BSD licence, kept up, fast.
option(FLASHMOB_BLAS "Use a BLAS where one is found" ON)

function(flashmob_use_blas target)
  if(NOT FLASHMOB_BLAS)
    return()
  endif()
  find_library(FLASHMOB_CBLAS_LIBRARY NAMES openblas blis cblas)
  find_path(FLASHMOB_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread openblas-serial blis)
  if(FLASHMOB_CBLAS_LIBRARY AND FLASHMOB_CBLAS_INCLUDE)
    cmake_path(GET FLASHMOB_CBLAS_LIBRARY STEM name)
    string(REGEX REPLACE "^lib" "" name ${name})
    target_compile_definitions(${target} PRIVATE FLASHMOB_CBLAS="${name}")
    target_include_directories(${target} PRIVATE ${FLASHMOB_CBLAS_INCLUDE})
    target_link_libraries(${target} PRIVATE ${FLASHMOB_CBLAS_LIBRARY})
  endif()
endfunction()
