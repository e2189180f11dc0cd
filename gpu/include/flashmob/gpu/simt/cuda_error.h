// What the CUDA backend throws, so that host code can catch it without CUDA's headers.
#pragma once

#include <stdexcept>
#include <string>

namespace flashmob::gpu::simt {

// No driver, no device, or a call that failed. what() names the call and CUDA's reason in one sentence.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace flashmob::gpu::simt
