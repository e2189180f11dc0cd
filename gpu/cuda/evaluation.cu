// The GPU engine's evaluation: the application's kernels.
#include "evaluation/random_reads.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

const Kernels kernels = {kernel<PlaceQueues>(), kernel<evaluation::RandomReads>(), kernel<evaluation::FillMedia>(),
                         kernel<evaluation::ReadStripes>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
