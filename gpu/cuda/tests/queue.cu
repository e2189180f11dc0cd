// The kernels of gpu/tests/queue.
#include "queue/kernels.h"
#include "registry.h"

namespace flashmob::gpu::cuda {
namespace {

using namespace testing;

const Kernels kernels = {kernel<WriteRead>(), kernel<HeldUp>(), kernel<OwnWays>(), kernel<MakeErrors>(),
                         kernel<FireAndForget>()};

}  // namespace
}  // namespace flashmob::gpu::cuda
