// The second function that the stand-in exports, beside that of gpu/cuda/library.cu.
#include "stand_in/gpu.h"

extern "C" __attribute__((visibility("default"))) flashmob::gpu::stand_in::Controls* flashmob_cuda_stand_in() {
  return &flashmob::gpu::stand_in::Gpu::get();
}
